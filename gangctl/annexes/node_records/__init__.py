"""Record the faults on each node over all gangs, and compare nodes by them: ``--node-records`` of the controller.

New pods rather avoid the worst nodes; `gangctl gate` compares nodes with a change to nodes without it. Decision 71 has
the reasons.
"""

from gangctl.cli.registry import VerbRegistration, WhyRegistration
from gangctl.controller.companions import CompanionRegistration

REGISTERED = (
    CompanionRegistration(
        "node-records",
        "whether the faults on each node are recorded over all gangs, and new pods prefer other nodes than the worst",
        "gangctl.annexes.node_records.companion:NodeRecords",
    ),
    CompanionRegistration(
        "node-condition",
        "in how many namespaces a node must have failed, by those records, to get the condition GangctlSuspected",
        "gangctl.annexes.node_records.hand_over:condition_companion",
        ("false", "1", "2", "3"),
    ),
    CompanionRegistration(
        "maintenance-requests",
        "the same for a MaintenanceRequest, by which NVSentinel cordons and drains the node",
        "gangctl.annexes.node_records.hand_over:request_companion",
        ("false", "1", "2", "3"),
    ),
    VerbRegistration(
        "nodes",
        "Show the faults that gangs met on each node, the worst first, as the controller has recorded them",
        "gangctl.annexes.node_records.nodes_verb",
        before="trace",
    ),
    VerbRegistration(
        "gate",
        "Compare the faults of nodes with a change to those of nodes without it: pass, fail or not enough data",
        "gangctl.annexes.node_records.gate_verb",
        before="crd",
    ),
    WhyRegistration("node", "gangctl.annexes.node_records.node_why:run"),
)
