"""Speed of the fast path, with the decisions that it must have taken.

    pytest benchmarks/test_fast_speed.py [--benchmark-only]

The 1,000-request scenario comes from the recording in tests/golden; the reference took 33.5 s for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fast"))
from fast_replay import fast_config, fast_specs, read

from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.fast.engine import FastEngine
from sim.timing.fixed import FixedStepTime
from workloads.spec import RequestSpec, Segment

NAME = "large/mooncake-conversation-1000"


class Counting:
    """Counts rows; `wanted` says whether evictions are recorded."""

    def __init__(self, wanted=True):
        self.wanted = wanted
        self.evictions = 0
        self.sums = [0] * 19

    def wants(self, table):
        return self.wanted

    def row(self, table, values):
        if table == "steps":
            self.sums = [total + value for total, value in zip(self.sums, values, strict=True)]

    def add_rows(self, table, rows):
        for values in rows:
            self.row(table, values)

    def append_later(self, table, count, make):
        self.append(table, make())

    def append(self, table, columns):
        self.evictions += len(columns["step"])


def serve(config, specs, step_s, sink):
    """Run all requests, open loop; the number that ended."""
    engine = FastEngine(config, FixedStepTime(step_s), sink)
    clock, ended, index = 0.0, 0, 0
    while index < len(specs) or engine.busy:
        if not engine.busy:
            clock = max(clock, specs[index].arrival_s)
        while index < len(specs) and specs[index].arrival_s <= clock:
            engine.add_request(index, specs[index], clock)
            index += 1
        clock = engine.advance(clock, specs[index].arrival_s if index < len(specs) else float("inf"))
        ended += len(engine.take_ended())
    return ended


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_thousand_requests_of_a_real_trace(benchmark, asynchronous):
    recording = read(NAME)
    config = fast_config(recording["engine"] | {"async_scheduling": asynchronous})
    specs = fast_specs(recording)
    sink = None

    def run():
        nonlocal sink
        sink = Counting()
        return serve(config, specs, 1.0, sink)

    assert benchmark.pedantic(run, rounds=3) == 1000
    if not asynchronous:
        last = recording["checkpoints"][-1]
        assert sink.evictions == last["evicted_blocks"]
        assert sink.sums[6] + sink.sums[7] == last["scheduled_tokens"]
        assert (sink.sums[12], sink.sums[14], sink.sums[15]) == (last["preemptions"], last["queries"], last["hits"])


def chats(number):
    """`number` prompts of 4,000 tokens, a quarter of them shared by eight, answers of 200."""
    return [
        RequestSpec(f"r{i}", i * 0.3, (Segment(1 + i // 8, 0, 1000), Segment(10_000 + i, 0, 3000)), 200, 1 << 40 | i)
        for i in range(number)
    ]


@pytest.mark.parametrize(
    ("number", "blocks"), [(1000, 20_000), (2000, 20_000), (1000, 200_000)], ids=["base", "twice the requests", "10x"]
)
def test_growth(benchmark, number, blocks):
    config = SchedulerConfig(num_gpu_blocks=blocks, groups=(KVCacheGroup("full", 16),))
    specs = chats(number)
    assert benchmark.pedantic(lambda: serve(config, specs, 0.04, Counting()), rounds=5) == number


@pytest.mark.parametrize("wanted", [False, True], ids=["unrecorded", "recorded"])
def test_cost_of_recording_evictions(benchmark, wanted):
    config = SchedulerConfig(num_gpu_blocks=20_000, groups=(KVCacheGroup("full", 16),))
    specs, sink = chats(4000), Counting(wanted)
    assert benchmark.pedantic(lambda: serve(config, specs, 0.04, sink), rounds=5) == 4000
    assert (sink.evictions > 0) == wanted
