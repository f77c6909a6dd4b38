"""The layers that networks have, by what they do."""
