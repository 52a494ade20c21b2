"""Random engines and scripts for them: tiny, so that every boundary is near."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from tiny_worlds import config, full, make_request, sliding
from whole_engines import World

from sim.core.cache_groups import hash_block_size
from sim.core.request import Request
from sim.core.scheduler_config import SchedulerConfig


class Arrival(NamedTuple):
    """A request to come: a prefix of a family's prompt or of an earlier conversation, and a tail of its own."""

    family: int
    shared_tokens: int
    quotes: int | None  # the earlier request whose prompt and answer it begins with
    own_tokens: int
    max_tokens: int
    stops_after: int | None
    priority: int
    lora: str | None
    salt: str | None
    items: tuple[tuple[str, int, int], ...]  # identifier, gap before it, length


class Script(NamedTuple):
    """Turns between events; an event is an arrival, or a number that picks whom to abort."""

    events: tuple[tuple[int, Arrival | int], ...]


ITEM_LENGTHS = {"cat": 1, "dog": 3, "map": 4, "sea": 6}
sizes = st.integers(1, 4)


@st.composite
def groups(draw):
    size = draw(sizes)
    window = st.integers(1, 9)
    kind = draw(
        st.sampled_from(
            ["full", "full", "full", "sliding", "hybrid", "coarse window", "coarse full", "two full", "three"]
        )
    )
    return {
        "full": lambda: [full(size)],
        "sliding": lambda: [sliding(draw(window), size)],
        "hybrid": lambda: [full(size), sliding(draw(window), size)],
        "coarse window": lambda: [full(size), sliding(draw(window), 2 * size)],
        "coarse full": lambda: [full(2 * size), sliding(draw(window), size)],
        "two full": lambda: [full(size), full(size)],
        "three": lambda: [sliding(draw(window), size), full(size), sliding(draw(window), size)],
    }[kind]()


@st.composite
def engines(draw, *, plain: bool = False, caching=None):
    """Settings of a tiny engine.  `plain`: one full group, as most are."""
    of_groups = [full(draw(sizes))] if plain else draw(groups())
    optional = {
        "enable_prefix_caching": st.sampled_from([True, True, True, False]) if caching is None else st.just(caching),
        "enable_chunked_prefill": st.sampled_from([True, True, False]),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 1, 3]),
        "watermark": st.sampled_from([0.0, 0.0, 0.1, 0.4]),
        "scheduler_reserve_full_isl": st.booleans(),
        "max_loras": st.sampled_from([None, 1, 2]),
        "disable_chunked_mm_input": st.booleans(),
        "max_num_encoder_input_tokens": st.sampled_from([None, 4, 6, 9]),
        "encoder_cache_size": st.sampled_from([None, 4, 6, 9]),
        "retention_interval": st.sampled_from([None, 0, 4, 12]),
    }
    return config(
        draw(st.integers(6, 16) | st.integers(1, 14)),
        of_groups,
        max_num_seqs=draw(st.integers(1, 4)),
        max_num_batched_tokens=draw(st.integers(2, 16)),
        max_model_len=draw(st.integers(6, 40)),
        **{name: draw(values) for name, values in optional.items()},
    )


rarely = st.sampled_from([False, False, False, True])


@st.composite
def arrivals(draw, *, pictures: bool | None = None, tenants: bool | None = None):
    """A request; most begin as others do.  `pictures`, `tenants`: whether it has items, or salts and adapters."""
    pictures = draw(rarely) if pictures is None else pictures
    tenants = draw(rarely) if tenants is None else tenants
    item = st.tuples(st.sampled_from(sorted(ITEM_LENGTHS)), st.integers(0, 3))
    items = draw(st.lists(item, min_size=1, max_size=3)) if pictures else ()
    return Arrival(
        family=draw(st.sampled_from([0, 0, 0, 1])),
        shared_tokens=draw(st.sampled_from([0, 0, 3, 4, 6, 8, 8, 12, 12])),
        quotes=draw(st.none() | st.integers(0, 9)),
        own_tokens=draw(st.sampled_from([0, 0, 0, 1, 2, 5])),
        max_tokens=draw(st.integers(0, 30) if draw(rarely) else st.integers(1, 9)),
        stops_after=draw(st.none() | st.integers(1, 6)),
        priority=draw(st.integers(0, 2)),
        lora=draw(st.none() | st.sampled_from(["x", "y", "z"])) if tenants else None,
        salt=draw(st.none() | st.sampled_from(["x", "s"])) if tenants else None,
        items=tuple((name, gap, ITEM_LENGTHS[name]) for name, gap in items),
    )


@st.composite
def scripts(draw):
    """Events of one kind of traffic: plain, with pictures, with tenants, or with both."""
    pictures, tenants = draw(st.sampled_from([(False, False), (True, False), (False, True), (True, True)]))
    arrival = arrivals(pictures=pictures, tenants=tenants)
    event = st.tuples(st.integers(0, 4), st.one_of(arrival, arrival, arrival, st.integers(0, 9)))
    return Script(tuple(draw(st.lists(event, min_size=1, max_size=10))))


def request_of(index: int, arrival: Arrival, earlier: list, settings: SchedulerConfig, turn: int, **more):
    """The request of an arrival; its prompt is stretched so that all its items stand in it."""
    tokens = [10_000 * (arrival.family + 1) + j for j in range(arrival.shared_tokens)]
    if arrival.quotes is not None and earlier:
        quoted = earlier[arrival.quotes % len(earlier)]
        tokens = list(quoted.token_ids(0, quoted.num_prompt_tokens + min(quoted.max_tokens, arrival.shared_tokens)))
    tokens += [100 * (index + 1) + j for j in range(arrival.own_tokens)]
    at, placed = 0, []
    for identifier, gap, length in arrival.items:
        placed.append((identifier, at + gap, length))
        at += gap + length
    tokens += [7] * (at - len(tokens))
    return make_request(
        f"r{index}",
        tokens,
        arrival.max_tokens,
        block_size=hash_block_size(settings.groups),
        arrival_time=float(turn),
        priority=arrival.priority,
        lora=arrival.lora,
        salt=arrival.salt,
        items=placed,
        index=index,
        **more,
    )


def play(
    settings: SchedulerConfig,
    script: Script,
    *,
    asynchronous: bool = False,
    make=request_of,
    world: type[World] = World,
    intruder: tuple[int, Request] | None = None,
) -> World:
    """Play a script to its end; every law is checked on the way.

    `make` builds the request of an arrival; `intruder` is one more request that comes before that event.
    """
    stops: dict[str, int] = {}
    engine = world(settings, asynchronous=asynchronous, stop_after=stops)
    requests: list[Request] = []
    turn = 0
    for place, (turns, event) in enumerate((*script.events, (0, None))):
        if intruder is not None and intruder[0] == place:
            engine.arrive(intruder[1])
        for _ in range(turns):
            engine.turn()
            turn += 1
        if isinstance(event, int):
            if requests:
                engine.abort(requests[event % len(requests)].request_id)
        elif event is not None:
            request = make(len(requests), event, requests, settings, turn)
            requests.append(request)
            if event.stops_after is not None:
                stops[request.request_id] = event.stops_after
            engine.arrive(request)
    engine.run()
    return engine
