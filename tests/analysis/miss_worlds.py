"""Tiny worlds in which blocks miss for every cause, and a naive model that explains them block by block."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from hypothesis import strategies as st

from sim.analysis.eviction_cost import costs_table, eviction_costs
from sim.core.block import key_group_id, key_hash
from sim.core.block_pool import PoolObserver
from sim.core.cache_groups import KVCacheGroup, hash_block_size
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.request import RequestStatus
from sim.core.scheduler_config import SchedulerConfig
from sim.engine.fast import FastDecider
from sim.engine.reference import ReferenceEngine
from sim.engine.requests import door
from sim.eviction.registry import Eviction, make_eviction
from sim.recording.key_variants import KINDS
from sim.recording.miss_observer import watched_group
from sim.recording.miss_tracker import MissTracker
from sim.recording.schema import TABLES
from sim.timing.fixed import FixedStepTime
from workloads.fingerprint import sequence_fingerprints
from workloads.spec import LoRA, MultiModalItem, RequestSpec, Segment, merge_pieces


class World(NamedTuple):
    config: SchedulerConfig
    specs: list  # by arrival
    aborts: list  # (time, index)


def config(blocks=12, size=2, groups=None, **more):
    values = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 64} | more
    return SchedulerConfig(num_gpu_blocks=blocks, groups=groups or (KVCacheGroup("full", size),), **values)


def spec(name, arrival_s, stream, tokens, output=1, tail=None, **more):
    """The first `tokens` tokens of a stream, then `tail` tokens of its own."""
    pieces = [Segment(stream, 0, tokens)]
    if tail:
        pieces.append(Segment(1000 + sum(map(ord, name)), 0, tail))
    return RequestSpec(name, arrival_s, merge_pieces(pieces), output, 5000 + sum(map(ord, name)), **more)


class Sink:
    """Keeps rows of all tables as tuples."""

    def __init__(self):
        self.rows = defaultdict(list)

    def wants(self, table):
        return True

    def row(self, table, values):
        self.rows[table].append(tuple(values))

    def add_rows(self, table, rows):
        self.rows[table] += rows

    def append_later(self, table, count, make):
        self.append(table, make())

    def append(self, table, columns):
        self.rows[table] += zip(*(list(map(_plain, column)) for column in columns.values()), strict=True)

    def dicts(self, table):
        names = [column.name for column in TABLES[table]]
        return [dict(zip(names, row, strict=True)) for row in self.rows[table]]


def _plain(value):
    value = getattr(value, "item", lambda: value)()
    return None if isinstance(value, float) and math.isnan(value) else value


class Played:
    """What a run told: `misses` and `evictions` as dicts, `costs` as columns, the tracker, and the sink."""

    def __init__(self, world, implementation="reference", naive=None, policy=None):
        groups = world.config.groups
        self.sink = Sink()
        size = groups[watched_group(groups)].block_size
        self.tracker = MissTracker(self.sink, world.config.num_gpu_blocks, size, hash_block_size(groups))
        more = {}
        if naive is not None:
            more["make_policy"] = lambda clock, origin_of: Eviction(FreeKVCacheBlockQueue, naive)
        if policy is not None:
            more["make_policy"] = lambda clock, origin_of: make_eviction(
                policy, {}, num_blocks=world.config.num_gpu_blocks, hash_block_size=size, clock=clock
            )
        make = ReferenceEngine if implementation == "reference" else FastDecider
        decider = make(world.config, FixedStepTime(1.0), self.sink, check_invariants=True, misses=self.tracker, **more)
        if naive is not None:
            naive.engine = decider
        play(decider, world)
        history = self.tracker.history()
        costs = eviction_costs(history)
        self.sink.append("eviction_costs", costs_table(history, costs))
        self.misses = self.sink.dicts("misses")
        self.evictions = self.sink.dicts("evictions")
        self.costs = self.sink.dicts("eviction_costs")

    def causes(self, request):
        """(first block, blocks, cause) of all misses of a request."""
        return [(m["first_block"], m["blocks"], m["cause"]) for m in self.misses if m["request_index"] == request]

    def blocks(self):
        """(request, step, block, cause, what differs) of every missed block."""
        return [
            (m["request_index"], m["step"], block, m["cause"], m["differs"])
            for m in self.misses
            for block in range(m["first_block"], m["first_block"] + m["blocks"])
        ]


def play(decider, world):
    """Run a decider without a clock of its own: arrivals and aborts happen before the step at their time."""
    events = [(one.arrival_s, 0, index) for index, one in enumerate(world.specs)]
    events += [(time, 1, index) for time, index in world.aborts]
    events.sort()
    now, living = 0.0, set()
    while events or living:
        while events and (events[0][0] <= now or not living):
            time, kind, index = events.pop(0)
            now = max(now, time)
            if kind == 0:
                decider.add_request(index, world.specs[index], now)
                living.add(index)
            elif decider.abort(index, now) is not None:
                living.discard(index)
        if not living:
            continue
        end = decider.advance(now, events[0][0] if events else math.inf)
        living -= {ended.request_index for ended in decider.take_ended()}
        if end is None:
            if not events:
                break
            now = max(now, events[0][0])
        else:
            now = end
    decider.take_ended()
    decider.close()
    decider.check()


class Naive(PoolObserver):
    """Explains every missed block from lists and sets, and every eviction by looking at all free blocks."""

    def __init__(self, world):
        self.world = world
        self.engine = None
        self.size = world.config.groups[0].block_size
        self.prints = [self._variants(one) for one in world.specs]
        self.cached_blocks = {}  # block id -> (hash, request index, place)
        self.ever = set()
        self.last_row = {}
        self.asked = {}  # request index -> blocks that its admission asked for
        self.missed = []
        self.rows = []  # hash of each eviction
        self.moments = []  # hashes of the blocks that stayed free, for each eviction
        self.recomputed = defaultdict(int)
        self.wants = []  # (rows before, request index, hashes)
        self.taking = 0
        self.admitting, self.hits = None, 0

    def _variants(self, one):
        bare = {
            "image": replace(one, mm_items=()),
            "lora": replace(one, lora=None),
            "salt": replace(one, cache_salt=None),
            "several": replace(one, mm_items=(), lora=None, cache_salt=None),
        }
        return {kind: sequence_fingerprints(other, self.size).tolist() for kind, other in bare.items()}

    def serving(self, request):
        self._settle()
        if request.status is not RequestStatus.RUNNING:
            self.admitting, self.hits = request, 0

    def hit(self, blocks):
        self.hits = len(blocks)

    def evicted(self, block):
        self._settle()
        found = self.cached_blocks.pop(block.block_id)[0]
        self.last_row[found] = len(self.rows)
        self.rows.append(found)
        self.taking += 1

    def allocated(self, blocks):
        self._settle()
        free = self.engine._pool.free_block_queue.get_all_free_blocks()
        stay = [key_hash(block.block_hash) for block in free if block.block_hash is not None]
        self.moments += [stay] * self.taking
        self.taking = 0

    def cached(self, request, blocks, first_index, block_size):
        self._settle()
        for place, block in enumerate(blocks, first_index):
            assert key_group_id(block.block_hash) == 0
            found = key_hash(block.block_hash)
            self.cached_blocks[block.block_id] = (found, request.index, place)
            self.ever.add(found)

    def _settle(self):
        request, self.admitting = self.admitting, None
        if request is None or not self.world.config.enable_prefix_caching:
            return
        scheduler = self.engine.scheduler
        asked = request.num_tokens // self.size
        done = self.engine._alive[request.request_id].done // self.size
        hashes = [request.block_hashes[place] for place in range(asked)]
        cached = {found for found, _, _ in self.cached_blocks.values()}
        due = set()
        for other in scheduler.running:
            stored = scheduler.kv_cache_manager.coordinator.managers[0].num_cached_block.get(other.request_id, 0)
            due |= {other.block_hashes[place] for place in range(stored, self.asked[other.index])}
        gap = None
        for place in range(self.hits, asked):
            key, differs, row = hashes[place], None, None
            known = key in self.ever
            if (place + 1) * self.size == request.num_tokens and (known or key in due):
                cause = "cap"
            elif key in cached:
                cause, row = "unreachable", gap
            elif place < done and known:
                cause, row = "preempted", self.last_row[key]
            elif key in due:
                cause = "not_computed_yet"
            elif known:
                cause, row = "evicted", self.last_row[key]
            else:
                differs = self._differs(request.index, place)
                cause = "never_seen" if differs is None else "key_differs"
            if place == self.hits:
                gap = row
            if row is not None:
                self.recomputed[row] += self.size
            self.missed.append((request.index, self.engine._observer.step, place, cause, differs))
        self.asked[request.index] = asked
        self.wants.append((len(self.rows), request.index, set(hashes)))

    def _differs(self, index, place):
        for kind in KINDS:
            mine = self.prints[index][kind][place]
            for _, other, there in self.cached_blocks.values():
                if there == place and self.prints[other][kind][place] == mine:
                    return kind
        return None

    def _next(self, key, moment):
        for number, (rows, _, hashes) in enumerate(self.wants):
            if rows > moment and key in hashes:
                return number
        return math.inf

    def costs(self):
        """(recomputed tokens, next request, better victim) of each eviction."""
        found = []
        for row, key in enumerate(self.rows):
            after = self._next(key, row)
            latest = max((self._next(other, row) for other in self.moments[row]), default=-1)
            better = int(self.recomputed[row] > 0 and latest > after)
            found.append((self.recomputed[row], None if after == math.inf else self.wants[after][1], better))
        return found


@st.composite
def worlds(draw, features=True):
    """A full-attention engine with few blocks, and requests that share prefixes, answers, images, adapters, salts."""
    size = draw(st.integers(1, 3))
    made = config(
        blocks=draw(st.integers(6, 24)),
        size=size,
        max_num_seqs=draw(st.integers(1, 4)),
        max_num_batched_tokens=draw(st.integers(4, 24)),
        max_model_len=48,
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
    )
    may_serve = door(made)
    specs, time = [], 0.0
    for number in range(draw(st.integers(2, 12))):
        time += draw(st.sampled_from([0.0, 1.0, 3.0, 8.0, 30.0]))
        pieces = [Segment(draw(st.integers(1, 3)), 0, draw(st.integers(1, 14)))]
        if specs and draw(st.booleans()):
            quoted = draw(st.sampled_from(specs))
            pieces = [*quoted.prompt, Segment(quoted.answer_stream, 0, draw(st.integers(1, quoted.output_tokens)))]
        if draw(st.booleans()):
            pieces.append(Segment(100 + number, 0, draw(st.integers(1, 8))))
        prompt = merge_pieces(pieces)
        extra = {}
        if features:
            lora = draw(st.sampled_from([0, 0, 0, 1, 2]))
            extra["lora"] = LoRA(f"l{lora}", lora) if lora else None
            extra["cache_salt"] = draw(st.sampled_from([None, None, None, "salt"]))
            if sum(piece.length for piece in prompt) > 4 and draw(st.integers(0, 2)) == 0:
                extra["mm_items"] = (MultiModalItem(draw(st.sampled_from("ab")), draw(st.integers(0, 1)), 3),)
        one = RequestSpec(
            f"r{number}",
            time,
            prompt,
            draw(st.sampled_from([1, 2, 5, 16])),
            answer_stream=draw(st.sampled_from([1000 + number, 1000 + number, 7])),
            priority=draw(st.integers(0, 2)),
            **extra,
        )
        if may_serve(one) is None:
            specs.append(one)
    aborts = [
        (one.arrival_s + draw(st.sampled_from([0.0, 2.0, 6.0])), index)
        for index, one in enumerate(specs)
        if draw(st.integers(0, 5)) == 0
    ]
    return World(made, specs, aborts)
