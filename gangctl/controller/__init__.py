"""The asyncio shell around the core: the loop, the hub, identity, telemetry."""
