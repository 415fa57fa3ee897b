"""Bundles of certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gangctl.cluster.kube.certificates import CertificateBundle, rotate_bundle

NAMES = ("gangctl.gangctl-system.svc", "10.0.0.7")


def fresh(life: timedelta = timedelta()) -> CertificateBundle:
    """A bundle created ``life`` ago, on the clock of this machine, which the handshake uses."""
    return rotate_bundle(CertificateBundle(), NAMES, datetime.now(UTC) - life)[0]
