"""A node and samples of the platform's own that go wherever users' records go, unseen by users."""
