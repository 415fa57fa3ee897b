"""Annexes: packages beside the house, which never imports them. Each has its verbs and companions in `REGISTERED`."""
