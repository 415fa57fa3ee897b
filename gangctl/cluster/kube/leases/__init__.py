"""Leader election by Lease."""
