"""Where checkpoints are stored, and when gangctl falls back to an older one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Constraint, Model, TierName


class DirectorySource(Model):
    """gangctl lists a directory, and the layout identifies complete steps."""

    constraints = (
        Constraint(
            "layout Pattern needs pattern, such as step-{step} with complete: DONE, or model-{step}.pt for files",
            lambda source: source.layout != "Pattern" or bool(source.pattern),
            "self.layout != 'Pattern' || has(self.pattern)",
            ("layout", "pattern"),
        ),
        Constraint(
            "pattern and complete belong to layout Pattern; the other layouts define their own",
            lambda source: source.layout == "Pattern" or (source.pattern is None and source.complete is None),
            "self.layout == 'Pattern' || (!has(self.pattern) && !has(self.complete))",
            ("layout", "pattern", "complete"),
        ),
    )

    type: Literal["Directory"]
    directory: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path of the directory with the steps, in the worker container."""
    layout: Literal["TorchDCP", "HuggingFace", "Lightning", "Megatron", "Orbax", "Pattern"]
    """Library that writes the checkpoints, or Pattern."""
    pattern: Annotated[str, Field(pattern=r"^[^/{}]*\{step\}[^/{}]*$", max_length=255)] | None = None
    """Name of a step's subdirectory or file, such as step-{step}; * is any text. Needs layout Pattern."""
    complete: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Name of the file that the framework writes last into a complete step, such as DONE. If absent, each step is a
    file that the framework renames when complete. Needs layout Pattern."""


class ApiSource(Model):
    """Each rank registers its complete checkpoints through the sidecar's API."""

    type: Literal["API"]


class Tier(Model):
    """A storage tier for checkpoints."""

    constraints = (
        Constraint(
            "a tier with scope Member or Peers needs source type API, because only the members' own framework knows "
            "which checkpoints they hold",
            lambda tier: tier.scope == "Shared" or isinstance(tier.source, ApiSource),
            "self.scope == 'Shared' || self.source.type == 'API'",
            ("source.type", "scope"),
        ),
    )

    name: TierName
    """Name of the tier, unique in the gang. The framework uses it to register a checkpoint."""
    scope: Literal["Shared", "Peers", "Member"]
    """Shared: every member can read the tier. Member: only the member that wrote the checkpoint; lost with the pod.
    Peers: as Member, but members keep copies of each other's parts (gangclient.memory)."""
    source: Annotated[DirectorySource | ApiSource, Field(discriminator="type")]
    """How gangctl finds complete steps."""


class Checkpoint(Model):
    """Where checkpoints are stored."""

    constraints = (
        Constraint(
            "two tiers have the same name",
            lambda checkpoint: len({one.name for one in checkpoint.tiers}) == len(checkpoint.tiers),
            "",
            ("tiers",),
        ),
        Constraint(
            "only one tier may have scope Peers: a rank keeps its parts in one memory",
            lambda checkpoint: sum(one.scope == "Peers" for one in checkpoint.tiers) <= 1,
            "self.tiers.filter(tier, tier.scope == 'Peers').size() <= 1",
            ("tiers", "scope"),
        ),
    )

    fallback_after: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of consecutive restarts from one restore point without a further step after which the next older step is
    used. If no rank reports steps, an attempt under 10 minutes without a newer checkpoint counts, and at least two are
    needed."""
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=4)]
    """Storage tiers. The newest step that every rank can load is used; for the same step, a Member or Peers tier is
    preferred."""
