"""``python -m gangctl`` is ``gangctl``."""

import sys

from gangctl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
