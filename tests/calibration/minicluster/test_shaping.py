"""Ports become tc lines that name each pair once and never let anything pass unshaped."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.calibration.minicluster.shaping import mtu_for, port_lines, wire_rate
from simulator.calibration.minicluster.wiring import Port, wiring_of
from tests.calibration.minicluster.conftest import describe


def test_a_fair_port_has_one_class_queue_and_filter_per_pair():
    ports = wiring_of(describe(4)).ports()
    for port in ports:
        text = "\n".join(port_lines(port, 9000))
        assert text.count("bfifo") == text.count("u32") == len(port.pairs) == 3
        targets = re.findall(r"flowid (\S+)", text)
        assert len(set(targets)) == 3
        assert all(f"classid {target} " in text for target in targets)


def test_shares_of_all_classes_are_equal_and_within_the_link_rate():
    port = wiring_of(describe(6)).ports()[0]
    shares = [int(x) for x in re.findall(r"htb rate (\d+)bit ceil", "\n".join(port_lines(port, 9000)))][1:]
    assert len(set(shares)) == 1
    assert sum(shares) <= wire_rate(port.rate, 9000) * 8


@given(st.floats(1e6, 1e10))
def test_full_frames_deliver_the_described_rate(rate):
    mtu = mtu_for(rate)
    frames_per_second = wire_rate(rate, mtu) / (mtu + 14)
    assert frames_per_second * (mtu - 52) == pytest.approx(rate)


def test_a_fifo_port_is_one_token_bucket():
    lines = port_lines(Port("n0", "eth0", "switch", 12.5e6, ((0, 1),)), 9000, "fifo")
    assert len(lines) == 1
    assert "tbf rate 100737595bit" in lines[0]


def test_an_unknown_shaper_is_refused_by_name():
    with pytest.raises(ValueError, match="shaper red: use one of fair, fifo"):
        port_lines(Port("n0", "eth0", "switch", 1e6, ()), 9000, "red")
