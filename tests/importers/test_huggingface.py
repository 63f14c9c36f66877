"""A config.json becomes the description that the catalogue has of the same model."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.cli.import_ import app
from simulator.description import load
from simulator.importers.huggingface import ConfigFault, read_config

# The keys that matter of the published files.
LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "vocab_size": 128256,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": LLAMA,
    "mistral-7b": LLAMA
    | {
        "model_type": "mistral",
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
    },
    "qwen2.5-7b": LLAMA
    | {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 32768,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "vocab_size": 152064,
    },
    "qwen3-30b-a3b": LLAMA
    | {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "head_dim": 128,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        "vocab_size": 151936,
    },
    "mixtral-8x7b": LLAMA
    | {
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "sliding_window": None,
    },
    "deepseek-v3": LLAMA
    | {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_group": 8,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "topk_group": 4,
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "bloom-176b": {
        "model_type": "bloom",
        "hidden_size": 14336,
        "n_layer": 70,
        "n_head": 112,
        "seq_length": 2048,
        "vocab_size": 250880,
    },
}


def written(folder: Path, config: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("name", CONFIGS)
def test_it_has_the_parameters_and_shapes_of_the_catalogue(name: str, tmp_path: Path) -> None:
    out = tmp_path / "model.yaml"
    result = CliRunner().invoke(
        app, ["huggingface", str(written(tmp_path, CONFIGS[name])), "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    read, known = load("model", str(out)), load("model", name)
    assert read.num_parameters == known.num_parameters
    ignored = {"name", "sources", "max_sequence", "ffn"}
    assert read.model_dump(exclude=ignored) == known.model_dump(exclude=ignored)


@pytest.mark.parametrize(
    ("scaling", "scaled"),
    [
        (None, False),
        ({"rope_type": "llama3", "factor": 8.0}, False),
        ({"type": "yarn", "factor": 4.0}, True),
        ({"rope_type": "yarn", "factor": 32.0, "attention_factor": 1.0}, False),
        ({"rope_type": "yarn", "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0}, False),
    ],
)
def test_yarn_scales_cosines_and_sines_unless_its_factor_is_one(
    scaling: object, scaled: bool, tmp_path: Path
) -> None:
    config = read_config(written(tmp_path, LLAMA | {"rope_scaling": scaling}))
    assert config.get("rotary_factor", False) == scaled


def test_without_a_file_to_write_it_is_printed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["huggingface", str(written(tmp_path, LLAMA))])
    assert result.stdout.startswith("kind: model\nfamily: llama\n")


def test_gpt2_has_learned_positions_and_a_tied_table(tmp_path: Path) -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    out = tmp_path / "gpt2.yaml"
    CliRunner().invoke(app, ["huggingface", str(written(tmp_path, config)), "--out", str(out)])
    assert load("model", str(out)).num_parameters == 124_439_808  # openai-community/gpt2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_size": 1}, r"no model_type"),
        ([1], r"no model_type"),
        ({"model_type": "mamba"}, r"'mamba' is not understood; these are: llama, .*bloom"),
        (LLAMA | {"hidden_size": None}, r"hidden_size is missing"),
        (LLAMA | {"vocab_size": "many"}, r"vocab_size: 'many' is no positive whole number"),
        (LLAMA | {"tie_word_embeddings": 1}, r"tie_word_embeddings: 1 is neither true nor false"),
        (LLAMA | {"rope_scaling": "yarn"}, r"rope_scaling: 'yarn' is no mapping"),
        (LLAMA | {"hidden_act": "relu"}, r"hidden_act: 'relu' is not described; only 'silu'"),
    ],
)
def test_faults_name_file_and_key(config: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=rf"config\.json: .*{message}"):
        read_config(written(tmp_path, config))


def test_a_broken_file_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{")
    result = CliRunner().invoke(app, ["huggingface", str(file)])
    assert result.exit_code == 2
    assert "cannot be read as JSON" in result.output
