"""A model's `config.json`, as Hugging Face's transformers library writes it, as a model description.

Read are the keys that shape the computation; what the family of the description fixes (norms, activations, dropout) is
checked where the file says it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]

GATED = "llama", "mistral", "qwen2", "qwen3"
EXPERTS = "mixtral", "qwen3_moe"
LATENT = "deepseek_v2", "deepseek_v3"
OTHER = "gpt2", "bloom"
TYPES = (*GATED, *EXPERTS, *LATENT, *OTHER)
"""Values of `model_type` that are understood."""


class ConfigFault(ValueError):
    """A file that is no such configuration, or of a model that no family describes."""


def read_config(path: Path) -> dict[str, Any]:
    """The keys of a model description (`kind: model`), in the order in which the catalogue writes them.

    Raises ConfigFault naming the file and the key that is missing, has another type, or means what is not described.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigFault(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise ConfigFault(f"{path}: no model_type; expected the config.json of a transformers model")
    kind = config["model_type"]
    if kind not in TYPES:
        raise ConfigFault(f"{path}: model_type {kind!r} is not understood; these are: {', '.join(TYPES)}")
    keys = _Keys(path, config)
    if kind == "gpt2":
        return _gpt2(keys)
    if kind == "bloom":
        return _bloom(keys)
    return _gated(keys, kind)


class _Keys:
    """Typed access to a configuration whose faults name file and key."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config

    def count(self, key: str, *others: str) -> int:
        """A positive number that must be there, under one of several names."""
        for name in (key, *others):
            if self.config.get(name) is not None:
                return self._checked(name)
        raise ConfigFault(f"{self.path}: {key} is missing")

    def optional(self, key: str) -> int | None:
        return None if self.config.get(key) is None else self._checked(key)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise ConfigFault(f"{self.path}: {key}: {value!r} is neither true nor false")
        return value

    def must_be(self, key: str, *values: object) -> None:
        """Refuse what the family does not describe; a key that is left out is what the family has."""
        if key in self.config and self.config[key] not in values:
            expected = " or ".join(map(repr, values))
            raise ConfigFault(f"{self.path}: {key}: {self.config[key]!r} is not described; only {expected}")

    def scales_angles(self) -> bool:
        """Whether cosines and sines carry a factor: YaRN's, 0.1 ln(factor) + 1 unless the file gives another."""
        scaling = self.config.get("rope_scaling") or {}
        if not isinstance(scaling, dict):
            raise ConfigFault(f"{self.path}: rope_scaling: {scaling!r} is no mapping")
        if scaling.get("rope_type", scaling.get("type")) != "yarn":
            return False
        if scaling.get("attention_factor") is not None:
            return bool(scaling["attention_factor"] != 1)
        whole, part = scaling.get("mscale_all_dim"), scaling.get("mscale")
        return not (whole and part and whole == part) and scaling.get("factor") != 1

    def _checked(self, key: str) -> int:
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigFault(f"{self.path}: {key}: {value!r} is no positive whole number")
        return value


def _gated(keys: _Keys, kind: str) -> dict[str, Any]:
    """Llama and its relatives, dense or with experts, with grouped or latent attention."""
    keys.must_be("hidden_act", "silu")
    keys.must_be("mlp_bias", False)
    heads = keys.count("num_attention_heads")
    hidden = keys.count("hidden_size")
    model: dict[str, Any] = {
        "kind": "model",
        "family": "llama" if kind in GATED else "moe",
        "layers": keys.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
    }
    if kind in LATENT:
        model["latent"] = _latent(keys)
    else:
        model |= _grouped(keys, kind, hidden, heads)
    if kind in GATED or kind in LATENT:
        model["ffn"] = keys.count("intermediate_size")
    if kind not in GATED:
        model |= _experts(keys, kind)
    if keys.flag("tie_word_embeddings"):
        model["tied_embeddings"] = True
    return model | _vocabulary(keys, "max_position_embeddings")


def _grouped(keys: _Keys, kind: str, hidden: int, heads: int) -> dict[str, Any]:
    found: dict[str, Any] = {"kv_heads": keys.optional("num_key_value_heads") or heads}
    width = keys.optional("head_dim")
    if width is not None and width * heads != hidden:
        found["head_dim"] = width
    if kind.startswith("qwen3"):
        found["qk_norm"] = True
    if kind == "qwen2" or keys.flag("attention_bias"):
        found["qkv_bias"] = True
        if kind != "qwen2":
            found["projection_bias"] = True
    if keys.scales_angles():
        found["rotary_factor"] = True
    window = keys.optional("sliding_window")
    if window is not None and keys.flag("use_sliding_window", default=kind == "mistral"):
        found["sliding_window"] = window
    return found


def _latent(keys: _Keys) -> dict[str, int]:
    found = {
        "key_value_rank": keys.count("kv_lora_rank"),
        "rope": keys.count("qk_rope_head_dim"),
        "plain": keys.count("qk_nope_head_dim"),
        "value": keys.count("v_head_dim"),
    }
    rank = keys.optional("q_lora_rank")
    return found if rank is None else {"query_rank": rank, **found}


def _experts(keys: _Keys, kind: str) -> dict[str, Any]:
    if kind == "mixtral":
        return {
            "experts": keys.count("num_local_experts"),
            "top_k": keys.count("num_experts_per_tok"),
            "expert_ffn": keys.count("intermediate_size"),
        }
    keys.must_be("decoder_sparse_step", 1)
    keys.must_be("mlp_only_layers", [])
    keys.must_be("moe_layer_freq", 1)
    width = keys.count("moe_intermediate_size")
    found = {
        "experts": keys.count("num_experts", "n_routed_experts"),
        "top_k": keys.count("num_experts_per_tok"),
        "expert_ffn": width,
    }
    if kind in LATENT:
        found["dense_layers"] = keys.optional("first_k_dense_replace") or 0
        found["shared_ffn"] = width * (keys.optional("n_shared_experts") or 0)
        found["expert_groups"] = keys.optional("n_group") or 1
        found["groups_per_token"] = keys.optional("topk_group") or 1
        found["choice_correction"] = kind == "deepseek_v3"
    return found


def _gpt2(keys: _Keys) -> dict[str, Any]:
    keys.must_be("activation_function", "gelu_new", "gelu")
    model: dict[str, Any] = {
        "kind": "model",
        "family": "gpt",
        "layers": keys.count("n_layer"),
        "hidden": keys.count("n_embd"),
        "heads": keys.count("n_head"),
    }
    ffn = keys.optional("n_inner")
    if ffn is not None:
        model["ffn"] = ffn
    return model | _vocabulary(keys, "n_positions")


def _bloom(keys: _Keys) -> dict[str, Any]:
    model: dict[str, Any] = {
        "kind": "model",
        "family": "gpt",
        "layers": keys.count("n_layer", "num_hidden_layers"),
        "hidden": keys.count("hidden_size", "n_embed"),
        "heads": keys.count("n_head", "num_attention_heads"),
        "positions": "alibi",
        "embedding_norm": True,
    }
    # The position bias knows no longest sequence; training's is written where the file says it.
    length = keys.optional("seq_length") or 2048
    return model | {"vocab": keys.count("vocab_size"), "max_sequence": length}


def _vocabulary(keys: _Keys, positions: str) -> dict[str, Any]:
    return {"vocab": keys.count("vocab_size"), "max_sequence": keys.count(positions)}
