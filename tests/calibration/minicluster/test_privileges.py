"""Without root or iproute2 the reason is said, with what to do about it."""

from __future__ import annotations

import pytest

from simulator.calibration.minicluster import lifecycle, privileges
from tests.calibration.minicluster.conftest import describe


def test_without_iproute2_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setattr(privileges.shutil, "which", lambda tool: None)
    assert "ip and tc not found: install iproute2" in str(privileges.reason_against())


def test_without_root_nothing_is_attempted(monkeypatch):
    monkeypatch.setattr(privileges.shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(privileges, "_has_capabilities", lambda *numbers: False)
    with pytest.raises(privileges.NotPossible, match="needs root"):
        lifecycle.up("refused", describe(2))


def test_elsewhere_than_on_linux_it_says_so(monkeypatch):
    monkeypatch.setattr(privileges.sys, "platform", "darwin")
    assert "this is darwin" in str(privileges.reason_against())
