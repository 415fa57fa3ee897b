"""The short vocabulary of this project: words that its documentation, code, messages and tests do without."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTEAD = {
    r"\b(?:somebody|anybody|nobody|everybody|whoever)\b": "name the process, the member or the person",
    r"(?:^|[.:;] |[#\"] ?)Never (?:is|are|was|does|do|has|have|can|may|must)\b": "'it must never ...'",
    r"\bfor ever\b(?! y)": "'without end', or say until when",
}
EXCEPT = (":!LICENSE", ":!*/LICENSE", ":!*requirements*.txt", ":!*.png", ":!tests/test_words.py")
"""As git's pathspecs."""


def test_the_text_has_none_of_the_words_that_we_avoid() -> None:
    listed = subprocess.run(["git", "ls-files", *EXCEPT], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = [
        f"{path}:{number}: {match[0]}: {instead}"
        for path in listed.splitlines()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        for pattern, instead in INSTEAD.items()
        if (match := re.search(pattern, line, re.IGNORECASE))
    ]
    assert found == [], "\n".join(found)
