"""Commands about what flows through topics: dead letters, and what else needs looking after."""
