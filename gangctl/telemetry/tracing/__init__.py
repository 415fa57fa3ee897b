"""Sends the spans of incidents to an OpenTelemetry collector."""
