"""Every entry of the catalog, names and their nearest, and configs in the Hugging Face format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.cli.catalog import gpus as gpus_command
from sim.cli.catalog import models as models_command
from sim.core.kv_cache_spec import FullAttentionSpec, MLAAttentionSpec, PlanningError, SlidingWindowSpec
from sim.timing.catalog import DATA, all_gpus, all_models, find_gpu, find_model
from sim.timing.hf_config import parse_hf_config, read_hf_config
from sim.timing.models import WEIGHT_FORMATS, weight_format

MODELS = all_models()
GPUS = all_gpus()


def test_there_are_the_models_and_gpus_that_people_serve() -> None:
    assert len(MODELS) >= 25
    for name in (
        *("Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B", "Llama-3.3-70B-Instruct", "Qwen2.5-7B", "Qwen2.5-72B"),
        *("Qwen3-32B", "Qwen3-30B-A3B", "Qwen3-235B-A22B", "Mistral-7B-v0.1", "Mixtral-8x7B", "gemma-2-9b"),
        *("gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "DeepSeek-V3", "DeepSeek-R1", "phi-4"),
        *("Qwen2.5-VL-7B", "llava-1.5-7b"),
    ):
        assert find_model(name).source
    for name in (
        *("A10G", "L4", "L40S", "A100-40GB", "A100-80GB", "H100", "H100 PCIe", "H200", "B200", "GB200"),
        *("MI300X", "MI325X", "RTX 4090", "RTX 6000 Ada"),
    ):
        assert find_gpu(name).source


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_models_parameters_agree_with_its_source(model: Any) -> None:
    if model.total_params_b is not None:
        vision = model.vision.params if model.vision else 0
        assert (model.total_params - vision) / 1e9 == pytest.approx(model.total_params_b, rel=0.003, abs=0.006)
    if model.active_params_b is not None:
        assert model.active_params / 1e9 == pytest.approx(model.active_params_b, rel=0.003, abs=0.006)
    assert model.weights in WEIGHT_FORMATS
    assert len(model.kv_cache_spec(16)) == model.num_hidden_layers
    assert model.weight_bytes("fp8") < model.weight_bytes("bf16") < model.weight_bytes("fp32")
    assert find_model(model.name).name == model.name


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_gpus_figures_are_plausible(gpu: Any) -> None:
    assert 8 <= gpu.memory_gib <= 512
    assert gpu.peak_flops("bf16") <= gpu.peak_flops("fp8") <= gpu.peak_flops("fp4")
    assert find_gpu(gpu.name).name == gpu.name


@pytest.mark.parametrize("folder", ["models", "gpus"])
def test_no_name_means_two_entries(folder: str) -> None:
    entries = MODELS if folder == "models" else GPUS
    names = [name.lower() for entry in entries for name in (entry.name, *entry.aliases)]
    assert len(set(names)) == len(names)
    assert len(list((DATA / folder).glob("*.yaml"))) == len(entries)


def test_names_are_found_without_case_organisation_and_tuning() -> None:
    for name in ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "LLAMA_3.1_8B", "Meta-Llama-3.1-8B"):
        assert find_model(name).name == "meta-llama/Meta-Llama-3.1-8B"
    assert find_model("Qwen3-32B-FP8").weights == "fp8"
    assert find_model("Qwen3-32B").weights == "bf16"
    assert find_model("Meta-Llama-3-8B").max_model_len == 8192


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Lama-3.1-8B", "nearest are .*Llama-3.1-8B.*config.json"),
        ("zzzzzzzz", "kvsim models"),
        ("Qwen3-33B", "Qwen3-32B"),
    ],
)
def test_an_unknown_model_is_told_the_nearest(name: str, words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        find_model(name)


def test_kinds_of_layers_become_specs_in_order() -> None:
    gemma = list(find_model("gemma-3-27b").kv_cache_spec(16).values())
    assert [isinstance(spec, FullAttentionSpec) for spec in gemma] == [i % 6 == 5 for i in range(62)]
    assert {spec.window for spec in gemma if isinstance(spec, SlidingWindowSpec)} == {1024}
    deepseek = set(find_model("deepseek-v3").kv_cache_spec(16, "fp8", 8).values())
    assert deepseek == {MLAAttentionSpec(16, 1, 576, 1)}
    assert set(find_model("llama-3.1-70b").kv_cache_spec(16, "auto", 16).values()) == {FullAttentionSpec(16, 1, 128, 2)}


def test_images_become_tokens() -> None:
    vision = find_model("Qwen2.5-VL-7B").vision
    assert vision is not None
    assert vision.image_tokens(1036, 1036) == 37 * 37
    assert vision.image_tokens(100_000, 100_000) == 16384
    assert vision.image_tokens(1, 1) == 1
    llava = find_model("llava-1.5-7b").vision
    assert llava is not None
    assert llava.image_tokens(4000, 20) == 576


def test_weight_formats_have_many_names() -> None:
    assert weight_format("AWQ") == "int4"
    assert weight_format("bfloat16") == "bf16"
    with pytest.raises(PlanningError, match="unknown weight format 'q2'"):
        weight_format("q2")


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": None}
CLIP = {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "image_size": 336, "patch_size": 14}


def test_a_llama_config_gives_the_catalogs_model() -> None:
    read, known = parse_hf_config(LLAMA, "config.json"), find_model("llama-3.1-8b")
    assert read.total_params == known.total_params
    assert read.kv_cache_spec(16) == known.kv_cache_spec(16)
    assert (read.weights, read.max_model_len) == ("bf16", 131072)


@pytest.mark.parametrize(
    ("changes", "sliding"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 32),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 8}, 0),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 8}, 24),
        ({"model_type": "gemma2", "sliding_window": 4096}, 16),
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 4}, 24),
        ({"model_type": "phi3", "sliding_window": None}, 0),
        (
            {
                "model_type": "gpt_oss",
                "sliding_window": 128,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            16,
        ),
    ],
)
def test_windows_follow_the_familys_rule(changes: dict[str, Any], sliding: int) -> None:
    assert parse_hf_config(LLAMA | changes, "c").sliding_layers == sliding


def test_experts_latent_attention_and_images_are_read() -> None:
    moe = parse_hf_config(LLAMA | MOE | {"model_type": "qwen3_moe"}, "c")
    assert moe.moe is not None
    assert (moe.moe.num_experts, moe.moe.experts_per_token, moe.moe.intermediate_size) == (8, 2, 512)
    mixtral = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert parse_hf_config(LLAMA | mixtral, "c").expert_params == 3 * 4096 * 14336
    deepseek = {"model_type": "deepseek_v3", "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 3}
    read = parse_hf_config(LLAMA | MLA | MOE | deepseek, "c")
    assert read.mla is not None
    assert read.moe_layers == 29
    llava = {"model_type": "llava", "vision_config": CLIP, "text_config": LLAMA}
    assert parse_hf_config(llava, "c").vision.image_tokens(1, 1) == 576  # type: ignore[union-attr]
    qwen_vision = {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "spatial_merge_size": 2,
        "patch_size": 14,
    }
    qwen = parse_hf_config(LLAMA | {"model_type": "qwen2_5_vl", "vision_config": qwen_vision}, "c")
    assert qwen.vision is not None
    assert qwen.vision.pixels_per_token == 784
    gemma = {"model_type": "gemma3", "vision_config": CLIP | {"image_size": 896}, "mm_tokens_per_image": 256}
    text = LLAMA | {"model_type": "gemma3_text", "sliding_window": 1024, "sliding_window_pattern": 6}
    assert parse_hf_config(gemma | {"text_config": text}, "c").vision.patches_per_token == 16  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_quantization_says_how_weights_are_stored(quantization: dict[str, Any], weights: str) -> None:
    assert parse_hf_config(LLAMA | {"quantization_config": quantization}, "c").weights == weights


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"]}, "Mamba2ForCausalLM .*known are llama"),
        ({"model_type": None}, "model_type is missing"),
        ({"hidden_size": None, "vocab_size": None}, "needs hidden_size, vocab_size, missing"),
        ({"model_type": "gpt_oss", "sliding_window": 128}, "needs layer_types"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention are not known"),
        ({"model_type": "qwen3_moe", "num_experts": 8}, "needs num_experts_per_tok"),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "latent attention needs qk_rope_head_dim"),
        ({"model_type": "llava"}, "needs vision_config"),
        ({"model_type": "llava", "vision_config": {}}, "its vision_config needs num_hidden_layers"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization magic"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        ({"hidden_size": 4095}, "not a multiple"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2} | MOE, "only some layers"),
    ],
)
def test_what_a_config_lacks_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanningError, match=words) as caught:
        parse_hf_config(LLAMA | changes, "here/config.json")
    assert str(caught.value).startswith("here/config.json: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{", "not JSON"), (b"[]", "expected an object"), (b"\xff\xfe", "not JSON"), (None, "No such")],
)
def test_files_that_are_no_config_are_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanningError, match=words):
        read_hf_config(path)
    with pytest.raises(PlanningError, match=words):
        find_model(str(path))


def test_the_lists_are_printed(tmp_path: Path) -> None:
    text = CliRunner().invoke(models_command, [], catch_exceptions=False).output
    assert len(text.splitlines()) == len(MODELS) + 1
    entries = json.loads(CliRunner().invoke(models_command, ["deepseek-v3", "--json"], catch_exceptions=False).output)
    assert entries[0]["mla"]["kv_lora_rank"] == 512
    shown = CliRunner().invoke(models_command, ["phi-4"], catch_exceptions=False).output
    assert "recalled" in shown
    assert len(CliRunner().invoke(gpus_command, [], catch_exceptions=False).output.splitlines()) == len(GPUS) + 1
    assert "bandwidth_gbps         300.0" in CliRunner().invoke(gpus_command, ["l4"], catch_exceptions=False).output
    assert (
        json.loads(CliRunner().invoke(gpus_command, ["l4", "--json"], catch_exceptions=False).output)[0]["name"] == "L4"
    )
