"""The fold on Spark: from pages of the log to rows and decided facts."""
