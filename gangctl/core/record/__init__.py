"""What the status remembers of a gang, and what people are told."""
