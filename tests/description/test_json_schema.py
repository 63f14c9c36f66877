"""The exported JSON Schema agrees with the classes: a second validator accepts and refuses the same files."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from simulator.description import DescriptionError, catalogue, load
from simulator.description.json_schema import json_schema
from simulator.description.kinds import KINDS
from simulator.description.tree import plain

described = [kind for kind in KINDS if KINDS[kind].read_by]


def validator(kind: str) -> Any:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("kind", described)
def test_accepts_every_file_of_the_catalogue(kind: str) -> None:
    check = validator(kind)
    for name in catalogue.names(kind):
        written = plain(catalogue.read(catalogue.find(kind, name))[0])
        errors = [f"{name}: {error.json_path}: {error.message[:200]}" for error in check.iter_errors(written)]
        assert not errors


NIC = {"kind": "nic", "vendor": "x", "bandwidth": "200 Gb/s", "latency": "1 us"}


@pytest.mark.parametrize(
    "changes",
    [
        {"bandwidth": 200},
        {"bandwidth": "200 gb/s"},
        {"bandwidth": "200 W"},
        {"latency": None},
        {"bandwith": "1 Gb/s"},
        {"vendor": 3},
        {"kind": "gpu"},
        {"price": "cheap"},
    ],
)
def test_refuses_what_loading_refuses(changes: dict[str, Any]) -> None:
    check = validator("nic")
    assert check.is_valid(NIC) and load("nic", NIC)
    assert not check.is_valid(NIC | changes)
    with pytest.raises(DescriptionError):
        load("nic", NIC | changes)


def test_what_extends_may_leave_keys_out() -> None:
    check = validator("cluster")
    assert not check.is_valid({"kind": "cluster", "num_nodes": 4})
    assert check.is_valid(
        {"kind": "cluster", "extends": "selene", "num_nodes": 4, "node": {"gpu": {"sms": 3}}}
    )
    assert not check.is_valid({"kind": "cluster", "extends": "selene", "num_nods": 4})


def test_references_may_be_names_or_mappings_that_extend() -> None:
    fabric = {"kind": "single_switch", "hop_latency": "1 us"}
    check = validator("cluster")
    for node in ("dgx-a100", {"extends": "dgx-a100", "num_gpus": 4}):
        assert check.is_valid({"kind": "cluster", "node": node, "num_nodes": 2, "fabric": fabric})
    assert not check.is_valid({"kind": "cluster", "node": 8, "num_nodes": 2, "fabric": fabric})
