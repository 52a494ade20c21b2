"""Random tiny worlds, played on the readable engine and on the fast one."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.engine.requests import door
from sim.recording.schema import TABLES
from workloads.spec import LoRA, MultiModalItem, RequestSpec, Segment, merge_pieces


class World(NamedTuple):
    config: SchedulerConfig
    specs: list  # by arrival
    aborts: list  # (time, index)
    jitter: float


class Rows:
    """Keeps the rows of all tables in memory."""

    def __init__(self):
        self.rows = {"steps": [], "stalls": [], "evictions": []}

    def wants(self, table):
        return True

    def row(self, table, values):
        self.rows[table].append(tuple(values))

    def add_rows(self, table, rows):
        self.rows[table] += rows

    def append_later(self, table, count, make):
        self.append(table, make())

    def append(self, table, columns):
        names = [column.name for column in TABLES[table]]
        self.rows[table] += zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True)


class UnevenSteps:
    """Seconds that tell batches apart."""

    def __init__(self, jitter):
        self.jitter = jitter

    def seconds(self, batch):
        work = batch.prefill_tokens + 0.25 * batch.decode_requests + 0.01 * batch.context_tokens
        return 1.0 + self.jitter * (work + 0.1 * batch.encoder_tokens + 0.001 * batch.attention_pairs)


def play(decider, world):
    """All that a decider told: rows by table, and its ended requests."""
    events = [(spec.arrival_s, 0, index) for index, spec in enumerate(world.specs)]
    events += [(time, 1, index) for time, index in world.aborts]
    events.sort()
    ended, now, idle, turns = [], 0.0, False, 0
    while True:
        while events and (events[0][0] <= now or idle):
            time, kind, index = events.pop(0)
            now, idle = max(now, time), False
            if kind == 0:
                decider.add_request(index, world.specs[index], now)
            else:
                end = decider.abort(index, now)
                ended += [] if end is None else [end]
        if not decider.busy:
            if not events:
                break
            idle = True
            continue
        turns += 1
        assert turns < 3000, f"the {decider.name} engine turns for ever"
        end = decider.advance(now, events[0][0] if events else math.inf)
        told = decider.take_ended()
        ended += told
        if end is None and not told:
            if not events:
                break
            idle = True
        now = now if end is None else end
    decider.check()
    return [_fields(end) for end in ended]


def _fields(end):
    return dataclasses.astuple(end) if dataclasses.is_dataclass(end) else tuple(end)


@st.composite
def worlds(draw, asynchronous=None, items=True):
    block_size = draw(st.integers(1, 4))
    budget = draw(st.integers(3, 24))
    config = SchedulerConfig(
        num_gpu_blocks=draw(st.integers(6, 36)),
        groups=(KVCacheGroup("full", block_size),),
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=budget,
        max_model_len=draw(st.integers(16, 60)),
        enable_prefix_caching=draw(st.sampled_from([True, True, True, False])),
        enable_chunked_prefill=draw(st.sampled_from([True, True, False])),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 3, 7])),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.2])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        max_loras=draw(st.sampled_from([None, 1, 2])),
        disable_chunked_mm_input=draw(st.booleans()),
        max_num_encoder_input_tokens=draw(st.sampled_from([None, 6])),
        encoder_cache_size=draw(st.sampled_from([None, 8])),
        async_scheduling=draw(st.booleans()) if asynchronous is None else asynchronous,
    )
    specs = []
    may_serve = door(config)
    time = 0.0
    for number in range(draw(st.integers(1, 12))):
        time += draw(st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0, 40.0]))
        pieces = [Segment(draw(st.integers(1, 3)), 0, draw(st.integers(1, 14)))]
        if specs and draw(st.booleans()):
            quoted = draw(st.sampled_from(specs))
            pieces = [*quoted.prompt, Segment(quoted.answer_stream, 0, draw(st.integers(1, quoted.output_tokens)))]
        if draw(st.booleans()):
            pieces.append(Segment(100 + number, 0, draw(st.integers(1, 12))))
        output = draw(st.sampled_from([1, 2, 5, 11, 25]))
        prompt = merge_pieces(pieces)
        length = sum(piece.length for piece in prompt)
        images = ()
        if items and length > 6 and draw(st.integers(0, 2)) == 0:
            size = {"a": 3, "b": 5}
            names = draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=3))
            at, images = draw(st.integers(0, 3)), []
            for name in names:
                if at + size[name] > length:
                    break
                images.append(MultiModalItem(name, at, size[name]))
                at += size[name] + draw(st.integers(0, 2))
            images = tuple(images)
        lora = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        spec = RequestSpec(
            f"r{number}",
            time,
            prompt,
            output,
            answer_stream=draw(st.sampled_from([1000 + number, 1000 + number, 7])),
            max_tokens=draw(st.sampled_from([None, None, output + 3])),
            priority=draw(st.integers(0, 2)),
            cache_salt=draw(st.sampled_from([None, None, "salt"])),
            lora=LoRA(f"l{lora}", lora, "") if lora else None,
            mm_items=images,
        )
        if may_serve(spec) is None:
            specs.append(spec)
    aborts = [
        (draw(st.floats(0, 60).map(lambda value: round(value, 1))), index)
        for index in range(len(specs))
        if draw(st.integers(0, 5)) == 0
    ]
    aborts = [(max(time, specs[index].arrival_s), index) for time, index in aborts]
    return World(config, specs, aborts, draw(st.sampled_from([0.0, 0.01])))
