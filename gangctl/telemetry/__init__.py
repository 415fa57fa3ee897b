"""Traces, metrics and logs: what the controller tells monitoring systems. It decides nothing."""
