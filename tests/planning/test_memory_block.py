"""The `memory:` block: three ways to say it, their account, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from sim.cli.plan import command as plan_command
from sim.core.kv_cache_spec import GIB, PlanningError
from sim.errors import KvsimError
from sim.timing.catalog import find_model
from sim.timing.memory import MemoryConfig, activation_bytes, parse_size, plan_memory


def planned(engine: dict[str, Any] | None = None, **memory: Any) -> Any:
    return plan_memory(MemoryConfig(**memory), **(engine or {}))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10.5GiB", int(10.5 * GIB)),
        ("40GB", 40 * 10**9),
        ("512MiB", 512 << 20),
        (4096, 4096),
        ("2 TiB", 2 << 40),
        ("7", 7),
    ],
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "10 gigs", "-1GiB", "0", 0, -5, True, None, 1.5, "1e", "nanGiB", "10G"])
def test_other_sizes_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_a_gpu_keeps_for_the_cache_what_weights_and_reserve_leave() -> None:
    plan = planned(model="llama-3.1-8b", gpu="h100", gpu_memory_utilization=0.8, engine={"max_model_len": 8192})
    account = plan.account
    model = find_model("llama-3.1-8b")
    assert account.usable_bytes == int(80 * GIB * 0.8)
    assert account.weights_bytes == model.weight_bytes()
    assert account.reserve_bytes == GIB + activation_bytes(model, 8192, 256)
    left = account.usable_bytes - account.weights_bytes - account.reserve_bytes
    assert account.kv_cache_bytes == (left,)
    assert plan.num_gpu_blocks == left // (32 * 65536)
    assert plan.groups == ({"kind": "full", "block_size": 16},)


def test_stated_figures_win_over_estimates() -> None:
    plan = planned(model="llama-3.1-8b", gpu="h100", weights_memory="20GiB", reserve="2GiB")
    assert plan.account.kv_cache_bytes == (50 * GIB,)
    assert "as configured" in "\n".join(plan.account.lines())


def test_tensor_parallel_divides_weights_and_heads() -> None:
    one = planned(model="llama-3.1-8b", gpu="h100")
    four = planned(model="llama-3.1-8b", gpu="h100", tensor_parallel_size=4)
    assert four.account.page_size_bytes * 4 == one.account.page_size_bytes
    assert four.account.weights_bytes == one.account.weights_bytes // 4


def test_a_hybrid_model_gives_the_engine_its_groups() -> None:
    plan = planned(model="gpt-oss-20b", kv_cache_memory="10.5GiB", engine={"max_model_len": 8192})
    assert plan.groups == (
        {"kind": "sliding_window", "block_size": 16, "window": 128},
        {"kind": "full", "block_size": 16},
    )
    assert plan.num_gpu_blocks == int(10.5 * GIB) // (12 * 32768)


def test_several_workers_use_the_smallest() -> None:
    plan = planned(model="llama-3.1-8b", kv_cache_memory=["24GiB", "22.5GiB"], engine={"max_model_len": 8192})
    assert plan.num_gpu_blocks == 11520
    assert "smallest worker" in "\n".join(plan.account.lines())


def test_a_geometry_stands_in_for_a_model() -> None:
    geometry = {"num_layers": 4, "num_kv_heads": 2, "head_size": 8, "attention_pattern": ["full", "sliding"]}
    plan = planned(
        kv_cache_memory="1MiB",
        geometry=geometry | {"sliding_window": 32},
        engine={"max_model_len": 64, "block_size": 4},
    )
    assert plan.num_gpu_blocks == (1 << 20) // (2 * 2 * 4 * 2 * 8 * 2)
    with pytest.raises(ValidationError, match="belong together"):
        planned(kv_cache_memory="1MiB", geometry=geometry)
    with pytest.raises(PlanningError, match="neither divides"):
        planned(
            kv_cache_memory="1MiB",
            tensor_parallel_size=3,
            geometry={"num_layers": 1, "num_kv_heads": 2, "head_size": 8},
            engine={"max_model_len": 64},
        )


def test_a_number_alone_plans_nothing_and_leaves_the_groups_to_the_engine() -> None:
    plan = planned(num_gpu_blocks=1000, engine={"max_model_len": 8192})
    assert (plan.num_gpu_blocks, plan.groups) == (1000, None)
    assert plan.account.max_concurrency == pytest.approx(1000 / 512)
    with_model = planned(num_gpu_blocks=1000, model="gpt-oss-20b", engine={"max_model_len": 4096})
    assert with_model.num_gpu_blocks == 1000
    assert with_model.groups is not None


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (
            {"num_gpu_blocks": 9, "kv_cache_memory": "1GiB", "model": "m"},
            r"num_gpu_blocks \(9\).*1\.00 GiB.*contradict",
        ),
        ({"kv_cache_memory": "1GiB"}, "needs a model or a geometry"),
        ({"model": "llama-3.1-8b"}, "or a model and a gpu"),
        ({"num_gpu_blocks": 9, "gpu_memory_utilization": 0.5}, "gpu_memory_utilization would do nothing"),
        ({"kv_cache_memory": "1GiB", "model": "m", "reserve": "1GiB"}, "reserve would do nothing"),
        ({"model": "m", "gpu": "g", "gpu_memory_utilization": 1.2}, "less than or equal to 1"),
        ({"model": "m", "gpu": "g", "gpu_memory_utilization": -0.2}, "greater than 0"),
        ({"num_gpu_blocks": 1}, "greater than or equal to 2"),
        ({"kv_cache_memory": [], "model": "m"}, "empty list"),
        ({"kv_cache_memory": "-3GiB", "model": "m"}, "not a size"),
        ({"model": "m", "gpu": "g", "kv_cache_dtype": "fp7"}, "unknown kv_cache_dtype 'fp7'"),
        ({"model": "m", "gpu": "g", "dtype": "fp7"}, "unknown weight format 'fp7'"),
        ({"model": "m", "gpu": "g", "tensor_parallel_size": 0}, "greater than or equal to 1"),
    ],
)
def test_contradictions_and_absurd_figures_are_refused(memory: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        MemoryConfig(**memory)


@pytest.mark.parametrize(
    ("memory", "engine", "words"),
    [
        ({"model": "llama-3.1-70b", "gpu": "h100"}, {}, r"131\.41 GiB of bf16 weights.*72\.00 GiB.*size 2 would leave"),
        ({"model": "llama-3.1-70b", "gpu": "h100", "tensor_parallel_size": 3}, {}, "3 does not divide the 64"),
        ({"model": "qwen2.5-7b", "gpu": "h100", "tensor_parallel_size": 14}, {}, "the 4 key/value heads"),
        ({"model": "lama-3.1-8b", "gpu": "h100"}, {}, "unknown model 'lama-3.1-8b'.*Llama-3.1-8B"),
        ({"model": "llama-3.1-8b", "gpu": "h1000"}, {}, "unknown GPU 'h1000'.*H100"),
        ({"model": "llama-3.1-8b", "gpu": "h100", "kv_cache_memory": "99GiB"}, {}, "99.00 GiB is more than one H100"),
        ({"model": "llama-3.1-8b", "kv_cache_memory": "1GiB"}, {"max_model_len": 8192}, "model length is 8176"),
        ({"model": "MiMo-7B-Base", "num_gpu_blocks": 50}, {"num_gpu_blocks_override": 60}, "contradict"),
    ],
)
def test_what_cannot_be_planned_is_one_line_with_numbers(
    memory: dict[str, Any], engine: dict[str, Any], words: str
) -> None:
    with pytest.raises(KvsimError, match=words) as caught:
        planned(engine=engine, **memory)
    assert "\n" not in str(caught.value)


def test_the_account_has_the_same_numbers_as_text_and_as_json() -> None:
    arguments = ["--model", "gpt-oss-120b", "--gpu", "h100", "-tp", "2"]
    text = CliRunner().invoke(plan_command, arguments, catch_exceptions=False).output
    figures = json.loads(CliRunner().invoke(plan_command, [*arguments, "--json"], catch_exceptions=False).output)
    assert f"{figures['num_blocks']:,}" in text
    assert f"{figures['size_tokens']:,}" in text
    for word in ("usable", "− weights", "− reserve", "= KV cache", "page", "group 1", "concurrency"):
        assert word in text
    assert [group["layers"] for group in figures["groups"]] == [18, 18]


def test_a_serve_line_plans_too() -> None:
    line = "vllm serve Qwen/Qwen3-32B -tp 4 --block-size 32 --max-model-len 8k --port 80 --max-loras 2"
    result = CliRunner().invoke(plan_command, ["--serve", line, "--gpu", "h100"], catch_exceptions=False)
    assert "32 tokens a block" in result.stdout
    assert "8,000" in result.stdout
    assert "--port 80" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "llama-3.1-8b", "--gpu", "h100", "--block-size", "-3"], "--block-size: -3"),
        (["--model", "llama-3.1-8b", "--gpu", "h100", "--gpu-memory-utilization", "7"], "--gpu-memory-utilization.*7"),
        (["--model", "llama-3.1-8b", "--kv-cache-memory", "lots"], "--kv-cache-memory: 'lots' is not a size"),
        (["--gpu", "h100"], "or a model and a gpu"),
    ],
)
def test_bad_options_are_named(arguments: list[str], words: str) -> None:
    with pytest.raises(KvsimError, match=words):
        CliRunner().invoke(plan_command, arguments, catch_exceptions=False)


def test_a_local_config_is_planned(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "max_position_embeddings": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = plan_memory(MemoryConfig(model="config.json", kv_cache_memory="1MiB"), base=tmp_path)
    assert plan.max_model_len == 256
    assert plan.num_gpu_blocks == (1 << 20) // (2 * 2 * 16 * 4 * 16 * 2)
