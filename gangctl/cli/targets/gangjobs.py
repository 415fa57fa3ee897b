"""GangJobs on the API server, and what it means for the user when one isn't there."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Any, Final

from gangctl.api.changes import SpecChanges
from gangctl.api.gangjob import GangJob, Spec
from gangctl.api.version import API_VERSION, PLURAL
from gangctl.cli.command_name import command_name
from gangctl.cli.errors import UserError
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.client import MERGE_PATCH, Client, NotFound
from gangctl.cluster.kube.watch.projections import GANGS, KubeGang

LIST_SECONDS: Final = 60.0
_API: Final = f"/apis/{API_VERSION}"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
INSTALL: Final = (
    "the cluster doesn't know GangJobs: install the chart (charts/gangctl), or only their definition with "
    "gangctl crd | kubectl apply --server-side -f -"
)


class GangJobs:
    """Those of one namespace, or of all."""

    def __init__(self, client: Client, namespace: str, *, everywhere: bool) -> None:
        """Raises UserError if it can't be the name of a namespace."""
        self._client = client
        self.namespace = checked(namespace, "namespace")
        self._everywhere = everywhere

    @property
    def folder(self) -> str:
        """Path of the list."""
        return f"{_API}/{PLURAL}" if self._everywhere else f"{_API}/namespaces/{self.namespace}/{PLURAL}"

    async def all(self) -> list[KubeGang]:
        """All of them, by namespace and name; also those that this release can't read.

        Raises:
            UserError: there is no such namespace, or no GangJobs at all.
            ClusterError: the API server doesn't say.
        """
        try:
            page = GANGS.page(await self._client.request("GET", self.folder, timeout=LIST_SECONDS))
        except NotFound:
            raise UserError(INSTALL) from None
        if not page.items and not self._everywhere:
            await self._check_namespace()
        return sorted(page.items, key=lambda one: (one.namespace, one.name))

    async def documents(self) -> list[dict[str, Any]]:
        """All of them as the API server has them."""
        try:
            found = json.loads(await self._client.request("GET", self.folder, timeout=LIST_SECONDS))
        except NotFound:
            raise UserError(INSTALL) from None
        return [{"apiVersion": API_VERSION, "kind": "GangJob"} | _shown(one) for one in found.get("items") or ()]

    async def document(self, name: str) -> dict[str, Any]:
        """One of them as the API server has it.

        Raises:
            UserError: there is none of this name; near names are suggested.
            ClusterError: the API server doesn't say.
        """
        return _shown(json.loads(await self._request("GET", name)))

    async def read(self, name: str) -> GangJob:
        """One of them.

        Raises:
            UserError: as ``document``; or this release can't read it.
            ClusterError: the API server doesn't say.
        """
        return self._parsed(name, await self._request("GET", name))

    async def change(self, name: str, spec: SpecChanges) -> GangJob:
        """Set fields of the spec, whatever else is written meanwhile.

        Raises:
            UserError: as ``read``.
            ClusterError: the API server refuses it, in its own words.
        """
        fields = {Spec.model_fields[field].alias: value for field, value in spec.items()}
        return self._parsed(name, await self._request("PATCH", name, json.dumps({"spec": fields}).encode()))

    async def _request(self, method: str, name: str, body: bytes | None = None) -> bytes:
        path = f"{_API}/namespaces/{self.namespace}/{PLURAL}/{checked(name, 'gang')}"
        try:
            return await self._client.request(method, path, body=body, content_type=MERGE_PATCH)
        except NotFound:
            raise UserError(await self._missing(name)) from None

    def _parsed(self, name: str, body: bytes) -> GangJob:
        found = GANGS.item(body)
        if found is None or found.job is None:
            why = "" if found is None else found.unreadable
            raise UserError(f"{unreadable(name, why)}; {command_name()} status {name} -o yaml shows it")
        return found.job

    async def _missing(self, name: str) -> str:
        """Why there is no such gang, as far as this user may see."""
        try:
            known = [one.name for one in await self.all()]
        except ClusterError:
            return f"there is no gang {name!r} in namespace {self.namespace}"
        near = get_close_matches(name, known, 3)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"there are {', '.join(known[:10])}"
            if known
            else "there are no gangs in it; status -A shows those of all namespaces"
        )
        return f"there is no gang {name!r} in namespace {self.namespace}: {hint}"

    async def _check_namespace(self) -> None:
        try:
            await self._client.request("GET", f"/api/v1/namespaces/{self.namespace}")
        except NotFound:
            raise UserError(f"there is no namespace {self.namespace!r}; status -A shows gangs of all") from None
        except ClusterError:
            return  # most users may not look at namespaces


def unreadable(name: str, why: str) -> str:
    """What is said of a gang that another release has written."""
    return f"gang {name} can't be read by this release of gangctl ({why or 'it is no GangJob'})"


def checked(name: str, what: str) -> str:
    """The name, as nothing else may come into a path.

    Raises:
        UserError: it can't be one.
    """
    if not _LABEL.fullmatch(name):
        raise UserError(f"{name!r:.80} is no name of a {what}: lower case letters, digits and dashes, at most 63")
    return name


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Without what nobody wants to read; kubectl leaves it out too."""
    metadata = {key: value for key, value in document.get("metadata", {}).items() if key != "managedFields"}
    return {**document, "metadata": metadata}
