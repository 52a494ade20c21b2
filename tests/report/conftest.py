"""Small plausible results folders, made from a toy world so that their numbers agree with each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from sim.recording.definitions import definitions
from sim.recording.latency import METRICS
from sim.recording.run_folder import FORMAT_VERSION
from sim.report import style

STEP_S = 0.04


def make_steps(rng: np.random.Generator, count: int = 1000) -> pd.DataFrame:
    start = np.arange(count) * STEP_S * 4 + np.floor(np.arange(count) / 375) * 20  # two idle gaps
    load = 0.55 + 0.35 * np.sin(np.arange(count) / 125) + rng.normal(0, 0.04, count)
    usage = np.clip(load, 0, 1)
    query = rng.poisson(300, count) * (rng.random(count) < 0.3)
    hits = (query * np.clip(0.2 + np.arange(count) / count * 0.4, 0, 1)).astype(int)
    preempted = (usage > 0.93).astype(int) * (rng.random(count) < 0.2)
    return pd.DataFrame(
        {
            "step": np.arange(count),
            "start_s": start,
            "duration_s": np.full(count, 4 * STEP_S - 0.04) + rng.gamma(2, 0.004, count) * 0.5,
            "running_requests": (usage * 60).astype(int),
            "waiting_requests": np.maximum(0, (usage - 0.8) * 100).astype(int),
            "prefill_requests": (query > 0).astype(int),
            "prefill_tokens": query - hits,
            "decode_requests": (usage * 58).astype(int),
            "context_tokens": (usage * 100_000).astype(int),
            "encoder_tokens": np.zeros(count, dtype=int),
            "free_blocks": ((1 - usage) * 4000).astype(int),
            "kv_usage": usage,
            "preemptions": preempted,
            "finished_requests": (query > 0).astype(int),
            "query_tokens": query,
            "hit_tokens": hits,
            "preempted_query_tokens": preempted * 100,
            "preempted_hit_tokens": preempted * 50,
            "evicted_blocks": rng.poisson(2, count),
        }
    )


def make_evictions(rng: np.random.Generator, count: int = 2000, end_s: float = 180.0) -> pd.DataFrame:
    time = np.sort(20 + rng.random(count) * (end_s - 20))
    idle = np.minimum(time, rng.lognormal(2.5, 0.8, count))
    return pd.DataFrame(
        {
            "time_s": time,
            "step": (time / STEP_S).astype(int),
            "block_id": rng.integers(0, 4000, count),
            "group": np.zeros(count, dtype=int),
            "block_hash": rng.integers(0, 2**63, count).astype(np.uint64),
            "depth_blocks": rng.geometric(0.02, count) - 1,
            "lifetime_s": idle + rng.exponential(8, count),
            "idle_s": idle,
            "hits": rng.poisson(0.6, count),
            "evicted_for_request_index": rng.integers(0, 300, count),
            "owner_request_index": rng.integers(0, 300, count),
        }
    )


def make_requests(rng: np.random.Generator, count: int = 300, end_s: float = 180.0) -> pd.DataFrame:
    arrival = np.sort(rng.random(count) * end_s)
    queue = rng.exponential(0.2, count) * (rng.random(count) < 0.7)
    first = arrival + queue + rng.lognormal(-1, 0.7, count)
    output = rng.integers(1, 300, count)
    finish = first + (output - 1) * rng.normal(0.045, 0.003, count)
    prompt = rng.integers(50, 4000, count)
    status = np.where(rng.random(count) < 0.01, "rejected", "finished")
    lost = status == "rejected"
    return pd.DataFrame(
        {
            "request_index": np.arange(count),
            "request_id": [f"r{i}" for i in range(count)],
            "category": rng.choice(["chat", "agent"], count),
            "session": [f"s{i % 97}" for i in range(count)],
            "turn": np.arange(count) // 97,
            "arrival_s": arrival,
            "first_scheduled_s": np.where(lost, np.nan, arrival + queue),
            "first_token_s": np.where(lost, np.nan, first),
            "finish_s": np.where(lost, np.nan, finish),
            "prompt_tokens": prompt,
            "output_tokens": np.where(lost, 0, output),
            "cached_tokens": np.where(lost, 0, (prompt * rng.random(count) * 0.8).astype(int)),
            "recomputed_tokens": rng.integers(0, 100, count) * (rng.random(count) < 0.05),
            "preemptions": (rng.random(count) < 0.05).astype(int),
            "status": status,
            "reason": np.where(lost, "prompt is longer than max_model_len", ""),
            "priority": np.zeros(count, dtype=int),
        }
    )


SUMMARY: dict[str, Any] = {
    "requests": {"total": 1200, "finished": 1188, "aborted": 0, "rejected": 12, "cancelled": 0},
    "not_finished": {"rejected": {"prompt is longer than max_model_len": 12}},
    "simulated_s": 200.0,
    "steps": 4000,
    "num_gpu_blocks": 4000,
    "block_size": 16,
    "skipped": {"empty prompt": 2},
    "notes": ["timestamps were sorted"],
    "hit_rate": {"tokens": 0.412, "full_blocks": 0.405, "tokens_after_warmup": 0.44, "last_1000_requests": 0.43},
    "evictions": 9000,
    "evictions_per_1000_prompt_tokens": 2.5,
    "preemptions": 43,
    "preempted_requests": 31,
    "phantom_hit_tokens": 0,
    "kv_usage": {"mean": 0.528, "max": 0.999},
    "latency": {
        metric: {"count": 1188, "mean": 0.6, "std": 0.1, "median": 0.45, "p90": 1.2, "p99": 2.4, "max": 3.1}
        for metric in METRICS.values()
    },
    "benchmark": {"output_throughput": 734.5, "p99_ttft_ms": 2400.0},
    "definitions": definitions(),
}
CONFIG: dict[str, Any] = {
    "name": "quickstart",
    "question": "How much of a chat's prompts can the prefix cache save?",
    "seed": 0,
    "engine": {"block_size": 16, "max_num_seqs": 256},
    "memory": {"num_gpu_blocks": 4000},
    "timing": {"kind": "fixed", "step_s": STEP_S},
    "workload": {"kind": "shared_prefix", "prefixes": 20},
}


def write_run(
    folder: Path,
    *,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    **tables: pd.DataFrame,
) -> Path:
    """Write a results folder; a table given by name replaces the made one."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    made = {"requests": make_requests(rng), "steps": make_steps(rng), "evictions": make_evictions(rng), **tables}
    for name, table in made.items():
        table.to_parquet(folder / f"{name}.parquet")
    (folder / "config.yaml").write_text(yaml.safe_dump(config or CONFIG, sort_keys=False), encoding="utf-8")
    (folder / "summary.json").write_text(json.dumps(summary or SUMMARY), encoding="utf-8")
    manifest = {
        "format_version": FORMAT_VERSION,
        "status": "complete",
        "kvsim_version": "0.1.0",
        "seed": (config or CONFIG).get("seed", 0),
        "wall_s": 1.25,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ordinary run; tests only read it."""
    return write_run(tmp_path_factory.mktemp("results") / "run-a")


def make_points(*, seeds: int = 2, policies: tuple[str, ...] = ("lru",)) -> pd.DataFrame:
    """A sweep in which more memory hits more with falling returns, and big blocks hit a bit less."""
    rows = []
    for policy in policies:
        for block_size in (16, 32, 64, 128):
            for tokens in (80_000, 160_000, 320_000, 640_000, 1_280_000, 2_560_000):
                for seed in range(seeds):
                    rng = np.random.default_rng((block_size, tokens, seed, len(policy)))
                    rate = 0.55 * (1 - np.exp(-tokens / 400_000)) * (1 - block_size / 1000)
                    rate += rng.normal(0, 0.008) + 0.02 * policies.index(policy)
                    rows.append(
                        {
                            "engine.block_size": block_size,
                            "memory.num_gpu_blocks": tokens // block_size,
                            "eviction.policy": policy,
                            "seed": seed,
                            "hit_rate.tokens": max(0.0, rate),
                            "evictions": int(3e6 / block_size * np.exp(-tokens / 900_000)),
                            "preemptions": int(400 * np.exp(-tokens / 100_000)),
                            "latency.vllm:time_to_first_token_seconds.p99": 0.8 + 12 * np.exp(-tokens / 150_000),
                        }
                    )
    return pd.DataFrame(rows)


def write_sweep(folder: Path, points: pd.DataFrame | None = None, **about: Any) -> Path:
    """Write a sweep folder."""
    folder.mkdir(parents=True, exist_ok=True)
    table = make_points(policies=("lru", "s3fifo")) if points is None else points
    table.to_parquet(folder / "points.parquet")
    fixed = {"engine.max_num_seqs": 256, "timing.kind": "fixed"}
    parameters = ["engine.block_size", "memory.num_gpu_blocks", "eviction.policy", "seed"]
    found = {"format_version": FORMAT_VERSION, "name": "sweep", "parameters": parameters, "held_fixed": fixed, **about}
    (folder / "sweep.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ordinary sweep; tests only read it."""
    return write_sweep(tmp_path_factory.mktemp("results") / "sweep")


@pytest.fixture(autouse=True, scope="session")
def coarse_pictures() -> Iterator[None]:
    """Pictures of few pixels: what they show is looked at by people, not by tests."""
    before, style.DPI = style.DPI, 40
    yield
    style.DPI = before
