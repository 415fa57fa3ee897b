"""Authentication of sidecars by their tokens, and the certificates that sidecars trust."""
