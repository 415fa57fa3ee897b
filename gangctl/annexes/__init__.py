"""Annexes: packages beside the house, which the house never imports. Each registers its verbs in `VERBS`."""
