"""Known values on real traces (read from the folder in KVSIM_TRACES)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sim.analysis.accesses import Accesses, accesses_from_specs
from sim.analysis.curves import CurveSet, capacity_curves
from workloads.log import ReadLog
from workloads.registry import read_trace

FOLDER = os.environ.get("KVSIM_TRACES")
needs_traces = pytest.mark.skipif(FOLDER is None, reason="KVSIM_TRACES does not name the folder of real traces")

# Mooncake conversation, blocks of 512 with the partial last one, hit blocks / all blocks
CAPACITIES = (1_000, 5_859, 10_000, 30_000)
KNOWN = {
    "lru": (0.0445, 0.1355, 0.2112, 0.3257),
    "fifo": (0.0435, 0.1270, 0.1865, 0.3021),
    "lfu": (0.0481, 0.0966, 0.1318, 0.2759),
    "belady": (0.1906, 0.3531, 0.3664, 0.3664),
}


def read(name: str, block_size: int) -> Accesses:
    return accesses_from_specs(read_trace(Path(FOLDER or "") / name, ReadLog()), block_size)[0]


@pytest.fixture(scope="module")
def conversation() -> CurveSet:
    accesses = read("mooncake_conversation_trace.jsonl.gz", 512)
    assert len(accesses) == 288_500
    return capacity_curves(accesses, [*KNOWN, "lru_tail_first"], CAPACITIES)


@needs_traces
@pytest.mark.parametrize("policy", KNOWN)
def test_the_conversation_table(conversation: CurveSet, policy: str) -> None:
    rates = [round(point.rates.hit_rate, 4) for point in conversation.curve(policy).points]
    assert rates == list(KNOWN[policy])


@needs_traces
def test_the_conversations_infinite_cache(conversation: CurveSet) -> None:
    best = conversation.infinite
    assert round(best.hit_rate, 4) == 0.3664
    assert round(best.full_block_hit_rate, 4) == 0.3819
    assert round(best.token_hit_rate, 4) == 0.3736


@needs_traces
def test_tail_first_stays_close_to_plain_lru(conversation: CurveSet) -> None:
    pairs = zip(conversation.curve("lru").points, conversation.curve("lru_tail_first").points, strict=True)
    assert max(abs(plain.rates.hit_rate - tail.rates.hit_rate) for plain, tail in pairs) < 0.004


@needs_traces
@pytest.mark.parametrize(
    ("name", "block_size"),
    [("mooncake_synthetic_trace.jsonl.gz", 512), ("lmcache_magagent_blk16.jsonl.gz", 16)],
)
def test_the_laws_hold_on_real_traces(name: str, block_size: int) -> None:
    accesses = read(name, block_size)
    largest = int(accesses.position.max()) + 1
    capacities = [largest // 8, largest, 4 * largest, accesses.num_keys]
    curves = capacity_curves(accesses, ["lru", "lru_tail_first", "fifo", "lfu", "belady"], capacities)
    best = curves.curve("optimum").points
    for curve in curves.curves:
        for most, point in zip(best, curve.points, strict=True):
            assert point.rates.hit_blocks <= most.rates.hit_blocks <= curves.infinite.hit_blocks
        assert curve.points[-1].rates == curves.infinite, "everything fits"


@needs_traces
def test_the_whole_lru_curve_is_one_pass() -> None:
    accesses = read("mooncake_conversation_trace.jsonl.gz", 512)
    start = time.process_time()
    curves = capacity_curves(accesses, ["lru"], [accesses.num_keys])
    assert time.process_time() - start < 3.0
    assert curves.curve("lru").dense[-1][1] == pytest.approx(curves.infinite.hit_rate)
