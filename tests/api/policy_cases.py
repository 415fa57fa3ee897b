"""Bad manifests whose mistake is in a policy: failure, success, recovery, placement, scheduling."""

from __future__ import annotations

from tests.api.bad_manifest import Bad, Check
from tests.api.manifests import manifest, role, with_rules

_CODES = {"operator": "In", "values": [1]}

BAD_POLICIES = (
    Bad(
        "pod groups with spares in one of two roles",
        manifest(roles=[role("a", spares=1), role("b")], gangScheduling={"type": "PodGroup"}),
        "spec.gangScheduling.type",
        "only in a gang with one role",
        Check.CEL,
        "only in a gang with one role",
    ),
    Bad(
        "a Job's FailIndex",
        with_rules({"action": "FailIndex", "onExitCodes": _CODES}),
        "spec.podFailurePolicy.rules[0].action",
        "run together or not at all",
        Check.CEL,
        "run together or not at all",
    ),
    Bad(
        "a rule that matches nothing",
        with_rules({"action": "Count", "roles": ["worker"]}),
        "spec.podFailurePolicy.rules[0]",
        "at least one of",
        Check.CEL,
        "at least one of",
    ),
    Bad(
        "In with 0",
        with_rules({"action": "Count", "onExitCodes": {"operator": "In", "values": [0, 1]}}),
        "spec.podFailurePolicy.rules[0].onExitCodes.values",
        "must not contain 0",
        Check.CEL,
        "must not contain 0",
    ),
    Bad(
        "unsorted exit codes",
        with_rules({"action": "Count", "onExitCodes": {"operator": "In", "values": [2, 1]}}),
        "spec.podFailurePolicy.rules[0].onExitCodes.values",
        "sorted",
        Check.CEL,
        "sorted",
    ),
    Bad(
        "an exit code twice",
        with_rules({"action": "Count", "onExitCodes": {"operator": "In", "values": [1, 1]}}),
        "spec.podFailurePolicy.rules[0].onExitCodes.values",
        "without duplicates",
        Check.LIST_MAP,
    ),
    Bad(
        "a pattern of the log that doesn't compile",
        with_rules({"action": "Count", "onLog": {"pattern": "Xid ("}}),
        "spec.podFailurePolicy.rules[0].onLog.pattern",
        "must be a Python regular expression",
        Check.GANGCTL,
    ),
    Bad(
        "a pattern of the log that is too long",
        with_rules({"action": "Count", "onLog": {"pattern": "x" * 257}}),
        "spec.podFailurePolicy.rules[0].onLog.pattern",
        "1 to 256 characters",
        Check.SCHEMA,
    ),
    Bad(
        "too many patterns of the log",
        with_rules(*({"action": "Count", "onLog": {"pattern": f"Xid {at}"}} for at in range(9))),
        "spec.podFailurePolicy.rules",
        "at most 8 rules may have onLog",
        Check.CEL,
        "at most 8 rules may have onLog",
    ),
    Bad(
        "two rules of one name",
        with_rules(
            {"name": "a", "action": "Count", "onSignals": ["SIGHUP"]},
            {"name": "a", "action": "Count", "onSignals": ["SIGINT"]},
        ),
        "spec.podFailurePolicy.rules",
        "same name",
        Check.CEL,
        "same name",
    ),
    Bad(
        "a rule for no role",
        with_rules({"action": "Count", "roles": ["x"], "onSignals": ["SIGHUP"]}),
        "spec.podFailurePolicy.rules",
        "must name roles",
        Check.CEL,
        "must name roles",
    ),
    Bad(
        "success of no role",
        manifest(successPolicy={"type": "Roles", "roles": ["x"]}),
        "spec.successPolicy.roles",
        "must name roles",
        Check.CEL,
        "must name roles",
    ),
    Bad(
        "a field of another kind",
        manifest(successPolicy={"type": "Never", "roles": ["worker"]}),
        "spec.successPolicy.roles",
        "type Roles only",
        Check.CEL,
        "type Roles only",
    ),
    Bad(
        "a field of another kind than the default",
        manifest(successPolicy={"roles": ["worker"]}),
        "spec.successPolicy.roles",
        "type Roles only",
        Check.CEL,
        "type Roles only",
    ),
    Bad(
        "a kind without its field",
        manifest(successPolicy={"type": "Roles"}),
        "spec.successPolicy.roles",
        "found nothing",
        Check.CEL,
    ),
    Bad(
        "a budget for nothing",
        manifest(recovery={"budget": {"type": "Unlimited", "maxRestarts": 3}}),
        "spec.recovery.budget.maxRestarts",
        "type Windowed only",
        Check.CEL,
        "type Windowed only",
    ),
    Bad(
        "a placement of none",
        manifest(placement={"mode": "Required"}),
        "spec.placement.mode",
        "strategy Pack or Spread only",
        Check.CEL,
        "strategy Pack or Spread only",
    ),
    Bad(
        "a timeout for no hold",
        manifest(recovery={"holdTimeoutSeconds": 1}),
        "spec.recovery.holdTimeoutSeconds",
        "onExhausted: Hold",
        Check.CEL,
        "onExhausted: Hold",
    ),
)
