"""What ``gangctl init`` finds out about a training script, and the manifest that it writes for it."""
