"""Where checkpoints are, and when an older one is tried."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Constraint, Model, TierName


class DirectorySource(Model):
    """A directory is looked at: each step is a folder in it, and the layout says what marks a step complete."""

    constraints = (
        Constraint(
            "layout Pattern needs a pattern (such as step-{step}) and complete (the file that marks a step complete)",
            lambda source: source.layout != "Pattern" or bool(source.pattern and source.complete),
            "self.layout != 'Pattern' || (has(self.pattern) && has(self.complete))",
            ("layout", "pattern", "complete"),
        ),
        Constraint(
            "pattern and complete belong to layout Pattern; the other layouts know their own",
            lambda source: source.layout == "Pattern" or (source.pattern is None and source.complete is None),
            "self.layout == 'Pattern' || (!has(self.pattern) && !has(self.complete))",
            ("layout", "pattern", "complete"),
        ),
    )

    type: Literal["Directory"]
    directory: Annotated[str, Field(min_length=1, max_length=1024)]
    """The directory that holds the steps, as the worker container sees it."""
    layout: Literal["TorchDCP", "HuggingFace", "Megatron", "Orbax", "Pattern"]
    """How steps are named and marked complete. Choose the library that writes the checkpoints, or Pattern."""
    pattern: Annotated[str, Field(pattern=r"^[^/{}]*\{step\}[^/{}]*$", max_length=255)] | None = None
    """Name of a step's folder with {step} for its number, such as step-{step}. Only with layout Pattern."""
    complete: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Name of the file in a step's folder whose presence marks the step complete, such as DONE: written last. Only with
    layout Pattern."""


class ApiSource(Model):
    """Each rank registers its checkpoints at the sidecar's API when it has completed them."""

    type: Literal["API"]


class Tier(Model):
    """One place that checkpoints are kept in."""

    constraints = (
        Constraint(
            "a tier with scope Member needs source type API: only the member's own framework knows what it holds",
            lambda tier: tier.scope != "Member" or isinstance(tier.source, ApiSource),
            "self.scope != 'Member' || self.source.type == 'API'",
            ("source.type", "scope"),
        ),
    )

    name: TierName
    """Name of the tier, unique in the gang: 1 to 15 lower-case letters, digits and dashes, a letter first. The
    framework names it when it registers a checkpoint."""
    scope: Literal["Shared", "Member"]
    """Who can read it. Shared: every member (a network file system, an object store). Member: only the member that
    wrote it (memory, a local disk); it is lost with the pod."""
    source: Annotated[DirectorySource | ApiSource, Field(discriminator="type")]
    """How gangctl knows which steps are complete."""


class Checkpoint(Model):
    """Where checkpoints are and when an older one is tried."""

    constraints = (
        Constraint(
            "two tiers have the same name",
            lambda checkpoint: len({one.name for one in checkpoint.tiers}) == len(checkpoint.tiers),
            "",
            ("tiers",),
        ),
    )

    fallback_after: Annotated[int, Field(ge=1, le=100)] = 3
    """After how many restarts in a row from the same restore point, without a step beyond it, the next older one is
    tried. A corrupt newest checkpoint can't stop the gang for ever then."""
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=4)]
    """From 1 to 4 places. The newest step that every rank can load wins, wherever it is; of equal steps a Member tier
    is taken first, since it is nearer."""
