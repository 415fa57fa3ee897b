"""``python -m gangctl`` is ``gangctl``."""

from __future__ import annotations

import sys

from gangctl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
