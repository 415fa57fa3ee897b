"""The sidecar over TLS: which certificates and names it trusts, and how it finds the leader."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from tests.sidecar.agent.sidecars import REPORT, TOKEN, supervisor, until
from tests.sidecar.agent.tls_hubs import NAME, authority, connected, hub, said, sidecar

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_sidecar_checks_the_name_in_the_url_and_not_the_address(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName("gangctl.svc"))
    async with hub(context, "gangctl.svc") as above, sidecar(directory, above.url, ca.pem, "127.0.0.1") as here:
        await connected(above)
        async with supervisor(directory, REPORT):
            await until(lambda: above.reports)
        assert above.tokens == {f"Bearer {TOKEN}"}
        assert here.resident_kilobytes() < 29_000


@pytest.mark.parametrize("wrong", ["authority", "name", "none"])
async def test_a_controller_that_isnt_ours_never_sees_the_token(directory: Path, wrong: str) -> None:
    ca = authority()
    trusted = {"authority": authority().pem, "name": ca.pem, "none": ""}[wrong]
    name = x509.DNSName("another.svc" if wrong == "name" else NAME)
    async with hub(ca.context(directory, name)) as above, sidecar(directory, above.url, trusted) as here:
        await said(here, "there is no connection to the controller")
        assert "certificate" in here.log().lower()
        assert above.asked == 0


async def test_the_sidecar_trusts_several_certificates_during_a_rotation(directory: Path) -> None:
    old, new = authority(), authority()
    context = new.context(directory, x509.DNSName(NAME))
    async with hub(context) as above, sidecar(directory, above.url, old.pem + new.pem):
        await connected(above)


async def test_the_sidecar_dials_a_standbys_leader_at_once_by_the_same_name(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context) as standby, hub(context, "127.0.0.1") as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem):
            await connected(leader)
            assert (standby.asked, leader.asked) == (1, 1)


async def test_a_leader_with_another_name_in_its_certificate_never_sees_the_token(directory: Path) -> None:
    ca = authority()
    other = directory / "other"
    other.mkdir()
    impostor = ca.context(other, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby, hub(impostor, "127.0.0.1") as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem):
            await until(lambda: standby.asked >= 3)
            assert leader.asked == 0


async def test_the_sidecar_returns_to_the_configured_address_when_the_leader_fails(directory: Path) -> None:
    ca = authority()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby:
        standby.refusal = 503, {"Gang-Leader": "wss://127.0.0.1:9/v1/connect"}
        async with sidecar(directory, standby.url, ca.pem):
            await until(lambda: standby.asked >= 2)
            standby.refusal = None
            await connected(standby)


async def test_two_standbys_that_name_each_other_are_dialled_no_faster(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context) as one, hub(context) as other:
        one.refusal = 503, {"Gang-Leader": other.url}
        other.refusal = 503, {"Gang-Leader": one.url}
        async with sidecar(directory, one.url, ca.pem) as here:
            await until(lambda: one.asked >= 4)
            assert other.asked in {one.asked - 1, one.asked}
            assert "answered 503: this one says no" in here.log()
            other.refusal = None
            await connected(other)


@pytest.mark.parametrize(
    "leader", ["ws://127.0.0.1:{port}/v1/connect", "https://127.0.0.1:{port}/", "wss://[", "nonsense"]
)
async def test_a_leader_without_tls_is_not_dialled(directory: Path, leader: str) -> None:
    ca = authority()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as standby, hub(None) as plain:
        port = plain.url.rpartition(":")[2].partition("/")[0]
        standby.refusal = 503, {"Gang-Leader": leader.format(port=port)}
        async with sidecar(directory, standby.url, ca.pem) as here:
            await until(lambda: standby.asked >= 2)
            await said(here, "there is no connection to the controller")
            assert plain.asked == 0
            standby.refusal = None
            await connected(standby)


async def test_a_sidecar_without_tls_dials_a_leader_without_tls(directory: Path) -> None:
    async with hub(None) as standby, hub(None) as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url):
            await connected(leader)


@pytest.mark.parametrize("status", [403, 500])
async def test_only_503_names_a_leader(directory: Path, status: int) -> None:
    async with hub(None) as first, hub(None) as second:
        first.refusal = status, {"Gang-Leader": second.url}
        async with sidecar(directory, first.url) as here:
            await said(here, f"answered {status}")
            await until(lambda: first.asked >= 2)
            assert second.asked == 0


async def test_every_uid_may_connect_to_the_sidecars_sockets(directory: Path) -> None:
    """The worker's container may have another uid; the second sidecar finds the sockets of the first."""
    directory.chmod(0o777)  # noqa: ASYNC240 - a test has time
    for round_ in (1, 2):
        async with sidecar(directory, "ws://127.0.0.1:9/") as here:
            await until(lambda log=here.log, count=round_: log().count("the sidecar listens") == count)  # type: ignore[misc]
            for name in ("supervisor.sock", "gang.sock"):
                assert (directory / name).stat().st_mode & 0o777 == 0o666
            async with supervisor(directory, REPORT):
                pass
