"""Read and write GangJobs on the API server, with messages for users if one does not exist.

Each call may raise UserError (it doesn't exist, or this release can't read it) or ClusterError (the request failed).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from gangctl.api.gangjob import GangJob, Spec, controllers
from gangctl.api.model import Model
from gangctl.api.names import API_VERSION, KIND, PLURAL
from gangctl.api.recovery import SpecChanges
from gangctl.cli.arguments import LABEL
from gangctl.cli.errors import UserError, hint
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import Client, NotFound, read_object
from gangctl.cluster.kube.decoding import Decoder
from gangctl.cluster.kube.projections import GANGS, KubeGang
from gangctl.cluster.kube.reflector import list_all

V = TypeVar("V")
_API: Final = f"/apis/{API_VERSION}"
_EXAMPLES: Final = ("jobset/NAME", "trainjob/NAME")
KINDS: Final = {
    **dict.fromkeys(("gangjob", "gangjobs", "gj"), KIND),
    **dict.fromkeys(("jobset", "jobsets", "trainjob", "trainjobs"), "JobSet"),
}
"""What a user may write before a slash -> the kind of the object that a GangJob is made from. The JobSet of a TrainJob
has its name."""
NOT_OURS: Final = "its spec.managedBy isn't gangctl.io/jobset-controller, or the controller runs without --jobsets"
_INSTALL: Final = (
    "the cluster has no CustomResourceDefinition for GangJobs: install the chart (charts/gangctl), or only the "
    "definition with gangctl crd | kubectl apply --server-side -f -"
)


class GangJobs:
    """GangJobs of one namespace, or of all."""

    def __init__(self, client: Client, namespace: str, *, everywhere: bool) -> None:
        """Raise UserError if the name of the namespace is invalid."""
        self._client = client
        self.namespace = checked_name(namespace, "namespace")
        self._in_namespace = f"{_API}/namespaces/{self.namespace}/{PLURAL}"
        self._everywhere = everywhere

    @property
    def folder(self) -> str:
        """Path of the list."""
        return f"{_API}/{PLURAL}" if self._everywhere else self._in_namespace

    async def all(self) -> list[KubeGang]:
        """All GangJobs, sorted by namespace and name, including those that this release can't read."""
        found = await self._list(GANGS)
        if not found and not self._everywhere:
            await self._check_namespace()
        return sorted(found, key=lambda one: (one.namespace, one.name))

    async def documents(self) -> Sequence[dict[str, Any]]:
        """All GangJobs as stored by the API server."""
        return [{"apiVersion": API_VERSION, "kind": KIND} | one for one in await self._list(_DOCUMENTS)]

    async def document(self, name: str) -> dict[str, Any]:
        """One GangJob as stored by the API server."""
        return _shown(await self._get(name))

    async def read(self, name: str) -> GangJob:
        return self._parsed(name, await self._request("GET", name))

    async def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Set fields of the spec with a merge patch, independent of other writers."""
        fields = {Spec.model_fields[field].alias: _plain(value) for field, value in spec.items()}
        return self._parsed(name, await self._request("PATCH", name, {"spec": fields}))

    async def delete(self, name: str, uid: str) -> None:
        """Delete the object with this UID, as kubectl does by default: the garbage collector deletes its pods."""
        try:
            await self._client.delete(self._path(name), uid, propagationPolicy="Background")
        except NotFound:
            raise UserError(await self._missing(name)) from None

    async def create(self, document: Mapping[str, Any]) -> None:
        await self._client.request("POST", self._in_namespace, body=document)

    async def uid(self, name: str) -> str:
        """The UID of the object of this name; empty if there is none."""
        try:
            return str((await self._client.get(self._path(name)))["metadata"]["uid"])
        except NotFound:
            return ""

    async def made_from(self, named: str) -> str:
        """The name of the GangJob that was made from an object, such as jobset/llama: of several, the last."""
        kind, _, name = named.partition("/")
        known = KINDS.get(kind.lower())
        if known is None:
            raise UserError(f"{kind} is no kind that gangctl runs: name a gang, or {', '.join(_EXAMPLES)}")
        if known == KIND:
            return name
        found = [
            one["metadata"] for one in await self._list(_DOCUMENTS) if (known, name) in controllers(one["metadata"])
        ]
        if not found:
            raise UserError(
                f"no gang runs {named} in namespace {self.namespace}: {NOT_OURS}; "
                f"kubectl describe {known.lower()} {name} has its conditions"
            )
        return str(max(found, key=lambda one: str(one.get("creationTimestamp", "")))["name"])

    async def refuse_owned(self, name: str) -> None:
        """Refuse to end a gang that another object would have again."""
        for kind, owner in controllers((await self._get(name)).get("metadata", {})):
            raise UserError(
                f"gang {name} follows {kind} {owner}, which would make it again: use kubectl delete {kind.lower()} "
                f"{owner}, or set its spec.suspend; if a TrainJob made it, do so with the TrainJob"
            )

    async def _list(self, decoder: Decoder[V]) -> tuple[V, ...]:
        try:
            return (await list_all(self._client, self.folder, decoder)).items
        except NotFound:
            raise UserError(_INSTALL) from None

    def _path(self, name: str) -> str:
        return f"{self._in_namespace}/{checked_name(name, 'gang')}"

    async def _get(self, name: str) -> dict[str, Any]:
        return read_object(await self._request("GET", name), f"GET {self._path(name)}")

    async def _request(self, method: str, name: str, body: Mapping[str, Any] | None = None) -> bytes:
        try:
            return await self._client.request(method, self._path(name), body=body)
        except NotFound:
            raise UserError(await self._missing(name)) from None

    def _parsed(self, name: str, body: bytes) -> GangJob:
        found = GANGS.item(body)
        if found is None or found.job is None:
            why = "" if found is None else found.unreadable
            raise UserError(f"{unreadable_text(name, why)}; gangctl status {name} -o yaml shows it")
        return found.job

    async def _missing(self, name: str) -> str:
        """The message that there is no such gang, with similar names if this user may list gangs."""
        try:
            names = [one.name for one in await self.all()]
        except ClusterError:
            return f"there is no gang {name!r} in namespace {self.namespace}"
        empty = "it has no gangs; gangctl status -A shows those of all namespaces"
        return f"there is no gang {name!r} in namespace {self.namespace}: {hint(name, names, empty)}"

    async def _check_namespace(self) -> None:
        try:
            await self._client.request("GET", f"/api/v1/namespaces/{self.namespace}")
        except NotFound:
            raise UserError(
                f"there is no namespace {self.namespace!r}; gangctl status -A shows all namespaces"
            ) from None
        except ClusterError:
            return  # most users may not read namespaces


def unreadable_text(name: str, why: str) -> str:
    """The message for a gang that another release wrote."""
    return f"this release of gangctl can't read gang {name} ({why or 'not a GangJob'})"


def checked_name(name: str, what: str) -> str:
    """The name, checked because it becomes part of a path; UserError if it is invalid."""
    if not LABEL.fullmatch(name):
        raise UserError(
            f"{name!r:.80} is not a valid name of a {what}: use at most 63 lower-case letters, digits and dashes"
        )
    return name


def _plain(value: object) -> object:
    """The value as JSON. A field that is absent is null: the patch then removes what was there."""
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, Model) else value


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """The object without managedFields, as kubectl prints it."""
    metadata = {key: value for key, value in document.get("metadata", {}).items() if key != "managedFields"}
    return {**document, "metadata": metadata}


_DOCUMENTS: Final = Decoder(dict[str, Any], _shown)
