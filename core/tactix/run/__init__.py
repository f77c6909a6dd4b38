"""Running plans: Runtime, Engine, ExecutionContext. Knows no networks, fusion or selection."""
