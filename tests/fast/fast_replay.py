"""Requests and engines of recordings for the fast path, used by its tests."""

from pathlib import Path

import numpy as np

from sim.core.hashing import get_hash_function, hash_request_tokens
from sim.fast.config import FastConfig
from sim.fast.request import FastRequest
from sim.parity.recordings import load, make_request
from workloads.spec import MultiModalItem

GOLDEN = Path(__file__).parents[1] / "golden"


def read(name):
    return load(GOLDEN / f"{name}.json.gz")


def covered(recording):
    """Whether the fast path is meant to cover a recording: one full-attention group."""
    groups = recording["engine"].get("groups") or [{"kind": "full"}]
    return len(groups) == 1 and groups[0]["kind"] == "full"


def fast_config(engine):
    groups = engine.get("groups")
    return FastConfig(
        num_gpu_blocks=engine["num_gpu_blocks"],
        block_size=groups[0]["block_size"] if groups else engine["block_size"],
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        max_model_len=engine["max_model_len"],
        enable_prefix_caching=engine.get("enable_prefix_caching", True),
        scheduling_policy=engine.get("policy", "fcfs"),
        enable_chunked_prefill=engine.get("enable_chunked_prefill", True),
        long_prefill_token_threshold=engine.get("long_prefill_token_threshold", 0),
        watermark=engine.get("watermark", 0.0),
        scheduler_reserve_full_isl=engine.get("scheduler_reserve_full_isl", True),
        max_loras=engine.get("max_loras"),
        disable_chunked_mm_input=engine.get("disable_chunked_mm_input", False),
        max_num_encoder_input_tokens=engine.get("encoder_compute_budget"),
        encoder_cache_size=engine.get("encoder_cache_size"),
        async_scheduling=engine.get("async_scheduling", False),
    )


def fast_requests(recording, config):
    """(request, low 64 bits of its real block hashes, step of arrival) of each request."""
    function = get_hash_function(recording["engine"]["hash_algo"])
    out = []
    for index, entry in enumerate(recording["requests"]):
        full = make_request(Path(), index, entry, None, config.block_size)
        full.num_output_tokens = full.max_tokens
        hashes = hash_request_tokens(function, config.block_size, full) if config.enable_prefix_caching else []
        request = FastRequest(
            index,
            full.request_id,
            prompt_tokens=full.num_prompt_tokens,
            answer_tokens=full.max_tokens,
            max_tokens=full.max_tokens,
            block_size=config.block_size,
            max_model_len=config.max_model_len,
            arrival_s=entry["arrival_step"],
            priority=full.priority,
            lora=full.lora_request,
            items=tuple(
                MultiModalItem(name, at.offset, at.length)
                for name, at in zip(full.mm_hashes, full.mm_positions, strict=True)
            ),
        )
        low = np.array([int.from_bytes(value[-8:], "big") for value in hashes], dtype=np.uint64)
        out.append((request, low, entry["arrival_step"]))
    return out
