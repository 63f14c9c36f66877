"""What happens if every stage follows its schedule and each action takes a fixed time?"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.program.schedules.schedule import Schedule

UNIT: Mapping[str, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


def finish(
    schedule: Schedule,
    num_stages: int,
    num_micro_batches: int,
    chunks: int,
    seconds: Mapping[str, float] = UNIT,
) -> float | None:
    """When the last action ends, transfers being free; None if the stages wait for each other for ever."""
    placement = schedule.placement(num_stages, chunks)
    orders = [schedule(stage, num_stages, num_micro_batches, chunks) for stage in range(num_stages)]
    done: dict[tuple[str, int, int, int], float] = {}
    position, free = [0] * num_stages, [0.0] * num_stages
    waiting = list(range(num_stages))
    while waiting:
        before = list(position)
        for stage in waiting:
            for action in orders[stage][position[stage] :]:
                needs = [] if action.op == "F" else [("G" if action.op == "W" else "F", stage, action.chunk)]
                peer = placement.neighbour(stage, action.chunk, -1 if action.op == "F" else +1)
                if peer is not None and action.op != "W":
                    needs.append(("F" if action.op == "F" else "G", *peer))
                if any((*need, action.micro_batch) not in done for need in needs):
                    break
                start = max([free[stage], *(done[*need, action.micro_batch] for need in needs)])
                free[stage] = start + seconds[action.op]
                written = "G" if action.op in "BI" else action.op
                done[written, stage, action.chunk, action.micro_batch] = free[stage]
                position[stage] += 1
        waiting = [stage for stage in waiting if position[stage] < len(orders[stage])]
        if position == before:
            return None
    return max(free)
