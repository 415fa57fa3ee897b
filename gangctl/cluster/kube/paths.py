"""URL paths of objects on the API server."""

from typing import Final

from gangctl.api.names import API_VERSION, PLURAL

NODES: Final = "/api/v1/nodes"
SCHEDULING: Final = "scheduling.k8s.io"


def gangs_path(namespace: str = "") -> str:
    """The path of the GangJobs of a namespace, or of all namespaces."""
    return collection(f"/apis/{API_VERSION}", namespace, PLURAL)


def gang_path(namespace: str, name: str) -> str:
    """The path of a GangJob; append ``/status`` for its status."""
    return f"{gangs_path(namespace)}/{name}"


def pods(namespace: str = "") -> str:
    """Pods of a namespace, or of all namespaces."""
    return collection("/api/v1", namespace, "pods")


def pod(namespace: str, name: str) -> str:
    return f"{pods(namespace)}/{name}"


def eviction(namespace: str, name: str) -> str:
    """Where the eviction of a pod is requested."""
    return f"{pod(namespace, name)}/eviction"


def service(namespace: str, name: str) -> str:
    return f"{collection('/api/v1', namespace, 'services')}/{name}"


def config_map(namespace: str, name: str = "") -> str:
    """One ConfigMap, or where those of the namespace are created."""
    return f"{collection('/api/v1', namespace, 'configmaps')}{f'/{name}' if name else ''}"


def pod_disruption_budgets(namespace: str) -> str:
    return collection("/apis/policy/v1", namespace, "poddisruptionbudgets")


def pod_groups(version: str, namespace: str) -> str:
    """PodGroups of a namespace, in a version of their API."""
    return collection(f"/apis/{SCHEDULING}/{version}", namespace, "podgroups")


def events(namespace: str) -> str:
    return collection("/apis/events.k8s.io/v1", namespace, "events")


def collection(group: str, namespace: str, plural: str) -> str:
    """Objects of a namespace, or of all namespaces. ``group``: ``/api/v1``, or ``/apis/`` and group and version."""
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
