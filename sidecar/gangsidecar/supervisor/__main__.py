"""The supervisor's program. The rule: an installation takes milliseconds, so only other verbs import the supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from gangsidecar.supervisor import installation

INSTALL = 2
"""Words of `install DIRECTORY`."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    if len(arguments) == INSTALL and arguments[0] == "install" and not arguments[1].startswith("-"):
        return _install(arguments[1])
    from gangsidecar.supervisor import command_line  # noqa: PLC0415 - see above

    return command_line.main(arguments)


def _install(directory: str) -> int:
    try:
        installation.install(os.path.dirname(os.path.abspath(sys.argv[0])), directory)
    except OSError as error:
        sys.stderr.write(installation.told(directory, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
