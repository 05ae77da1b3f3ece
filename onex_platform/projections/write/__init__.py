"""The one writer: how a folded batch reaches its tables."""
