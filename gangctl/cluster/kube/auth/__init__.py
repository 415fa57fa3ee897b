"""Who a sidecar is, and the certificates that it trusts."""
