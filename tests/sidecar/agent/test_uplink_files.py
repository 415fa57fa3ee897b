"""What the sidecar reads before each dial may change: URL and address of the hub, and the authorities to trust."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from tests import ipv6
from tests.sidecar.agent.tls_hubs import NAME, authority, connected, hub, replace, said, sidecar

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = "no-such-name.invalid"


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"])
async def test_without_a_usable_authority_nothing_is_dialled_until_the_file_has_one(directory: Path, text: str) -> None:
    ca = authority()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as above, sidecar(directory, above.url, text) as here:
        await said(here, "ca.crt has no certificate of an authority to trust")
        assert above.asked == 0
        replace(directory / "ca.crt", ca.pem)
        await connected(above)


async def test_a_rotated_authority_is_trusted_without_a_restart(directory: Path) -> None:
    old, new = authority(), authority()
    folder = directory / "new"
    folder.mkdir()
    port = 0
    async with hub(old.context(directory, x509.DNSName(NAME))) as above:
        port = urlsplit(above.url).port or 0
        async with sidecar(directory, above.url, old.pem) as here:
            await connected(above)
            await above.stop()
            async with hub(new.context(folder, x509.DNSName(NAME)), port=port) as rotated:
                await said(here, "certificate verify failed")
                assert rotated.asked == 0
                replace(directory / "ca.crt", new.pem)
                await connected(rotated)


async def test_the_address_is_dialled_without_a_name_server(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(UNKNOWN))
    async with (
        hub(context, UNKNOWN) as above,
        sidecar(directory, above.url, ca.pem, "127.0.0.1"),
    ):
        await connected(above)


@ipv6.needed
async def test_addresses_of_ipv6_are_dialled_and_followed(directory: Path) -> None:
    """The Service's address is a bare one in a file, the leader's is in a URL, in brackets."""
    ca = authority()
    context = ca.context(directory, x509.DNSName(UNKNOWN))
    async with (
        hub(context, UNKNOWN, address="::1") as standby,
        hub(context, "[::1]", address="::1") as leader,
    ):
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem, "::1"):
            await connected(leader)
            assert (standby.asked, leader.asked) == (1, 1)


@pytest.mark.parametrize("address", ["127.0.0.9", "::1", "nonsense", "127.0.0.1:80", ""])
async def test_a_wrong_address_costs_nothing_but_a_dial(directory: Path, address: str) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(NAME))
    async with hub(context) as above, sidecar(directory, above.url, ca.pem, address):
        await connected(above)
        assert above.asked == 1


async def test_an_impostor_at_the_address_never_sees_the_token(directory: Path) -> None:
    ca, other = authority(), authority()
    folder = directory / "other"
    folder.mkdir()
    async with hub(ca.context(directory, x509.DNSName(NAME))) as above:
        port = urlsplit(above.url).port or 0
        impostor = hub(other.context(folder, x509.DNSName(NAME)), port=port, address="127.0.0.9")
        async with impostor as there, sidecar(directory, above.url, ca.pem, "127.0.0.9"):
            await connected(above)
            assert there.asked == 0


async def test_the_address_of_a_standby_leads_to_the_leader(directory: Path) -> None:
    ca = authority()
    context = ca.context(directory, x509.DNSName(UNKNOWN))
    async with hub(context, UNKNOWN) as standby, hub(context, "127.0.0.1") as leader:
        standby.refusal = 503, {"Gang-Leader": leader.url}
        async with sidecar(directory, standby.url, ca.pem, "127.0.0.1"):
            await connected(leader)
            assert (standby.asked, leader.asked) == (1, 1)


async def test_another_controller_is_dialled_by_its_own_name_when_the_files_say_so(directory: Path) -> None:
    old, new = authority(), authority()
    folder = directory / "new"
    folder.mkdir()
    async with (
        hub(old.context(directory, x509.DNSName(NAME))) as first,
        hub(new.context(folder, x509.DNSName(UNKNOWN)), UNKNOWN, address="127.0.0.9") as second,
        sidecar(directory, first.url, old.pem, "127.0.0.1") as here,
    ):
        await connected(first)
        replace(directory / "ca.crt", new.pem)
        replace(directory / "address", "127.0.0.9")
        await first.stop()  # What its leader does when the gang is another's.
        await said(here, "there is no connection")
        assert second.asked == 0, "it has another port, and the certificate another name"
        replace(directory / "url", second.url)
        await connected(second)
