"""What the process imports of which tests fork commands (tests/commands.py)."""

from __future__ import annotations

import kubernetes_asyncio.client
import kubernetes_asyncio.config  # noqa: F401 - it is imported for those that fork

from gangctl.cli.registry import verbs

for _one in verbs().values():
    _one.load()
