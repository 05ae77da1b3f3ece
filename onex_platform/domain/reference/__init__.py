"""What the fast code must agree with, said plainly. Tests compare; no product module imports it."""
