"""A worker for tests of warm starts: it notes who it is, reports steps, and trains without end."""

import decimal
import json
import os
import time
from pathlib import Path

import gangclient  # the supervisor puts it into PYTHONPATH

gang = gangclient.connect()
noted = Path(os.environ["CHECKPOINT_DIR"], f"{os.environ['GANG_ATTEMPT']}-{os.environ['RANK']}")
noted.with_suffix(".tmp").write_text(json.dumps({"uid": os.getuid(), "found": str(decimal.Decimal("0.1"))}))
noted.with_suffix(".tmp").rename(noted)
step = 0
while True:
    step += 1
    gang.progress(step)
    time.sleep(0.1)
