"""Convert what other tools submit into GangJobs: `gangctl convert`."""

from gangctl.cli.registry import VerbRegistration

REGISTERED = (
    VerbRegistration(
        "convert",
        "Make a GangJob of a Job, JobSet, PyTorchJob or TrainJob, a torchrun line or an sbatch script",
        "gangctl.annexes.convert.verb",
        before="crd",
    ),
)
