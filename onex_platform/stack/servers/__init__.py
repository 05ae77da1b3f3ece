"""The servers themselves: how each is set up, started, and asked whether it serves."""
