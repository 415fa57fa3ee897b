"""Ask gangctl to start this interpreter's program warm; otherwise run the ``sitecustomize`` that the user has.

Any interpreter below a worker's command runs this, whatever its version. Nothing of it stays behind: no module and no
entry of ``sys.path``.
"""

import sys

_FOLDER = __file__.rpartition("/")[0]
if sys.version_info >= (3, 8):  # noqa: UP036 - any interpreter may read this
    try:
        import gang_handover  # type: ignore[import-not-found]

        gang_handover.begin()
    except Exception:  # noqa: BLE001, S110 - no error of ours may reach the program
        pass
sys.modules.pop("gang_handover", None)
del sys.modules["sitecustomize"]
while _FOLDER in sys.path:
    sys.path.remove(_FOLDER)
sys.path_importer_cache.pop(_FOLDER, None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401 - the user's; ``site`` expects an ImportError where there is none
