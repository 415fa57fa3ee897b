"""Where the user's own interpreter enters, before it runs a worker. It runs from the supervisor's archive.

    python [FLAGS] -c ENTER ARCHIVE run IMPORTS COMMAND ...
    python [FLAGS] -c ENTER ARCHIVE template IMPORTS DESCRIPTOR COMMAND ...

COMMAND is what follows Python's own flags: a script with its arguments, or ``-m`` and a module. IMPORTS is the file to
which the worker's imports are appended; empty: nowhere. A template does not run its COMMAND: it shows what it is for in
lists of processes.
"""

from __future__ import annotations

import sys
from collections.abc import Set as AbstractSet

from gangsidecar.start.main_module import Target, run

ENTER = r"""
import sys
loaded = frozenset(sys.modules)
if sys.version_info < (3, 8):
    import os
    words = open("/proc/self/cmdline", "rb").read().split(b"\0")[:-1]
    at = words.index(b"-c")
    if sys.argv[2] == "template":
        sys.exit("a template needs Python 3.8 or newer, not " + sys.version.split()[0])
    os.execvp(words[0], words[:at] + words[at + 5:])
sys.path.insert(0, sys.argv[1])
from gangsidecar.start.entry import main
main(sys.argv[2:], loaded)
"""
"""The program that calls :func:`main`. An interpreter that is too old for us executes the COMMAND."""


def main(arguments: list[str], loaded: AbstractSet[str]) -> None:
    """Start the worker, now or as the child of this process; never returns in a template.

    ``loaded``: the modules that Python itself had loaded.
    """
    _hide_us()
    verb, imports, *command = arguments
    recorder = template = None
    if imports:
        from gangsidecar.start.recorder import Recorder  # noqa: PLC0415 - not every worker needs it

        recorder = Recorder(imports)
    if verb == "template":
        from gangsidecar.start.template import Template  # noqa: PLC0415 - a worker that is executed needs none of it

        sys.argv[:] = Target.of(command[1:]).argv  # As modules that look at it find it in a start.
        template = Template(int(command[0]), loaded)  # Kept, since freeing it takes a child several milliseconds.
        command = template.serve()
    if recorder is not None:
        sys.meta_path.insert(0, recorder)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[-len(arguments) - 3 :] = command
    run(Target.of(command))


def _hide_us() -> None:
    """Take from ``sys.path`` the archive, and the working directory that ``-c`` has put there."""
    sys.path_importer_cache.pop(sys.path.pop(0), None)
    if sys.path[:1] == [""]:
        del sys.path[0]
