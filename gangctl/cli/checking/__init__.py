"""What ``gangctl check`` finds out about a manifest, and how it says so."""
