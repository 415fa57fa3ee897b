"""The pure core: every decision, as functions of values. No clock, no I/O, no logger, no randomness."""
