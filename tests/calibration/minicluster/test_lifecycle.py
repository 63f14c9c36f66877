"""A real minicluster goes up whole, carries its rates, and leaves nothing behind (root and iproute2
needed)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.calibration.minicluster import commands, lifecycle, state
from simulator.calibration.minicluster.flows import Flow, run_flows
from simulator.calibration.minicluster.namespaces import within
from tests.calibration.minicluster.conftest import describe, needs_namespaces

pytestmark = needs_namespaces


def test_up_and_down_leave_no_namespace_process_or_state(bring_up):
    before = commands.namespaces("")
    made = bring_up(describe(3))
    assert len(commands.namespaces(state.namespace_prefix(made.name))) == 4
    assert state.read(made.name) == made
    sleeper = subprocess.Popen(["ip", "netns", "exec", made.namespace("n1"), "sleep", "60"])
    assert lifecycle.down(made.name)
    assert sleeper.wait(5) == -signal.SIGTERM
    assert commands.namespaces("") == before
    assert state.names() == []
    assert not lifecycle.down(made.name)


def test_a_failure_half_way_up_leaves_nothing(bring_up, monkeypatch):
    def broken(port, mtu, shaper):
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle.shaping, "port_lines", broken)
    before = commands.namespaces("")
    with pytest.raises(KeyboardInterrupt):
        bring_up(describe(3))
    assert commands.namespaces("") == before
    assert state.names() == []


def test_after_a_crash_down_removes_what_was_left_even_without_its_state_file(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTERSIM_RUN_DIR", str(tmp_path))
    name = f"crash{os.getpid()}"
    script = (
        "import os, signal\n"
        "from simulator.calibration.minicluster import lifecycle\n"
        "from tests.calibration.minicluster.conftest import describe\n"
        "lifecycle.shaping.port_lines = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"lifecycle.up({name!r}, describe(3))\n"
    )
    root = str(Path(__file__).parents[3])
    crashed = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root}, check=False
    )
    assert crashed.returncode == -signal.SIGKILL
    assert commands.namespaces(state.namespace_prefix(name))
    with pytest.raises(lifecycle.AlreadyUp, match=f"minicluster down {name}"):
        lifecycle.up(name, describe(2))
    (tmp_path / f"{name}.json").unlink()
    assert lifecycle.down(name)
    assert not commands.namespaces(state.namespace_prefix(name))


def test_two_miniclusters_stand_side_by_side(bring_up):
    first, second = bring_up(describe(2)), bring_up(describe(2))
    lifecycle.down(first.name)
    assert state.names() == [second.name]
    assert run_flows(second, [Flow(0, 1, 100_000)], seconds=5)[0].points[-1][1] == 100_000


def test_set_up_of_eight_nodes_takes_little_time(bring_up):
    begin = time.monotonic()
    bring_up(describe(8, nodes_per_leaf=4, num_spines=2, ecmp="hashed"))
    assert time.monotonic() - begin < 10


def test_a_flow_runs_at_the_rate_of_its_link(bring_up):
    made = bring_up(describe(2, megabits=100))
    (flow,) = run_flows(made, [Flow(0, 1)], seconds=1.0)
    assert flow.rate(0.3, 1.0) == pytest.approx(12.5e6, rel=0.05)


def test_flows_that_share_a_port_get_equal_shares(bring_up):
    made = bring_up(describe(4, megabits=100))
    incast = run_flows(made, [Flow(source, 0) for source in (1, 2, 3)], seconds=1.2)
    for flow in incast:
        assert flow.rate(0.4, 1.2) == pytest.approx(12.5e6 / 3, rel=0.08)


def test_an_oversubscribed_leaf_holds_its_hosts_back(bring_up):
    made = bring_up(describe(4, nodes_per_leaf=2, num_spines=1, oversubscription=2.0, megabits=100))
    crossing = run_flows(made, [Flow(0, 2), Flow(1, 3)], seconds=1.2)
    assert sum(f.rate(0.4, 1.2) for f in crossing) == pytest.approx(12.5e6, rel=0.08)


def test_several_spines_carry_every_pair_both_ways(bring_up):
    made = bring_up(describe(4, nodes_per_leaf=1, num_spines=3, ecmp="hashed"))
    pairs = [Flow(s, d, 20_000) for s in range(4) for d in range(4) if s != d]
    assert all(flow.points[-1][1] == 20_000 for flow in run_flows(made, pairs, seconds=10))


def test_a_thread_comes_home_from_a_namespace(bring_up):
    made = bring_up(describe(2))
    home = os.readlink("/proc/thread-self/ns/net")
    with within(made.namespace("n0")):
        assert os.readlink("/proc/thread-self/ns/net") != home
    assert os.readlink("/proc/thread-self/ns/net") == home
