"""Recordings of the reference: how they are read, and the requests that they describe.

The format is documented in docs/fidelity.md.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.cache_groups import KVCacheGroup
from sim.core.hashing import HashFunction, hash_blocks
from sim.core.request import Request
from sim.core.scheduler_config import SchedulerConfig
from sim.errors import RecordingError
from workloads.spec import LoRA

REFERENCE = "vllm 0.33.0"


class PlaceholderRange(NamedTuple):
    """Where an item's embeddings stand, in tokens."""

    offset: int
    length: int


class TokenSource:
    """Token ids of a recording's requests, made when asked for.

    Token j of the prompt segment ``[seed, n]`` is ``(seed · 1000003 + j · 7919) mod 50000``; request i answers
    ``(i · 104729 + p · 15485863) mod 50000`` at its absolute position p; a segment ``["reply", i, start, n]``
    quotes that answer.
    """

    def __init__(self, index: int, prompt: list[list[Any]]) -> None:
        self._parts: list[tuple[int, int, int, int]] = []  # begin, end, value at begin, step
        at = 0
        for part in prompt:
            if part[0] == "reply":
                _, source, start, n = part
                self._parts.append((at, at + n, source * 104729 + start * 15485863, 15485863))
            else:
                seed, n = part
                self._parts.append((at, at + n, seed * 1000003, 7919))
            at += n
        self.num_prompt_tokens = at
        self._parts.append((at, 1 << 62, index * 104729 + at * 15485863, 15485863))

    def __call__(self, start: int, stop: int) -> tuple[int, ...]:
        """Ids of tokens ``start … stop - 1``."""
        out: list[int] = []
        for begin, end, first, step in self._parts:
            low, high = max(start, begin), min(stop, end)
            if low < high:
                value = first + (low - begin) * step
                out += [number % 50000 for number in range(value, value + (high - low) * step, step)]
        return tuple(out)


def load(path: Path) -> dict[str, Any]:
    """Read a recording.  Raises `RecordingError` when it is cut short or holds no JSON object."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        content = json.loads(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordingError(f"{path}: cut short or damaged: {error}") from None
    except ValueError as error:
        raise RecordingError(f"{path}: no JSON: {error}") from None
    if not isinstance(content, dict):
        raise RecordingError(f"{path}: a recording is a JSON object, not a {type(content).__name__}")
    return content


def scheduler_config(path: Path, engine: Mapping[str, Any]) -> SchedulerConfig:
    """The settings of a recording (of checked form).  Raises `RecordingError` where they contradict each other."""
    try:
        groups = tuple(
            KVCacheGroup(group["kind"], group["block_size"], group.get("window"))
            for group in engine.get("groups") or [{"kind": "full", "block_size": engine["block_size"]}]
        )
        return SchedulerConfig(
            num_gpu_blocks=engine["num_gpu_blocks"],
            groups=groups,
            max_num_seqs=engine["max_num_seqs"],
            max_num_batched_tokens=engine["max_num_batched_tokens"],
            max_model_len=engine["max_model_len"],
            enable_prefix_caching=engine.get("enable_prefix_caching", True),
            enable_chunked_prefill=engine.get("enable_chunked_prefill", True),
            scheduling_policy=engine.get("policy", "fcfs"),
            long_prefill_token_threshold=engine.get("long_prefill_token_threshold", 0),
            watermark=engine.get("watermark", 0.0),
            scheduler_reserve_full_isl=engine.get("scheduler_reserve_full_isl", True),
            max_loras=engine.get("max_loras"),
            disable_chunked_mm_input=engine.get("disable_chunked_mm_input", False),
            max_num_encoder_input_tokens=engine.get("encoder_compute_budget"),
            encoder_cache_size=engine.get("encoder_cache_size"),
            retention_interval=engine.get("retention_interval"),
            async_scheduling=engine.get("async_scheduling", False),
        )
    except KeyError as error:
        raise RecordingError(f"{path}: the engine setting {error} is missing") from None
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{path}: engine: {error}") from None


def make_request(
    path: Path, index: int, entry: Mapping[str, Any], hash_function: HashFunction | None, hash_block_size: int
) -> Request:
    """Request number `index` of a recording, with its real tokens and hashes (none for no hash function)."""
    try:
        tokens = TokenSource(index, entry["prompt"])
        lora = LoRA(**entry["lora"]) if entry.get("lora") else None
        items = entry.get("mm") or []
        hasher = None
        if hash_function is not None:
            function = hash_function

            def hasher(request: Request) -> list[Any]:
                return hash_blocks(function, hash_block_size, request, request.block_hashes)

        return Request(
            str(entry.get("id", entry.get("name"))),
            tokens.num_prompt_tokens,
            entry.get("output_tokens", 1),
            entry.get("arrival_step", 0),
            priority=entry.get("priority", 0),
            token_reader=tokens,
            block_hasher=hasher,
            lora_request=lora,
            cache_salt=entry.get("cache_salt"),
            mm_hashes=[item["hash"] for item in items],
            mm_positions=[PlaceholderRange(item["offset"], item["length"]) for item in items],
            index=index,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{path}: request {index}: {error!r}") from None
