"""Does the topic say what the rows say? And the repair."""
