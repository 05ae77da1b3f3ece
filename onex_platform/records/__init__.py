"""The one way to wrap a record: headers, tracing, signatures and the privacy of fields."""
