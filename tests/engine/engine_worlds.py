"""Tiny worlds for the engine's tests: blocks of 2 tokens, steps of 1 s, a handful of requests."""

from __future__ import annotations

import math

from sim.clients import Clients
from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.engine.clock import Clock
from sim.engine.fast import FastDecider
from sim.engine.reference import ReferenceEngine
from sim.engine.requests import door
from sim.recording.recorder import Recorder
from sim.recording.schema import TABLES
from sim.recording.tally import Tally
from sim.timing.fixed import FixedStepTime
from workloads.spec import RequestSpec, Segment, stream_id

STEP_S = 1.0


def spec(name, arrival_s=0.0, prompt=4, output=2, **more):
    """A request whose prompt is a stream of its own, unless `pieces` are given."""
    pieces = more.pop("pieces", None)
    if pieces is None:
        pieces = (Segment(stream_id("prompt", name), 0, prompt),) if prompt else ()
    return RequestSpec(name, arrival_s, pieces, output, stream_id("answer", name), **more)


def config(blocks=32, **more):
    """An engine with blocks of 2 tokens."""
    values = {"max_num_seqs": 8, "max_num_batched_tokens": 16, "max_model_len": 64} | more
    return SchedulerConfig(num_gpu_blocks=blocks, groups=(KVCacheGroup("full", 2),), **values)


class World:
    """A finished run: rows by table, as dicts, and the clients."""

    def __init__(self, folder, specs, engine=None, implementation="reference", step_time=None, why_never=None):
        self.tally = Tally()
        engine = engine if engine is not None else config()
        make = ReferenceEngine if implementation == "reference" else FastDecider
        with Recorder(folder, list(TABLES), tally=self.tally) as recorder:
            self.env = Clock()
            decider = make(engine, step_time or FixedStepTime(STEP_S), recorder, check_invariants=True)
            self.clients = Clients(self.env, iter(specs), decider, recorder, why_never or door(engine))
            self.clients.run()
            decider.close()
        import pyarrow.parquet as pq

        self.rows = {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in TABLES}
        self.requests = {row["request_id"]: row for row in self.rows["requests"]}

    def ends(self):
        """Request id → status."""
        return {name: row["status"] for name, row in self.requests.items()}


def close(a, b):
    """Equal but for rounding."""
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
