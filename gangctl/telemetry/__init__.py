"""Traces, metrics and logs of the controller. No decision depends on them."""
