"""What `onex topics` does beside listing: contracts, and clusters."""
