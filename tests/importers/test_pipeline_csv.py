"""PyTorch's schedule files are read as they are meant, written back unchanged, and refused where they cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.description import DescriptionError
from simulator.importers.pipeline_csv import ScheduleError, parse_schedule, write_schedule
from simulator.program.builder import blueprint
from simulator.program.schedules import SCHEDULES
from simulator.simulation import SimulationOptions, run, simulate
from tests.program.scenarios import LIBRARY, cluster, equal_blocks, software

ZERO_BUBBLE = """\
0F0,0F1,,0I0,0W0,0I1,0W1
,1F0,1I0,1F1,1I1,1W0,1W1
"""


def test_a_row_is_a_rank_and_a_cell_an_action() -> None:
    schedule = parse_schedule(ZERO_BUBBLE, "mine")
    assert (schedule.num_stages, schedule.chunks, schedule.num_micro_batches) == (2, 1, 2)
    assert [f"{a.op}{a.micro_batch}" for a in schedule(1, 2, 2, 1)] == ["F0", "I0", "F1", "I1", "W0", "W1"]


@pytest.mark.parametrize(
    "name", [name for name, schedule in SCHEDULES.items() if schedule.num_stages is None]
)
def test_what_is_written_reads_back(name: str) -> None:
    schedule = SCHEDULES[name]
    chunks = schedule.chunks or 2
    try:
        text = write_schedule(schedule, 4, 8, chunks)
    except ScheduleError:
        assert len({p for s in schedule.placement(4, chunks).parts for p in s}) < 4 * chunks
        return
    again = parse_schedule(text, name)
    assert write_schedule(again, 4, 8, chunks) == text
    assert again.placement(4, chunks) == schedule.placement(4, chunks)


def test_communication_is_left_out_and_overlapped_actions_follow_each_other() -> None:
    text = "0UNSHARD,0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0B1,0REDUCE_GRAD\n"
    actions = parse_schedule(text, "mine")(0, 1, 2, 1)
    assert [f"{a.op}{a.micro_batch}" for a in actions] == ["F0", "F1", "B0", "B1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no actions"),
        ("0F0,0X0", "row 1, cell 2: '0X0' is no action"),
        ("0F0,0B0,0B0", "does 1 actions twice"),
        ("0F0,0I0", "has I without W"),
        ("0F0,0F1,0B0", "part 0 has no B or I of micro-batch 1"),
        ("0F0,0B0\n0F0,0B0", "each stand on one rank"),
        ("0F0,0B0\n2F0,2B0", "must be 0, 1, 2"),
        ("0F0,0B0,1F0,1B0\n2F0,2B0", "unequal numbers"),
        ("0B0,0F0", "wait for each other"),
        ("0F0,0B0\n1B0,1F0", "wait for each other"),
    ],
)
def test_a_file_that_cannot_run_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(text, "mine")


def test_a_plan_may_name_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(write_schedule(SCHEDULES["zb-h1"], 4, 8, 1))
    times = []
    for schedule in (str(path), "zb-h1"):
        job = equal_blocks(8, 8, weight_bytes=2e9, pp=4, schedule=schedule)
        _, timeline = run(blueprint(cluster(4, 1, 1), job, software(), LIBRARY), SimulationOptions())
        times.append(timeline.makespan)
    assert times[0] == times[1]


def test_a_file_for_another_pipeline_is_a_fault_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(ZERO_BUBBLE)
    with pytest.raises(ValueError, match="is for 2 stages, but pp is 4"):
        equal_blocks(8, 8, pp=4, schedule=str(path))
    with pytest.raises(ValueError, match="there is no file"):
        equal_blocks(8, 8, pp=2, schedule=str(tmp_path / "other.csv"))
    path.write_text("nonsense")
    with pytest.raises(ValueError, match="is no action"):
        equal_blocks(8, 8, pp=2, schedule=str(path))


def test_another_number_of_micro_batches_is_a_fault_on_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(ZERO_BUBBLE)
    job = equal_blocks(8, 8, pp=2, schedule=str(path))
    with pytest.raises(DescriptionError, match="is for 2 micro-batches, but there are 8"):
        simulate(cluster(2, 1, 1), job)
