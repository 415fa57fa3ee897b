"""What can go wrong with a cluster: three kinds, told apart by what the caller does next."""

from __future__ import annotations


class ClusterError(Exception):
    """A cluster couldn't do what was asked; the text is a sentence for people: what was seen, what to do."""


class Retryable(ClusterError):  # noqa: N818 - it names what the caller does next
    """The same may succeed later, without anybody changing the job: a full disk, an API server that is away."""


class Conflict(ClusterError):  # noqa: N818 - as above
    """Somebody else wrote first. What the cluster shows is fresh when this is raised: decide again."""


class Terminal(ClusterError):  # noqa: N818 - as above
    """It stays wrong until a person changes something."""
