"""Group, version and kind of the API."""

from __future__ import annotations

from typing import Final

GROUP: Final = "gangctl.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "GangJob"
PLURAL: Final = "gangjobs"
