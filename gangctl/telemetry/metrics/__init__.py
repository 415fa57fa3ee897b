"""Prometheus metrics of one controller process."""
