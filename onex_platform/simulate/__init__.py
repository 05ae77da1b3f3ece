"""A seeded fleet: whole node lives with everything that goes wrong in them."""
