"""Work for many members in slices: a gang of 10,000 must not keep the event loop from all others.

The rule: the first slice is served at once, each other one in a later turn of the loop, in order. What has changed in
between is for ``serve`` to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

_T = TypeVar("_T")
SLICE: Final = 128
"""So many members are served in one turn of the loop."""


def in_slices(items: Iterator[_T], serve: Callable[[_T], None]) -> None:
    """Serve every item. ``items`` must not change meanwhile."""
    some = tuple(islice(items, SLICE))
    for item in some:
        serve(item)
    if len(some) == SLICE:
        asyncio.get_running_loop().call_soon(in_slices, items, serve)
