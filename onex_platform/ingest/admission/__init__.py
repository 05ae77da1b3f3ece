"""The door of the log over columns: records become events, or are parked."""
