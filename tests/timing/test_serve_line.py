"""Command lines of `vllm serve`: what is followed, what is ignored, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sim.timing.serve_line import ServeLineError, parse_serve_line


def test_flags_that_matter_set_engine_and_memory() -> None:
    line = (
        "VLLM_LOGGING_LEVEL=DEBUG vllm serve meta-llama/Llama-3.1-8B-Instruct --block-size 32 --max-num-seqs=128"
        " --max_num_batched_tokens 2k -tp 2 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8"
        " --no-enable-prefix-caching --scheduling-policy priority --max-model-len 32K"
    )
    found = parse_serve_line(line)
    assert found.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert found.engine == {
        "block_size": 32,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2000,
        "enable_prefix_caching": False,
        "scheduling_policy": "priority",
        "max_model_len": 32768,
    }
    assert found.memory == {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.92, "kv_cache_dtype": "fp8"}
    assert found.notes() == []


def test_the_line_may_be_broken_and_its_start_left_out() -> None:
    assert parse_serve_line("vllm serve m \\\n  --block-size 8").engine == {"block_size": 8}
    assert parse_serve_line("m --block-size 8").engine == {"block_size": 8}
    assert parse_serve_line("python -m vllm.entrypoints.openai.api_server --model m").model == "m"


def test_flags_that_do_not_matter_are_listed() -> None:
    found = parse_serve_line("vllm serve m --port 8000 --trust-remote-code -O3 --seed -3 --dtype auto --enforce-eager")
    assert found.engine == {}
    assert found.memory == {}
    assert found.ignored == (
        ("--port", "8000"),
        ("--trust-remote-code", None),
        ("-O3", None),
        ("--seed", "-3"),
        ("--dtype", "auto"),
        ("--enforce-eager", None),
    )
    assert "--port 8000" in found.notes()[0]
    assert parse_serve_line("m --compilation-config.mode 3").ignored == (("--compilation-config", "3"),)


@pytest.mark.parametrize(
    ("flags", "engine", "memory"),
    [
        ("--enable-lora", {"max_loras": 1}, {}),
        ("--enable-lora --max-loras 4", {"max_loras": 4}, {}),
        ("--max-loras 4", {}, {}),
        ("--quantization awq --dtype float16", {}, {"dtype": "awq"}),
        ("--dtype float32", {}, {"dtype": "float32"}),
        ("--kv-cache-memory-bytes 10G --gpu-memory-utilization 0.5", {}, {"kv_cache_memory": 10 << 30}),
        ("--kv-cache-memory-bytes 10000000", {}, {"kv_cache_memory": 10_000_000}),
        ("--enable-chunked-prefill=false", {"enable_chunked_prefill": False}, {}),
        ("--pipeline-parallel-size 1 -dp 1", {}, {}),
        ("--block-size 16 --block-size 16", {"block_size": 16}, {}),
    ],
)
def test_what_flags_mean_together(flags: str, engine: dict[str, Any], memory: dict[str, Any]) -> None:
    found = parse_serve_line(f"vllm serve m {flags}")
    assert (found.engine, found.memory) == (engine, memory)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vllm serve m --blok-size 16", "unknown flag --blok-size: did you mean --block-size"),
        ("vllm serve m --no-enable-prefx-caching", "did you mean --no-enable-prefix-caching"),
        ("vllm serve m --zzz", "unknown flag --zzz"),
        ("vllm serve m --block-size", "--block-size needs a value"),
        ("vllm serve m --block-size --port 3", "--block-size needs a value"),
        ("vllm serve m --block-size many", "--block-size many: not a number"),
        ("vllm serve --block-size 3", "no model"),
        ("", "no model"),
        ("vllm serve m other", "'other' follows no flag"),
        ("vllm bench serve", "expected `vllm serve MODEL"),
        ("vllm serve 'm", "No closing quotation"),
        ("vllm serve m --block-size 16 --block-size 32", "32 contradicts the --block-size 16"),
        ("vllm serve m --no-block-size", "--block-size takes a value"),
        ("vllm serve m --enable-prefix-caching=maybe", "expected true, false"),
        ("vllm serve m --speculative-config {}", "speculative decoding is not simulated"),
        ("vllm serve m -pp 2", "pipeline parallelism is not simulated"),
        ("vllm serve m --kv-transfer-config={}", "KV connectors is not simulated"),
        ("vllm serve m --kv-cache-memory-bytes 3x", "not a number"),
    ],
)
def test_what_cannot_be_followed_is_one_line(line: str, words: str) -> None:
    with pytest.raises(ServeLineError, match=words):
        parse_serve_line(line)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ServeLineError) as caught:
        parse_serve_line("vllm serve m --blok-size 16 --max-num-seqs x -pp 4")
    assert len(str(caught.value).splitlines()) == 3
