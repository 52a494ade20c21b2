"""Read a model's geometry from a `config.json` in the Hugging Face format.

Known are the families of `_FAMILIES`, alone or as the text part of a model with an image encoder.
Nothing is guessed: a family that isn't known, or a field that is missing, is an error that names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.core.kv_cache_spec import PlanningError
from sim.timing.models import LayerKind, ModelSpec, weight_format

# model_type → whether embedding and LM head are one where the file doesn't say (the family's default)
_FAMILIES = {
    "llama": False,
    "mistral": False,
    "mixtral": False,
    "qwen2": False,
    "qwen2_moe": False,
    "qwen3": False,
    "qwen3_moe": False,
    "phi3": False,
    "gemma": True,
    "gemma2": True,
    "gemma3_text": True,
    "gpt_oss": False,
    "deepseek_v2": False,
    "deepseek_v3": False,
    "kimi_k2": False,
}
# model_type of a model with an image encoder → its text family, where the text part doesn't name one itself
_WITH_IMAGES = {
    "llava": "llama",
    "llava_next": "llama",
    "gemma3": "gemma3_text",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
}
_TEXT_NAMES = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2"}

_REQUIRED = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)


def read_hf_config(path: Path) -> ModelSpec:
    """The model that this `config.json`, or the one in this folder, describes.

    Raises `PlanningError` for a file that can't be read, a family that isn't known, or missing fields.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanningError(f"{file}: {error.strerror or error}; expected a Hugging Face config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PlanningError(f"{file}: not JSON ({error})") from None
    if not isinstance(config, dict):
        raise PlanningError(f"{file}: expected an object, found {type(config).__name__}")
    return parse_hf_config(config, str(file))


def parse_hf_config(config: Mapping[str, Any], where: str) -> ModelSpec:
    """As `read_hf_config`, from the parsed object; `where` names it in errors."""
    kind = config.get("model_type")
    if kind is None:
        raise PlanningError(f"{where}: model_type is missing, so the architecture is unknown")
    vision = None
    text: Mapping[str, Any] = config
    if kind in _WITH_IMAGES:
        vision = _vision(config, kind, where)
        inner = config.get("text_config")
        text = {**config, **inner} if isinstance(inner, dict) else config
        family = text.get("model_type") if isinstance(inner, dict) and "model_type" in inner else _WITH_IMAGES[kind]
        family = _TEXT_NAMES.get(str(family), family)
    else:
        family = kind
    if family not in _FAMILIES:
        names = config.get("architectures") or [kind]
        raise PlanningError(
            f"{where}: architecture {names[0]} (model_type {family!r}) is not known;"
            f" known are {', '.join([*_FAMILIES, *_WITH_IMAGES])}"
        )
    missing = [name for name in _REQUIRED if text.get(name) is None]
    if missing:
        raise PlanningError(f"{where}: a {family} needs {', '.join(missing)}, missing in the file")
    fields: dict[str, Any] = {name: text[name] for name in _REQUIRED}
    fields |= {
        "name": str(config.get("_name_or_path") or Path(where).parent.name or where),
        "source": where,
        "num_key_value_heads": text.get("num_key_value_heads") or text["num_attention_heads"],
        "head_dim": text.get("head_dim"),
        "tie_word_embeddings": text.get("tie_word_embeddings", _FAMILIES[str(family)]),
        "max_model_len": text.get("max_position_embeddings"),
        "moe": _moe(text, where),
        "mla": _mla(text, where),
        "vision": vision,
        "weights": _weights(config, text, where),
    }
    fields |= _attention(text, str(family), where)
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "config"
        raise PlanningError(f"{where}: {name}: {first['msg']} (found {first['input']!r:.80})") from None


def _repeat(kind: LayerKind, count: int) -> list[LayerKind]:
    return [kind] * count


def _need(config: Mapping[str, Any], names: tuple[str, ...], what: str, where: str) -> dict[str, Any]:
    missing = [name for name in names if config.get(name) is None]
    if missing:
        raise PlanningError(f"{where}: {what} needs {', '.join(missing)}, missing in the file")
    return {name: config[name] for name in names}


def _attention(text: Mapping[str, Any], family: str, where: str) -> dict[str, Any]:
    """Kinds of the layers, and the window of sliding ones."""
    layers = text["num_hidden_layers"]
    window = text.get("sliding_window")
    if text.get("use_sliding_window") is False:
        window = None
    kinds: list[LayerKind]
    if text.get("layer_types"):
        unknown = sorted(set(text["layer_types"]) - {"full_attention", "sliding_attention"})
        if unknown:
            raise PlanningError(f"{where}: layers of kind {', '.join(unknown)} are not known, only full and sliding")
        kinds = ["sliding" if name == "sliding_attention" else "full" for name in text["layer_types"]]
    elif window is None:
        kinds = ["full"]
    elif family == "gemma2":
        kinds = ["sliding", "full"]
    elif family == "gemma3_text":
        every = text.get("sliding_window_pattern", 6)
        kinds = [*_repeat("sliding", every - 1), "full"]
    elif family in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        first = min(_need(text, ("max_window_layers",), "a sliding window", where)["max_window_layers"], layers)
        kinds = _repeat("full", first) + _repeat("sliding", layers - first)
    elif family == "gpt_oss":
        raise PlanningError(f"{where}: a gpt_oss needs layer_types, missing in the file")
    else:
        kinds = ["sliding"]
    if "sliding" not in kinds:
        return {"attention_pattern": tuple(kinds)}
    if window is None:
        raise PlanningError(f"{where}: sliding layers need sliding_window, missing in the file")
    return {"attention_pattern": tuple(kinds), "sliding_window": window}


def _moe(text: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    experts = next((text[n] for n in ("n_routed_experts", "num_local_experts", "num_experts") if text.get(n)), None)
    if experts is None:
        return None
    if text.get("decoder_sparse_step", 1) != 1 or text.get("moe_layer_freq", 1) != 1 or text.get("mlp_only_layers"):
        raise PlanningError(f"{where}: experts in only some layers (decoder_sparse_step, moe_layer_freq) are not known")
    active = _need(text, ("num_experts_per_tok",), "a mixture of experts", where)["num_experts_per_tok"]
    size = text.get("moe_intermediate_size") or text["intermediate_size"]
    shared = text.get("n_shared_experts") or round((text.get("shared_expert_intermediate_size") or 0) / size)
    return {
        "num_experts": experts,
        "experts_per_token": active,
        "intermediate_size": size,
        "shared_experts": shared,
        "dense_layers_first": text.get("first_k_dense_replace", 0),
    }


def _mla(text: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    if text.get("kv_lora_rank") is None:
        return None
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return _need(text, names, "latent attention", where) | {"q_lora_rank": text.get("q_lora_rank")}


def _vision(config: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        raise PlanningError(f"{where}: a {kind} needs vision_config, missing in the file")
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        vision = {"spatial_merge_size": 2, "patch_size": 14, **vision}
        if kind == "qwen2_vl" and "embed_dim" in vision:
            wide = int(vision["embed_dim"] * vision.get("mlp_ratio", 4))
            vision = {**vision, "hidden_size": vision["embed_dim"], "intermediate_size": wide}
        found = _need(vision, ("depth", "hidden_size", "intermediate_size"), "its vision_config", where)
        merge = vision["spatial_merge_size"]
        return {
            "layers": found["depth"],
            "hidden_size": found["hidden_size"],
            "intermediate_size": found["intermediate_size"],
            "patches_per_token": merge**2,
            "pixels_per_token": (merge * vision["patch_size"]) ** 2,
            "max_tokens_per_image": 16384,  # max_pixels of the family's preprocessor, 12,845,056, / 784
        }
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "image_size", "patch_size")
    found = _need(vision, names, "its vision_config", where)
    patches = (found["image_size"] // found["patch_size"]) ** 2
    tokens = config.get("mm_tokens_per_image", 256) if kind == "gemma3" else patches
    return {
        "layers": found["num_hidden_layers"],
        "hidden_size": found["hidden_size"],
        "intermediate_size": found["intermediate_size"],
        "patches_per_token": max(patches // tokens, 1),
        "tokens_per_image": tokens,
    }


def _weights(config: Mapping[str, Any], text: Mapping[str, Any], where: str) -> str:
    quantization = config.get("quantization_config") or text.get("quantization_config")
    if not quantization:
        dtype = str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or "bfloat16")
        return weight_format(dtype)
    method = str(quantization.get("quant_method", "")).lower()
    bits = quantization.get("bits")
    if method == "compressed-tensors":
        groups = list((quantization.get("config_groups") or {}).values())
        weights = (groups[0].get("weights") if groups else None) or {}
        bits = weights.get("num_bits")
        if bits in (4, 8):
            return {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4", (4, "int"): "int4"}.get(
                (bits, weights.get("type", "int")), "int8"
            )
    if method in ("gptq", "awq") and bits in (4, 8):
        return "int4" if bits == 4 else "int8"
    if method in ("fp8", "mxfp4", "awq", "modelopt"):
        return weight_format(method)
    raise PlanningError(
        f"{where}: quantization {method or '?'} with {bits or '?'} bits is not known; name it with dtype"
    )
