"""``python -m gangctl.controller``: the local controller."""

from __future__ import annotations

import sys

from gangctl.controller.main import main

sys.exit(main())
