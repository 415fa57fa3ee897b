"""Patterns of what a shell takes as a whole, for all who read a script without running it."""

from typing import Final

PARENTHESES: Final = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
OPAQUE: Final = r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<![^\s(])\#[^\n]*"""
"""With DOTALL: text in which nothing ends a line, a statement or an array."""
