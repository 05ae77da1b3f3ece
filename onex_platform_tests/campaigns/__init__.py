"""Long trials of the running platform: each is a command, and has a short form among the tests."""
