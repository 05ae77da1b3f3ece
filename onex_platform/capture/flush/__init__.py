"""From buffers to pages: cut, encoded, stored, indexed, tried again, set down."""
