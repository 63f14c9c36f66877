"""Faults name keys as they were written: union tags stripped, aliases kept, cross checks placed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, model_validator

from simulator.description.base import Description
from simulator.description.faults import KeyFaults
from simulator.description.registry import Registry
from simulator.description.validation import validate
from simulator.description.yaml_reader import parse_yaml

SHAPES = Registry("shape", "kind")


class Shape(Description):
    """Base."""


@SHAPES.register("circle")
class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: float = Field(gt=0, description="Centre to rim.")


@SHAPES.register("box")
class Box(Shape):
    kind: Literal["box"] = "box"
    box: int = Field(description="A key called like its tag.")
    sides: tuple[int, ...] = ()
    colour: Literal["red", "green"] | None = None


class Drawing(Description):
    shape: Annotated[Shape, SHAPES]
    shapes: tuple[Annotated[Shape, SHAPES], ...] = ()
    begin: int | Literal["auto"] = Field(default=0, alias="from")
    named: dict[str, int] = Field(default_factory=dict)
    size: int = 3

    @model_validator(mode="after")
    def _check(self) -> Drawing:
        if self.size == 13:
            raise KeyFaults([("size", "13 is unlucky"), ("shape.radius", "so is this")])
        return self


def faults(text: str) -> list[str]:
    found, errors = validate(Drawing, parse_yaml(text, "f"))
    assert (found is None) == bool(errors)
    return [str(fault) for fault in errors]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shape: {kind: circle, radius: -1}", "f:1:31: shape.radius: must be greater than 0 (is -1)"),
        ("shape: {kind: circle}", "f:1:8: shape.radius: is missing: Centre to rim."),
        (
            "shape: {kind: circl, radius: 1}",
            "f:1:15: shape.kind: circl is not one of box, circle; did you mean circle?",
        ),
        ("shape: {radius: 1}", "f:1:8: shape.kind: is missing; one of box, circle"),
        ("shape: {kind: box, box: x}", "f:1:25: shape.box: needs a whole number, not x"),
        ("shape: {kind: box, box: 1, sides: [1, a]}", "f:1:39: shape.sides.1: needs a whole number, not a"),
        ("shape: {kind: box, box: 1, sides: 4}", "f:1:35: shape.sides: needs a list, not 4"),
        ("shape: {kind: box, box: 1, colour: gren}", "gren is not one of red, green; did you mean green?"),
        ("shape: {kind: box, box: 1, color: red}", "f:1:28: shape.color: unknown key; did you mean colour?"),
        (
            "shape: {kind: box, box: 1, radius: 1}",
            "shape.radius: unknown key (known: kind, box, sides, colour)",
        ),
        ("shape: circle", "f:1:8: shape: needs a mapping (key: value), not circle"),
        (
            "{shape: {kind: box, box: 1}, shapes: [{kind: circle, radius: z}]}",
            "shapes.0.radius: needs a number, not z",
        ),
        ("{shape: {kind: box, box: 1}, from: soon}", "f:1:36: from: needs a whole number, not soon"),
        ("{shape: {kind: box, box: 1}, fromm: 1}", "f:1:30: fromm: unknown key; did you mean from?"),
        ("{shape: {kind: box, box: 1}, named: {a: 1, b: c}}", "f:1:47: named.b: needs a whole number, not c"),
        ("{shape: {kind: box, box: 1}, size: true}", "size: true is not a number"),
        ("{shape: {kind: box, box: 1}, size: 2.5}", "size: needs a whole number, not 2.5"),
        ("{shape: {kind: box, box: 1}, size: }", "size: needs a whole number, not nothing"),
        ("{shape: {kind: circle, radius: .inf}}", "shape.radius: needs a number, not .inf"),
        ("{shape: {kind: circle, radius: .nan}}", "shape.radius: needs a number, not .nan"),
    ],
)
def test_one_fault_says_key_place_and_remedy(text: str, expected: str) -> None:
    found = faults(text)
    assert len(found) == 1 and expected in found[0], found


def test_all_faults_come_at_once() -> None:
    assert len(faults("{shape: {kind: box, sides: 1}, size: x, named: 3, other: 1}")) == 5


def test_checks_across_keys_blame_the_keys() -> None:
    found = faults("shape: {kind: circle, radius: 1}\nsize: 13\n")
    assert found == ["f:2:7: size: 13 is unlucky", "f:1:31: shape.radius: so is this"]


def test_a_loaded_description_remembers_where_it_was_written() -> None:
    drawing, _ = validate(Drawing, parse_yaml("shape: {kind: circle, radius: 1}\n", "f"))
    assert isinstance(drawing, Drawing)
    assert str(drawing.fault("shape.radius", "too small")) == "f:1:31: shape.radius: too small"
    assert str(drawing.fault("shape.nowhere.at.all", "x")).startswith("f:1:8: ")


def test_places_take_no_part_in_equality_hash_or_output() -> None:
    one, _ = validate(Drawing, parse_yaml("shape: {kind: circle, radius: 1}\n", "f"))
    two, _ = validate(Drawing, parse_yaml("\n\n\nshape:\n  radius: 1\n  kind: circle\n", "g"))
    assert one == two and hash(one) == hash(two)
    assert one is not None and two is not None
    assert one.model_dump_json() == two.model_dump_json() and repr(one) == repr(two)
    assert "_places" not in one.model_dump()


def test_a_class_registered_later_takes_part_before_first_use() -> None:
    late = Registry("thing", "kind")

    class Holder(Description):
        thing: Annotated[Description, late]

    @late.register("one")
    class One(Description):
        kind: Literal["one"] = "one"

    found, errors = validate(Holder, parse_yaml("thing: {kind: one}", "f"))
    assert not errors and isinstance(found, Holder) and isinstance(found.thing, One)


def test_registering_needs_the_discriminator_and_a_free_name() -> None:
    with pytest.raises(ValueError, match="must declare kind"):

        @SHAPES.register("line")
        class Line(Shape):
            pass

    with pytest.raises(ValueError, match="registered twice"):

        @SHAPES.register("box")
        class Box2(Shape):
            kind: Literal["box"] = "box"


def test_descriptions_are_frozen(design: Path) -> None:
    from simulator import load_cluster

    cluster = load_cluster("cluster.yaml")
    with pytest.raises(Exception, match="frozen"):
        cluster.node.num_gpus = 3
