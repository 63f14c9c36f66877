"""Commands run once per rank with torchrun's environment; failures and timeouts end all ranks."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time

import pytest

from simulator.calibration.minicluster.commands import processes_in
from simulator.calibration.minicluster.launch import Job, run_job
from tests.calibration.minicluster.conftest import describe, needs_namespaces

pytestmark = needs_namespaces


def test_every_rank_finds_its_place_in_the_environment(bring_up):
    made = bring_up(describe(3))
    echo = io.StringIO()
    shown = 'echo "$RANK/$WORLD_SIZE at $MASTER_ADDR via $GLOO_SOCKET_IFNAME"'
    outcome = run_job(made, ["sh", "-c", shown], hosts=[2, 0], echo=echo, timeout=20)
    assert outcome.code == 0
    assert outcome.outputs == ("0/2 at 10.200.0.3 via eth0\n", "1/2 at 10.200.0.3 via eth0\n")
    assert sorted(line[:3] for line in echo.getvalue().splitlines()) == ["[0]", "[1]"]


def test_ranks_reach_each_other_and_nothing_outside(bring_up):
    made = bring_up(describe(2))
    routes = run_job(made, ["ip", "route"], timeout=20).outputs
    assert all(output.startswith("10.200.0.0/16") and "default" not in output for output in routes)


def test_one_failing_rank_ends_the_others_and_its_code_is_reported(bring_up):
    made = bring_up(describe(3))
    begin = time.monotonic()
    outcome = run_job(made, ["sh", "-c", "test $RANK = 1 && exit 7; sleep 60"], timeout=30)
    assert outcome.code == 7
    assert time.monotonic() - begin < 10


def test_a_job_that_takes_too_long_is_ended_with_what_it_said(bring_up):
    made = bring_up(describe(2))
    job = Job(made, ["sh", "-c", "echo waiting; sleep 60"])
    with pytest.raises(TimeoutError, match="waiting"):
        job.wait(1.0)


@pytest.mark.parametrize("hosts", [[], [0, 0], [2], [-1]])
def test_hosts_must_exist_and_differ(bring_up, hosts):
    made = bring_up(describe(2))
    with pytest.raises(ValueError, match="of 0 to 1"):
        run_job(made, ["true"], hosts=hosts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_its_launcher(bring_up, number):
    made = bring_up(describe(2))
    script = (
        "import signal, sys; from simulator.calibration.minicluster import state\n"
        "from simulator.calibration.minicluster.launch import run_job, terminated_like_interrupted\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "with terminated_like_interrupted():\n"
        f"    run_job(state.read({made.name!r}), ['sh', '-c', 'echo up; exec sleep 60'], echo=sys.stdout)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    assert {launcher.stdout.readline() for _ in range(2)} == {"[0] up\n", "[1] up\n"}
    launcher.send_signal(number)
    launcher.wait(20)
    ranks = [made.namespace(host.name) for host in made.hosts]
    deadline = time.monotonic() + 5
    while any(map(processes_in, ranks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(processes_in, ranks))
    if number == signal.SIGTERM:
        assert launcher.returncode == 128 + number
