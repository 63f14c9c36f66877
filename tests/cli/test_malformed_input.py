"""Bad files: exit code 2, one `file:line:column: key: message` line per fault, no traceback, under a second."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.cli.main import BAD_INPUT, main

LINE = re.compile(r"[^:]+:\d+:\d+: [\w.()\[\] -]+: \S.*")

NIC = "kind: nic\nvendor: x\nbandwidth: 200 Gb/s\nlatency: 1 us\n"
MODEL = "{family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 1000, max_sequence: 128}"
RUN = f"kind: workload\nmodel: {MODEL}\nglobal_batch: 16\nsequence_length: 128\nprecision: bf16\n"
LAUGHS = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 20)
)

MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "duplicate key": (NIC + "latency: 2 us\n", "bad.yaml:5:1: latency: duplicate key (first on line 4)"),
    "wrong unit": (NIC.replace("1 us", "1 W"), "bad.yaml:4:10: latency: 1 W is a power, not a time"),
    "misspelt unit": (NIC.replace("Gb/s", "gb/s"), "bad.yaml:3:12: bandwidth: unknown unit gb/s"),
    "bare number": (NIC.replace("200 Gb/s", "200"), "is it 200 Gb/s (2.5e+10 B/s) or 200 GB/s (2e+11 B/s)?"),
    "unknown key": (NIC + "latncy: 2 us\n", "bad.yaml:5:1: latncy: unknown key; did you mean latency?"),
    "missing key": (NIC.replace("latency: 1 us\n", ""), "bad.yaml:1:1: latency: is missing"),
    "wrong type": (NIC.replace("vendor: x", "vendor: [x]"), "bad.yaml:2:9: vendor: needs text"),
    "text for a count": (
        RUN.replace("batch: 16", "batch: " + "many"),
        "bad.yaml:3:15: global_batch: needs a whole number, not many",
    ),
    "fraction for a count": (
        RUN.replace("batch: 16", "batch: " + "1.5"),
        "global_batch: needs a whole number, not 1.5",
    ),
    "truth value for a count": (
        RUN.replace("batch: 16", "batch: " + "true"),
        "global_batch: true is not a number",
    ),
    "negative count": (
        RUN.replace("batch: 16", "batch: " + "-16"),
        "global_batch: must be greater than 0 (is -16)",
    ),
    "unknown word": (RUN.replace("bf16", "bf61"), "bad.yaml:5:12: precision: bf61 is not one of"),
    "unknown kind": ("kind: nick\n", "bad.yaml:1:7: kind: unknown kind nick; did you mean nic?"),
    "no kind": ("vendor: x\n", "bad.yaml:1:1: kind: is missing; one of gpu, nic"),
    "unknown GPU": (
        "kind: node\ngpu: a100-sxm-08\nnum_gpus: 8\ninterconnect: {kind: nvswitch}\n",
        "unknown gpu",
    ),
    "unknown model": (RUN.replace(MODEL, "gpt3-157b"), "unknown model gpt3-157b; did you mean gpt3-175b?"),
    "empty list": (
        "kind: links\nlinks: []\n",
        "bad.yaml:2:8: links: needs at least 1 entry, not 0",
    ),
    "another kind": (RUN.replace(MODEL, "h100-sxm"), "unknown model h100-sxm: that is a gpu"),
    "unknown family": (RUN.replace("gpt,", "gtp,"), "model.family: gtp is not one of"),
    "heads not divisible": (
        RUN + "plan: {tp: 3}\n",
        "bad.yaml:6:12: plan.tp: 3 does not divide 8 attention heads",
    ),
    "file of another kind": (NIC.replace("nic", "node", 1), "bad.yaml:"),
    "extends itself": (
        "kind: nic\nextends: ./bad.yaml\n",
        "bad.yaml:2:10: extends: ./bad.yaml refers back to itself",
    ),
    "extends nothing": ("kind: nic\nextends: nowhere\n", "bad.yaml:2:10: extends: unknown nic nowhere"),
    "extends a missing file": (
        "kind: nic\nextends: ./no.yaml\n",
        "bad.yaml:2:10: extends: there is no file no.yaml",
    ),
    "billion laughs": (LAUGHS, "holds more than 30,000 values once aliases are expanded"),
    "alias of itself": ("kind: &k [*k]\n", "bad.yaml:1:11: kind.0: alias *k contains itself"),
    "explicit tag": (
        NIC + "price: !!python/name:os.system x\n",
        "bad.yaml:5:8: price: explicit tags are not allowed",
    ),
    "explicit tag on a list": (
        NIC + "price: !!set {a, b}\n",
        "bad.yaml:5:8: price: explicit tags are not allowed",
    ),
    "tabs": (NIC + "sources:\n\tlatency: x\n", "bad.yaml:6:1: (file): a tab is used as indentation"),
    "unclosed": (NIC + "sources: {latency: x\n", "(file): is not valid YAML"),
    "two documents": (NIC + "---\n" + NIC, "bad.yaml:5:1: (file): a second document"),
    "a list": ("- kind: nic\n", "bad.yaml:1:1: (file): holds a list"),
    "too deep": ("kind: " + "[" * 60 + "]" * 60, "nested too deeply"),
    "far too deep": ("kind: " + "[" * 300_000, "nesting depth"),
    "too large": ("kind: nic # " + "x" * 1_000_000, "bad.yaml:1:1: (file): is too large"),
    "empty": ("", "bad.yaml:1:1: (file): is empty"),
    "binary": (bytes(range(256)) * 4, "bad.yaml:"),
    "not UTF-8": (NIC.encode() + b"price: \xe9\n", "bad.yaml:5:8: (file): is not UTF-8 text (byte 0xe9)"),
    "control characters": (NIC.replace("x", "\x1b[31m"), "bad.yaml:"),
    "huge number": (
        RUN.replace("batch: 16", "batch: " + "9" * 400),
        "bad.yaml:3:15: global_batch: needs a number",
    ),
    "infinite quantity": (NIC.replace("1 us", "1e999 s"), "latency: 1e999 s is too large"),
    "too many values": ("kind: nic\n" + "a: b\n" * 100_000, "holds more than 30,000 values"),
    "many unknown keys": ("kind: nic\n" + "".join(f"k{i}: 1\n" for i in range(5_000)), "k0: unknown key"),
    "many duplicate keys": ("kind: nic\n" * 5_000, "kind: duplicate key"),
    "not a number": (NIC.replace("1 us", ".nan"), "bad.yaml:4:10: latency: "),
}


def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *files: str) -> list[str]:
    """The lines on standard error of `clustersim check`, which must end in exit code 2."""
    monkeypatch.setattr(sys, "argv", ["clustersim", "check", *files])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == BAD_INPUT
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_files(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = MALFORMED[what]
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.process_time()  # the machine may be busy with other tests
    lines = check(monkeypatch, capsys, "bad.yaml")
    assert time.process_time() - start < 1.0
    assert any(expected in line for line in lines), lines
    for line in lines:
        assert LINE.fullmatch(line), line
        assert len(line) < 600


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing.yaml", "missing.yaml:1:1: (file): cannot be read: No such file"),
        (".", ".:1:1: (file): is a folder"),
        ("folder.yaml", "folder.yaml:1:1: (file): is a folder"),
        ("pipe.yaml", "pipe.yaml:1:1: (file): is not an ordinary file"),
        ("x" * 5000 + ".yaml", "cannot be read: File name too long"),
        ("~nobody/x.yaml", "cannot be read"),
        ("no-such-name", "catalogue: no-such-name: unknown name"),
    ],
)
def test_what_is_no_file(
    name: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    Path("folder.yaml").mkdir()
    os.mkfifo("pipe.yaml")
    lines = check(monkeypatch, capsys, name)
    assert len(lines) == 1 and expected in lines[0]


def test_faults_of_the_whole_chain_of_files_come_at_once(
    design: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (design / "gpu.yaml").write_text((design / "gpu.yaml").read_text().replace("80 GiB", "80") + "sms: 3\n")
    (design / "node.yaml").write_text((design / "node.yaml").read_text().replace("num_nics", "num_nic"))
    (design / "cluster.yaml").write_text((design / "cluster.yaml").read_text().replace("16", "sixteen"))
    lines = check(monkeypatch, capsys, "cluster.yaml")
    starts = [
        "cluster.yaml:3:12: num_nodes:",
        "gpu.yaml:7:20: node.gpu.memory.capacity:",
        "gpu.yaml:11:1: sms:",
    ]
    starts += ["node.yaml:5:1: node.num_nic:"]
    assert len(lines) == 4 and all(
        line.startswith(start) for line, start in zip(lines, starts, strict=True)
    ), lines


def test_a_real_process_ends_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(NIC + "latncy: 1\n")
    command = [sys.executable, "-m", "simulator.cli.main", "check", str(tmp_path / "bad.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == BAD_INPUT and done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith(f"{tmp_path}/bad.yaml:5:1: latncy: unknown key")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--gpus", "16", "--set", "plan.dp=3"],
            "--set plan.dp=3: plan.dp: tp 2 x pp 1 x cp 1 x dp 3 = 6 ranks",
        ),
        (["--gpus", "12"], "--gpus 12: gpus: 12 GPUs are 1.5 nodes of 8; try 8 or 16"),
        (["--set", "plan.tpp=2"], "--set plan.tpp=2: plan.tpp: unknown key; did you mean tp?"),
        (["--set", "cluster.node.nic.bandwidth=400"], "node.nic.bandwidth: 400 has no unit: is it 400 Gb/s"),
        (["--set", "cluster.fabrik.kind=torus"], "fabrik: unknown key; did you mean fabric?"),
    ],
)
def test_settings_that_do_not_fit_together(
    arguments: list[str],
    expected: str,
    design: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["clustersim", "run", "cluster.yaml", "workload.yaml", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == BAD_INPUT and captured.out == ""
    assert len(captured.err.splitlines()) == 1 and expected in captured.err
