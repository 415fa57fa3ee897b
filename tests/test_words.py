"""Words and turns of phrase that this project avoids: some everywhere, others in the prose that users read."""

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
PROSE = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|other\b)": "'isn't a ...'",
    r"\b(?:is|are|was|were|be|been) told\b(?! apart)": "'the status shows ...', 'the controller sends ...'",
    r"\btells? (?:of|that|whether|who|which|how|why|where|when)\b": "'reports', 'shows', 'says'",
    r"\b(?:the begin of|hangs? together|that which|as ever|goes before)\b": "say it as a native speaker would",
    r"\b(?:has|have|had) hold of\b": "'holds'",
    r"\b(?:the|this|that|these|those|each|every|only) ones?\b(?! of\b)": "name the thing again",
    r"\bones? (?:that|which|who|whose)\b": "name the thing again",
    r"(?:^|[.:!?)] |\n\n|- )(?-i:Whether|Of|What (?:an?|it|that|the|they|this|you)) (?![^.?\n]*\?)": "say it by a noun",
}
"""Pattern -> what to write instead, in the pages of :data:`READ`. Line breaks count as spaces."""
READ = ("README.md", "docs/*.md", "docs/decisions/*.md", "docs/tasks/*.md")
"""Pages whose prose has no pattern of :data:`PROSE`. Add others when they pass."""
FENCED = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`|^#.*?$|^<!--.*?-->", re.MULTILINE | re.DOTALL)
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


def test_the_prose_for_users_has_none_of_the_phrases_that_we_avoid() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()}: {instead}"
        for page in sorted({page for pages in READ for page in ROOT.glob(pages)})
        for text in [page.read_text(encoding="utf-8")]
        for pattern, instead in PROSE.items()
        for match in re.finditer(pattern, _prose(text), re.IGNORECASE | re.MULTILINE)
    ]
    assert found == [], "\n".join(found)


def _prose(text: str) -> str:
    """The text without code, headings and comments, in which each character keeps its place."""
    without = FENCED.sub(lambda found: re.sub(r"[^\n]", "\u00b7", found[0]), text)
    return re.sub(r"(?<!\n)\n(?!\n|[|>-]|\d\.)[ ]*", lambda found: " " * len(found[0]), without)
