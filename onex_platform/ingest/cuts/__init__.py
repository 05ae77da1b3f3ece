"""One cut of the input topics: planned, read on Spark, committed."""
