"""What became of the documents of a step: how many tokens, how much padding, who runs them with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.program.setting import Setting


def data_use(setting: Setting) -> dict[str, Any]:
    """`meta.data` of a prediction; `groups`: GPUs of each group that shares documents, by micro-batch.

    `expected_s`: what the dealing of documents expected of the micro-batches.
    """
    documents = setting.workload.documents
    shards = {pack: setting.shard_of(pack) for pack in setting.distinct_packs}
    held = [shards[pack] for micro_batch in setting.packs for pack in micro_batch]
    padded = sum(shard.micro_batch * shard.sequence_length for shard in held)
    expected = {} if setting.expected is None else {"expected_s": setting.expected}
    return {
        "documents": len(documents),
        "tokens": sum(documents),
        "longest": max(documents),
        "micro_batches": len(setting.packs),
        "padding": 1.0 - sum(documents) / padded,
        "groups": [[pack.degree for pack in micro_batch] for micro_batch in setting.packs],
        **expected,
    }
