"""Whether what flows is well: canaries, numbers with thresholds, alerts."""
