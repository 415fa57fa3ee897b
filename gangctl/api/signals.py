"""Linux signals by name. The table is fixed, so that a manifest is equally valid on a Mac and on a cluster.

Source: signal(7), numbers of x86 and ARM.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

SIGNALS: Final = MappingProxyType(
    {
        "SIGHUP": 1,
        "SIGINT": 2,
        "SIGQUIT": 3,
        "SIGILL": 4,
        "SIGTRAP": 5,
        "SIGABRT": 6,
        "SIGBUS": 7,
        "SIGFPE": 8,
        "SIGKILL": 9,
        "SIGUSR1": 10,
        "SIGSEGV": 11,
        "SIGUSR2": 12,
        "SIGPIPE": 13,
        "SIGALRM": 14,
        "SIGTERM": 15,
        "SIGSTKFLT": 16,
        "SIGCHLD": 17,
        "SIGCONT": 18,
        "SIGSTOP": 19,
        "SIGTSTP": 20,
        "SIGTTIN": 21,
        "SIGTTOU": 22,
        "SIGURG": 23,
        "SIGXCPU": 24,
        "SIGXFSZ": 25,
        "SIGVTALRM": 26,
        "SIGPROF": 27,
        "SIGWINCH": 28,
        "SIGIO": 29,
        "SIGPWR": 30,
        "SIGSYS": 31,
    }
)
"""Name to number. Real-time signals have no names: match them by exit code, 128+n."""

_NAMES: Final = {number: name for name, number in SIGNALS.items()}


def signal_name(number: int) -> str:
    """Return SIGKILL for 9; SIG64 and the like where there is no name."""
    return _NAMES.get(number, f"SIG{number}")
