"""Where checkpoints are stored, and when gangctl falls back to an older one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangctl.api.model import Constraint, Model, TierName


class DirectorySource(Model):
    """gangctl lists a directory: each step is a subdirectory or a file, and the layout tells which are complete."""

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
    """Path of the directory that holds the steps, as seen by the worker container."""
    layout: Literal["TorchDCP", "HuggingFace", "Lightning", "Megatron", "Orbax", "Pattern"]
    """How steps are named and marked complete. Select the library that writes the checkpoints, or Pattern."""
    pattern: Annotated[str, Field(pattern=r"^[^/{}]*\{step\}[^/{}]*$", max_length=255)] | None = None
    """Name of a step's subdirectory or file, with {step} in place of the number, such as step-{step}. A * is any text.
    Only with layout Pattern."""
    complete: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Name of the file whose presence in a step's subdirectory marks the step complete, such as DONE. The framework
    must write it last. Not set: each step is a file, which the framework must write under another name and rename. Only
    with layout Pattern."""


class ApiSource(Model):
    """Each rank registers a checkpoint through the sidecar's API when the checkpoint is complete."""

    type: Literal["API"]


class Tier(Model):
    """One storage tier for checkpoints."""

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
    """Name of the tier, unique in the gang: 1 to 15 lower-case letters, digits and dashes, starting with a letter. The
    framework passes this name when it registers a checkpoint."""
    scope: Literal["Shared", "Peers", "Member"]
    """Which members can read the tier. Shared: every member (a network file system, an object store). Member: only the
    member that wrote the checkpoint (memory, a local disk); its content is lost with the pod. Peers: the same, but
    members hold copies of each other's parts, and give them to a member that has lost its own (gangclient.memory)."""
    source: Annotated[DirectorySource | ApiSource, Field(discriminator="type")]
    """How gangctl finds out which steps are complete."""


class Checkpoint(Model):
    """Where checkpoints are stored, and when gangctl falls back to an older one."""

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
    """Number of consecutive restarts from the same restore point, without a step beyond it, after which gangctl tries
    the next older one. This keeps a corrupt newest checkpoint from blocking the gang forever. Where no rank reports
    steps, an attempt that ends within 10 minutes and leaves no newer checkpoint counts as one without a step; it takes
    two at least, and nothing but the step is given up."""
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1, max_length=4)]
    """Storage tiers: from 1 to 4. The newest step that every rank can load is used, whichever tier holds it. If two
    tiers hold the same step, a Member or Peers tier is preferred because it is nearer."""
