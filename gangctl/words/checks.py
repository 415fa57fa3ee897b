"""Say what checks found, and what follows."""

from collections.abc import Sequence

from gangctl.words.message import message
from gangctl.words.text import counted, listed

_TOGETHER = {"Member": "", "Pair": " in pairs", "Gang": " together"}


@message
def attempt_checked(attempt: int, check: str, members: int, scope: str, again: bool = False) -> str:
    """``again``: pairs have failed, so their members get other partners."""
    how = " again, with other partners," if again else ""
    together = _TOGETHER.get(scope, "")
    return f"before attempt {attempt}, check {check} runs{how} in {counted(members, 'member')}{together}"


@message
def check_not_passed(check: str, code: int | None = None, signal: str = "", seconds: int = 0) -> str:
    """``seconds``: it took longer than that; all default: it is what other members say of the pair."""
    if signal:
        return f"check {check} ended by {signal}"
    if code:
        return f"check {check} failed with exit code {code}"
    return f"check {check} took longer than {seconds} s" if seconds else f"check {check} failed with this member alone"


@message
def check_failed(members: Sequence[str], what: str, then: str) -> str:
    """``what``: how it ended in the first of them."""
    more = f", and so it did in {listed(members[1:])}" if len(members) > 1 else ""
    return f"{members[0]}: {what}{more}; {then}"


@message
def check_failed_last(member: str, what: str) -> str:
    """``what``: how it ended there."""
    return f"the last pod of {member} didn't pass: {what}"


@message
def check_undecided(check: str, members: Sequence[str], then: str) -> str:
    if not members:
        return f"check {check} had no result from some members in time; {then}"
    return f"check {check} failed between {listed(members)}, and which of them is to blame can't be told; {then}"


@message
def check_faulty(check: str, members: Sequence[str], what: str, then: str) -> str:
    many = f"{counted(len(members), 'member')} ({listed(members)}), too many to be their fault"
    return f"check {check} failed in {many}, so no pod is replaced; in {members[0]}: {what}; {then}"


@message
def attempt_goes_on() -> str:
    return "the attempt goes on"


@message
def is_held_for_check() -> str:
    return "onFailure of the check is Hold"


@message
def pods_leave(members: Sequence[str], since: int | None = None) -> str:
    """``since``: the first step that isn't trusted."""
    leave = f"{'its pod is' if len(members) == 1 else 'their pods are'} replaced on another node"
    return leave if since is None else f"{leave}, and no step from {since} on is restored"
