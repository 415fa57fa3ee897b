"""Say what to do about a pod that can't start."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Correction(StrEnum):
    """Change that makes a start possible which can't work as it is."""

    TEMPLATE = "correct image, command or securityContext in the template"
    SHORTEN = (
        "shorten env, args or command in the template; enableServiceLinks: false leaves out the variables of all "
        "Services"
    )
    REMOUNT = (
        "its node may have mounted the kubelet's folder noexec, and gangctl's supervisor lies there, in an emptyDir: "
        "mount it without noexec"
    )


REASON_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ImagePullBackOff": "check the image's name, its registry and imagePullSecrets",
        "ErrImageNeverPull": "load the image onto the node, or change imagePullPolicy",
        "CreateContainerConfigError": "create what the template refers to, or correct the template",
    }
)
REJECTION_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "UnexpectedAdmissionError": "check the device plugin on that node, and its log",
        "OutOf": "compare the node's allocatable with what its pods request: kubectl describe node",
        "TopologyAffinityError": "no NUMA node had all that it asks for: check the kubelet's topologyManagerPolicy",
        "NodeAffinity": "the node's labels no longer match the template",
    }
)
"""Reasons of a kubelet that doesn't take a pod which the scheduler has given it, by how they begin -> what to check.

OutOf is followed by a resource: OutOfcpu, OutOfnvidia.com/gpu. Source: Kubernetes, pkg/kubelet/lifecycle and cm.
"""
SAME: Final[Mapping[str, str]] = MappingProxyType(
    {"ErrImagePull": "ImagePullBackOff", "CrashLoopBackOff": "its containers end again and again"}
)
"""Kubernetes' words that alternate while the same is wrong, or that say little."""
