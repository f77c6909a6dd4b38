"""Running plans: Runtime, Engine, ExecutionContext. Knows nothing of networks, fusion or selection."""
