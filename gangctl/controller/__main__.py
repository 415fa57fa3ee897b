"""``python -m gangctl.controller``: the local controller."""

import sys

from gangctl.controller.local import main

sys.exit(main())
