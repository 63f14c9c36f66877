"""Queries that share keys: the outputs of one packed product lie group by group and are laid out anew."""

from dataclasses import replace

import pytest

from simulator.workloads.layers import Shard
from simulator.workloads.models.llama import Llama

SHAPES = {"layers": 1, "hidden": 4096, "ffn": 8192, "vocab": 1024, "max_sequence": 8192}
SHARED = Llama(**SHAPES, heads=32, kv_heads=8).layers()[1]
OWN = Llama(**SHAPES, heads=32, kv_heads=32).layers()[1]
SHARD = Shard(micro_batch=1, sequence_length=8192, fusions=frozenset({"qkv"}))


def copies(operations, kind):
    return [(o.what.bytes_read, o.what.bytes_written) for o in operations if o.label == f"qkv.{kind}"]


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_queries_and_values_are_copied_and_three_gradients_joined(tp):
    shard = replace(SHARD, tp=tp)
    queries, keys = 4096 // tp, 1024 // tp
    split, joined = (8192 * 2.0 * width for width in (queries + keys, queries + 2 * keys))
    assert copies(SHARED.forward(shard), "split") == [(split, split)]
    assert copies(SHARED.backward(shard), "join") == [(joined, joined)]


@pytest.mark.parametrize(
    ("block", "shard"), [(OWN, SHARD), (SHARED, replace(SHARD, fusions=frozenset()))], ids=["own", "unpacked"]
)
def test_nothing_is_copied_where_heads_are_views_or_products_apart(block, shard):
    assert copies(block.forward(shard), "split") == copies(block.backward(shard), "join") == []
