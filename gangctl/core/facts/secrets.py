"""Secrets: what looks like one in a line that is kept or shown is replaced by ``***``.

The rule: a table of forms, each with an example in its test. It finds what is obvious: a password or token by its name,
credentials of a URL, keys with a known prefix. It can't find a secret that looks like any other word, so the output of
workers is not kept at all where that matters (``workerOutput.enabled`` of the chart). A masked line must not contain
the secret in part. A tenant writes the lines, so the work is bounded: a word is looked at as a whole (``*+`` doesn't
go back), and only the begin of a line is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MASK: Final = "***"
READ: Final = 1_000
"""Characters of a line that are looked at; what comes behind them is left out."""
_VALUE: Final = r"""("[^"]*"?|'[^']*'?|(?:[^\s"',;&)\]}]|,(?=[^\s"']))+)"""
"""Of a name: a quoted text, or a word."""
_NUMBER: Final = r"""(?!["']?\d+(\.\d+)?(?![\w.:/+-]))"""
"""Not before a number: jobs that train count tokens."""


def _named(word: str) -> str:
    """A word that begins so, and what is between it and its value."""
    return rf"""((?<![\w-])(?={word})[\w-]*+["']?\s*+[=:]\s*)"""


_FORMS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), rf"\1{MASK}")
    for pattern in (
        # Headers: Authorization: Bearer TEXT. Also of cookies.
        r"""(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token|negotiate)\s+)?)[^\s"',]+""",
        r"""(\b(?:set-)?cookie["']?\s*:\s*["']?).+""",
        r"(\bbearer\s+)[\w.~+/=-]{8,}",
        # NAME=VALUE and "NAME": "VALUE", by the name.
        _named(r"[\w-]*?(?:passw(?:or)?d|passphrase|\bpwd)") + _VALUE,
        _named(r"[\w-]*?(?:secret|credential|(?:api|access|account|private|signing|encryption)[_-]?key)") + _VALUE,
        _named(r"[\w-]*+(?<=token)") + _NUMBER + _VALUE,
        # A flag and its value: --password TEXT, also as a list of words.
        r"""((?<![\w-])--[\w-]{0,60}?(?:passw(?:or)?d|secret|token|api-?key|access-?key)["']?[,\s]\s*["']?)(?!-)[^\s"',\]]+""",
        # Credentials and signatures of a URL.
        r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/@:]*+:[^\s@]*+(?:@[^\s@]*+(?=@))*(?=@)",
        r"([?&](?:x-amz-[a-z-]+|x-goog-[a-z-]+|sig|signature|key|code)=)[^\s&\"']+",
        # Keys that are known by their form: AWS, GitHub, GitLab, Hugging Face, OpenAI and others, Slack, Google; JWT.
        r"(\b(?=(?:AKIA|ASIA)[A-Z0-9]{16}\b))\w+",
        r"(\b(?=gh[pousr]_\w{20}|github_pat_\w{20}|glpat-[\w-]{20}|hf_\w{20}|sk-[\w-]{16}|xox[abeoprs]-[\w-]{10}))[\w-]+",
        r"(\b(?=AIza[\w-]{35}))[\w-]+",
        r"(\b(?=eyJ[\w-]{8,}+\.[\w-]{8}))[\w.-]+",
        # A line of a key in PEM.
        r"(^\s*)(?=\S*\d)(?-i:(?=\S*[a-z])(?=\S*[A-Z]))[a-z0-9+/]{60,}={0,2}\s*$",
    )
)


@lru_cache(maxsize=4096)
def masked(line: str) -> str:
    """The line, without what looks like a secret. A decision asks for the same ones again and again."""
    line = line[:READ]
    for form, instead in _FORMS:
        line = form.sub(instead, line)
    return line
