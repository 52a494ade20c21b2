"""The real conversation trace, one request after another: hit shares known from an independent LRU cache."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sim.clients import Clients
from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.engine.clock import Clock
from sim.engine.fast import FastDecider
from sim.engine.reference import ReferenceEngine
from sim.engine.requests import door
from sim.recording.recorder import Recorder
from sim.recording.tally import Tally
from sim.timing.fixed import FixedStepTime
from workloads.log import ReadLog
from workloads.registry import read_trace

FOLDER = os.environ.get("KVSIM_TRACES")
NAME = "mooncake_conversation_trace.jsonl.gz"
LRU = {1_000: 0.0445, 5_859: 0.1355, 10_000: 0.2112, 30_000: 0.3257}

pytestmark = pytest.mark.skipif(
    not FOLDER or not (Path(FOLDER) / NAME).exists(), reason=f"KVSIM_TRACES names no folder with {NAME}"
)


@pytest.fixture(scope="module")
def specs():
    log = ReadLog()
    requests = read_trace(Path(FOLDER) / NAME, log, format="mooncake")
    return [replace(spec, output_tokens=1, max_tokens=1) for spec in requests]


def hit_share(folder, specs, blocks, make):
    """Share of prompt blocks (the partial last one included) that hit, with answers of one token, one at a time."""
    config = SchedulerConfig(
        num_gpu_blocks=blocks + 1,  # the null block is no capacity
        groups=(KVCacheGroup("full", 512),),
        max_num_seqs=1,  # the next one starts when the last has ended
        max_num_batched_tokens=1 << 20,
        max_model_len=1 << 20,
    )
    tally = Tally()
    with Recorder(folder, [], tally=tally) as recorder:
        clock = Clock()
        decider = make(config, FixedStepTime(1e-6), recorder)
        clients = Clients(clock, iter(specs), decider, recorder, door(config))
        clients.run()
        decider.close()
    assert clients.ended == {"finished": 12_031}
    requests = tally.requests()
    return (requests["cached_tokens"] // 512).sum() / (-(-requests["prompt_tokens"] // 512)).sum()


@pytest.mark.parametrize("blocks", LRU)
def test_the_share_of_hits_is_that_of_lru(tmp_path, specs, blocks):
    assert hit_share(tmp_path, specs, blocks, FastDecider) == pytest.approx(LRU[blocks], abs=0.006)


@pytest.mark.long
@pytest.mark.parametrize("blocks", LRU)
def test_the_readable_engine_has_the_same_share(tmp_path, specs, blocks):
    assert hit_share(tmp_path, specs, blocks, ReferenceEngine) == hit_share(tmp_path, specs, blocks, FastDecider)
