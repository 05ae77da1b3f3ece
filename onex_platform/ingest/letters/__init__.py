"""The log's dead letters: records that could not enter it, and what becomes of them."""
