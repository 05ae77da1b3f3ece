"""The clock: silence becomes a fact, once, and never by our own fault."""
