"""What the process imports of which tests fork commands (tests/commands.py)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import kubernetes_asyncio.client
import kubernetes_asyncio.config  # noqa: F401 - it is imported for those that fork

from gangctl.cli import verbs

for _one in iter_modules(verbs.__path__):
    import_module(f"{verbs.__name__}.{_one.name}")
