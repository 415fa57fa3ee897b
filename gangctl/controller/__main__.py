"""``python -m gangctl.controller``: the local controller."""

from __future__ import annotations

import sys

from gangctl.controller.local import main

sys.exit(main())
