"""State files say what is up, refuse to share a name, and survive a round trip."""

from __future__ import annotations

import pytest

from simulator.calibration.minicluster import state
from simulator.calibration.minicluster.wiring import Host


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTERSIM_RUN_DIR", str(tmp_path))


def example(name: str = "one") -> state.Minicluster:
    hosts = (Host("n0", "10.200.0.1", 1e6, "cpu"), Host("n1", "10.200.0.2", 2e6))
    return state.Minicluster(name, "some.yaml", hosts, ("switch",), "fair", 9000)


def test_what_is_written_is_read_back():
    assert state.claim(example())
    assert state.read("one") == example()
    assert state.names() == ["one"]


def test_a_name_is_claimed_only_once():
    assert state.claim(example())
    assert not state.claim(example())
    state.remove("one")
    assert state.claim(example())


def test_an_unknown_name_lists_those_that_are_up():
    state.claim(example("b"))
    state.claim(example("a"))
    with pytest.raises(state.UnknownMinicluster, match=r"c is not up \(up: a, b\)"):
        state.read("c")


@pytest.mark.parametrize("name", ["", "../x", "A", "a.b", "-a", "a" * 40, "a/b"])
def test_names_that_could_leave_the_directory_or_mix_with_another_are_refused(name):
    with pytest.raises(ValueError, match="minicluster name"):
        state.check_name(name)


def test_the_prefix_of_one_name_never_matches_the_namespaces_of_another():
    assert not "clustersim.ab.n0".startswith(state.namespace_prefix("a"))
