"""Parameter counts of the catalogue against the published ones."""

import pytest

from simulator.description import load
from simulator.description.catalogue import entries
from simulator.workloads.layers import Parameters, Shard
from simulator.workloads.model import FAMILIES
from simulator.workloads.modules.linear import ReplicatedLinear

# Sources: number of elements of the released checkpoints (safetensors totals), which are exact.
PUBLISHED = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "bloom-176b": 176_247_271_424,
    "mpt-7b-alibi": 6_649_286_656,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
}

# Narayanan et al. 2021 (table 1) and Korthikanti et al. 2022 (table 3), in billions.
ROUNDED = {
    "megatron-1.7b": 1.7,
    "megatron-3.6b": 3.6,
    "megatron-7.5b": 7.5,
    "megatron-18.4b": 18.4,
    "megatron-22b": 22.0,
    "megatron-39.1b": 39.1,
    "megatron-76.1b": 76.1,
    "megatron-145.6b": 145.6,
    "megatron-310.1b": 310.1,
    "megatron-530b": 529.6,
    "megatron-1t": 1008.0,
    "gpt3-175b": 174.6,
}

# Embeddings and the rest in billions, from the reports (arXiv 2402.16819 and 2406.11704).
NEMOTRON = {"nemotron4-15b": 3.1 + 12.5, "nemotron4-340b": 9.4 + 331.6}


# Active parameters in billions as the models' reports round them; True: the embedding is left out of the count.
ACTIVE = {
    "mixtral-8x7b": (12.9, False),
    "mixtral-8x22b": (39.0, False),
    "deepseek-v2": (21.0, False),
    "deepseek-v2-lite": (2.4, True),
    "deepseek-v3": (37.0, True),
    "qwen3-30b-a3b": (3.3, False),
    "qwen3-235b-a22b": (22.0, False),
    "gpt-oss-20b": (3.61, True),
    "gpt-oss-120b": (5.13, True),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_agree_with_the_published_figure(name):
    model = load("model", name)
    billions, without_embedding = ACTIVE[name]
    count = model.num_active_parameters - (model.vocab * model.hidden if without_embedding else 0)
    assert count / 1e9 == pytest.approx(billions, rel=0.001 if "oss" in name else 0.025)


def test_the_prediction_module_adds_a_block_a_projection_and_three_norms():
    """README_WEIGHTS of DeepSeek-V3: 11.5B parameters of its own, embedding and head shared with the main model."""
    main, trained = load("model", "deepseek-v3"), load("model", "deepseek-v3-mtp")
    block = main.layers()[-2].parameters(Shard(micro_batch=1, sequence_length=64)).total
    assert trained.num_parameters - main.num_parameters == block + 2 * 7168**2 + 3 * 7168


def test_the_prediction_module_keeps_a_table_of_its_own_only_away_from_the_embedding():
    layer = load("model", "deepseek-v3-mtp").layers()[-1]
    together = Shard(micro_batch=1, sequence_length=64, vocab_multiple=1)
    apart = Shard(micro_batch=1, sequence_length=64, vocab_multiple=1, separate_head=True)
    assert layer.kind == "prediction"
    assert layer.parameters(together).embeddings == 0
    assert layer.parameters(apart).embeddings == 129280 * 7168


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_equals_the_released_checkpoint(name):
    assert load("model", name).num_parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameter_count_rounds_to_the_published_figure(name):
    billions = load("model", name).num_parameters / 1e9
    digits = 0 if ROUNDED[name] in (22.0, 1008.0) else 1
    assert round(billions, digits) == ROUNDED[name]


@pytest.mark.parametrize("name", NEMOTRON)
def test_nemotron_counts_round_to_the_sum_of_embeddings_and_the_rest(name):
    assert load("model", name).num_parameters / 1e9 == pytest.approx(NEMOTRON[name], abs=0.1)


@pytest.mark.parametrize("name", list(ROUNDED))
def test_gpt_count_follows_the_formula_of_narayanan_et_al(name):
    model = load("model", name)
    layers, h, vocab, s = model.num_layers, model.hidden, model.vocab, model.max_sequence
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocab + s) / (12 * layers * h))
    assert model.num_parameters == pytest.approx(
        formula + 2 * h, abs=1
    )  # + the final norm, which it leaves out


@pytest.mark.parametrize("name", entries("model"))
def test_every_model_of_the_catalogue_loads_and_states_its_source(name):
    model = load("model", name)
    assert model.num_parameters > 0 or name == "equal-blocks"
    assert model.sources, f"{name} has no sources"
    assert model.faults() == []


@pytest.mark.parametrize("name", entries("model"))
@pytest.mark.parametrize("tp", [2, 4])
def test_split_matrices_add_up_over_tensor_parallel_ranks(name, tp):
    model = load("model", name)
    if model.sharding_faults(tp, 1, 1) or not hasattr(model, "heads"):
        pytest.skip("not divisible, or no transformer, which is all that is split")
    block = next(layer for layer in model.layers() if layer.kind == "block")
    whole = block.parameters(Shard(micro_batch=1, sequence_length=64))
    part = block.parameters(Shard(micro_batch=1, sequence_length=64, tp=tp))
    everywhere = sum(m.inputs * m.outputs for m in block.modules if isinstance(m, ReplicatedLinear))
    assert (part.matrices - everywhere) * tp == whole.matrices - everywhere
    assert whole.vectors / tp <= part.vectors <= whole.vectors


def test_vocabulary_is_padded_to_a_multiple_of_128_times_tp():
    shard = Shard(micro_batch=1, sequence_length=64, tp=8)
    assert shard.padded_vocab(50257) == 51200
    assert Shard(micro_batch=1, sequence_length=64).padded_vocab(50257) == 50304


def test_tied_embedding_is_held_twice_only_when_the_head_is_on_another_stage():
    model = load("model", "gpt3-125m")
    head = model.layers()[-1]
    together = Shard(micro_batch=1, sequence_length=64, vocab_multiple=1)
    apart = Shard(micro_batch=1, sequence_length=64, vocab_multiple=1, separate_head=True)
    assert head.parameters(together).embeddings == 0
    assert head.parameters(apart).embeddings == model.vocab * model.hidden


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_begins_with_an_embedding_and_ends_with_a_loss_or_says_otherwise(family):
    example = {
        "bert": "bert-base",
        "gpt": "gpt3-125m",
        "llama": "llama3-8b",
        "moe": "mixtral-8x7b",
    }.get(family)
    if example is None:
        pytest.skip("tested with its family")
    kinds = [layer.kind for layer in load("model", example).layers()]
    assert kinds[0] == "embedding" and kinds[-1] == "head" and set(kinds[1:-1]) == {"block"}


def test_parameters_add_by_kind():
    assert Parameters(1, 2, 3, 4) + Parameters(10, 20, 30, 40) == Parameters(11, 22, 33, 44)
    assert Parameters(1, 2, 3, 4).total == 10
