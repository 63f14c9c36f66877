"""YAML reading: YAML 1.2 scalars, places of everything, one safe bounded document."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.description.faults import DescriptionError
from simulator.description.tree import Mapping, plain, walk
from simulator.description.yaml_reader import DEEPEST, LARGEST_FILE, parse_yaml, read_yaml


def fault(text: str) -> str:
    with pytest.raises(DescriptionError) as caught:
        parse_yaml(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-6", 5e-6),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-3", -3),
        ("+7", 7),
        ("12", 12),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2001-01-01", "2001-01-01"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        (".inf", math.inf),
        ("400 Gb/s", "400 Gb/s"),
        ("99999999999999999999999", 1e23),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = plain(parse_yaml(f"a: {text}\n", "x"))["a"]
    assert read == value and type(read) is type(value)


def test_keys_are_always_text() -> None:
    assert plain(parse_yaml("{no: 1, 8: 2, null: 3, 1.5: 4}", "x")) == {"no": 1, "8": 2, "null": 3, "1.5": 4}


def test_every_key_and_value_knows_its_place() -> None:
    tree = parse_yaml("a: 1\nbb:\n  - x\n  - {c: y}\n", "f.yaml")
    places = {".".join(path): str(node.place) for path, node in walk(tree)}
    assert places["a"] == "f.yaml:1:4"
    assert places["bb.0"] == "f.yaml:3:5"
    assert places["bb.1.c"] == "f.yaml:4:9"
    assert str(tree.key_place("bb")) == "f.yaml:2:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "x.yaml:2:11: b.c: duplicate key (first on line 2)"),
        ("a: !!python/object:os.system x\n", "x.yaml:1:4: a: explicit tags are not allowed"),
        ("a: !!str 5\n", "explicit tags are not allowed"),
        ("a: !!map {b: 1}\n", "explicit tags are not allowed"),
        ("a: !mine [1]\n", "explicit tags are not allowed"),
        ("a:\n\tb: 1\n", "x.yaml:2:1: (file): a tab is used as indentation"),
        ("a:\n  b: 1\n \t c: 1\n", "x.yaml:3:2: (file): a tab"),
        ("", "x.yaml:1:1: (file): is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "holds a list where a mapping"),
        ("just text\n", "holds the single value just text"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: (file): a second document"),
        ("a: {b: 1\n", "is not valid YAML"),
        ("a: b: c\n", "is not valid YAML"),
        ("a: *nowhere\n", "alias *nowhere is not defined"),
        ("a: &x [*x]\n", "alias *x contains itself"),
        ("b: &b {c: 1}\na:\n  <<: *b\n", "merge keys (<<) are not read"),
        ("? [a, b]\n: 1\n", "a key must be a word, not a list"),
    ],
)
def test_refuses_with_the_place(text: str, expected: str) -> None:
    assert expected in fault(text)


def test_says_all_faults_of_a_file_at_once() -> None:
    assert len(fault("a: 1\na: 2\nb: !!str x\nc: {d: 1, d: 2}\n").splitlines()) == 3


def test_aliases_are_counted_expanded() -> None:
    laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
    laughs += "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30))
    assert "once aliases are expanded" in fault(laughs)
    assert plain(parse_yaml("a: &x {b: 1}\nc: *x\n", "x"))["c"] == {"b": 1}


@pytest.mark.parametrize("nest", ["[" * 100 + "]" * 100, "[" * 200_000, "{a: " * 60 + "1" + "}" * 60])
def test_depth_is_bounded(nest: str) -> None:
    message = fault(f"a: {nest}\n")
    assert "nested too deeply" in message or "nesting depth" in message


def test_depth_up_to_the_bound_is_read() -> None:
    levels = DEEPEST - 3
    assert parse_yaml(f"a: {'[' * levels}1{']' * levels}\n", "x")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0", "1:1: (file): is a binary file"),
        (b"a: 1\nb: \xff\xfe\n", "2:4: (file): is not UTF-8 text (byte 0xff)"),
        (b"a: 1\0\n", "is a binary file"),
        (b"a: \x01\n", "is not valid YAML"),
        (b"a: 1\n" * (LARGEST_FILE // 4), "is too large"),
    ],
)
def test_refuses_what_is_no_text(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    with pytest.raises(DescriptionError, match=r"x\.yaml") as caught:
        read_yaml(file)
    assert expected in str(caught.value)


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    for path, expected in (
        (tmp_path, "is a folder"),
        (tmp_path / "no.yaml", "No such file"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(DescriptionError, match=expected):
            read_yaml(path)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert plain(read_yaml(tmp_path / "x.yaml")) == {"a": 1}


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp")), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, values, min_size=1, max_size=4))
def test_reads_back_what_was_written(tree: dict[str, object]) -> None:
    assert same(plain(parse_yaml(_dump(tree), "x")), tree)


def _dump(tree: object) -> str:
    """Written in quotes, so that the two readings of plain scalars (YAML 1.1 and 1.2) cannot differ."""
    import json

    return json.dumps(tree, ensure_ascii=False)


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@given(st.binary(max_size=60) | st.text(alphabet="ab:[]{}&*!\t\n -#'\"|>%,?", max_size=60).map(str.encode))
def test_no_bytes_end_in_anything_but_a_tree_or_a_fault(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_bytes(data)
    try:
        assert isinstance(read_yaml(file), Mapping)
    except DescriptionError as error:
        assert all(f.line >= 1 and f.column >= 1 and "\n" not in str(f) for f in error.faults)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), min_size=1))
def test_agrees_with_pyyaml_where_the_two_versions_do(tree: dict[str, int]) -> None:
    text = yaml.safe_dump(tree)
    assert plain(parse_yaml(text, "x")) == yaml.safe_load(text)
