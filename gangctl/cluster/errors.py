"""The errors of a cluster, in three kinds by what the caller does next."""

from __future__ import annotations


class ClusterError(Exception):
    """A request to a cluster failed; the text is a sentence for people: what was seen, what to do."""


class Retryable(ClusterError):  # noqa: N818 - it names what the caller does next
    """The same request may succeed later without a change of the job: a full disk, an unreachable API server."""

    after = 0.0
    """Seconds that the API server asks to wait before that."""


class Held(Retryable):
    """A PodDisruptionBudget allows no eviction of this pod now."""


class Conflict(ClusterError):  # noqa: N818 - as above
    """Another process wrote first. The reads are fresh when this is raised: decide again."""


class Terminal(ClusterError):  # noqa: N818 - as above
    """The request fails until a person changes something."""
