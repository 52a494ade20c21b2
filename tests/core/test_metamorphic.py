"""What must not change the decisions, and what must change them one way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_worlds import arrivals, engines, play, request_of, scripts
from tiny_worlds import Engine, config, full, make_request, serve, sliding
from whole_engines import World

from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.hashing import HASH_ALGORITHMS, get_hash_function
from sim.core.scheduler import Scheduler
from sim.core.spec_request import ContentHashes, RealHashes, request_from_spec
from workloads.spec import LoRA, MultiModalItem, RequestSpec, Segment, merge_pieces

quick = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
either = st.booleans()


def decisions(world: World) -> list:
    """What was decided, without the names of blocks."""
    return [(entry[0], entry[2]) if len(entry) == 4 else entry[1] for entry in world.log]


@quick
@given(asynchronous=either, engine=engines(), script=scripts())
def test_the_same_world_decides_the_same(asynchronous, engine, script):
    first, second = (play(engine, script, asynchronous=asynchronous) for _ in range(2))
    assert first.log == second.log
    assert first.ended == second.ended


@quick
@given(asynchronous=either, engine=engines(), script=scripts(), data=st.data())
def test_names_of_blocks_do_not_matter(asynchronous, engine, script, data):
    """With the free list in another order at the start, every table and list is the same under new names."""
    names = data.draw(st.permutations(range(1, engine.num_gpu_blocks)))
    rename = dict(enumerate(names, start=1)) | {0: 0}
    plain = play(engine, script, asynchronous=asynchronous)

    class Renamed(World):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            queue = self.pool.free_block_queue
            blocks = queue.popleft_n(queue.num_free_blocks)
            queue.append_n([blocks[name - 1] for name in names])

    renamed = play(engine, script, asynchronous=asynchronous, world=Renamed)

    def under_new_names(entry):
        if len(entry) == 3:
            return entry[0], entry[1], [rename[i] for i in entry[2]]
        scheduled, tables, preempted, free = entry
        tables = [tuple([rename[i] for i in group] for group in table) for table in tables]
        return scheduled, tables, preempted, [rename[i] for i in free]

    assert [under_new_names(entry) for entry in plain.log] == renamed.log


@quick
@given(asynchronous=either, engine=engines(), script=scripts(), algorithm=st.sampled_from(HASH_ALGORITHMS))
def test_the_hash_algorithm_does_not_matter(asynchronous, engine, script, algorithm):
    function = get_hash_function(algorithm, "0")

    def make(*args):
        return request_of(*args, function=function)

    first = play(engine, script, asynchronous=asynchronous)
    assert first.log == play(engine, script, asynchronous=asynchronous, make=make).log


@quick
@given(asynchronous=either, engine=engines(caching=False), script=scripts())
def test_without_caching_nobody_hits_and_nothing_is_kept(asynchronous, engine, script):
    world = play(engine, script, asynchronous=asynchronous)
    assert (world.hit_tokens, world.pool.num_evicted_keys) == (0, 0)
    assert all(request.num_cached_tokens <= 0 for request in world.requests.values())


@quick
@given(asynchronous=either, engine=engines(caching=True), script=scripts())
def test_one_salt_for_all_changes_nothing_and_one_for_each_ends_sharing(asynchronous, engine, script):
    def salted(salt):
        def make(index, arrival, *rest):
            return request_of(index, arrival._replace(salt=salt(index)), *rest)

        return play(engine, script, asynchronous=asynchronous, make=make)

    unsalted = salted(lambda _: None)
    assert unsalted.log == salted(lambda _: "one").log
    apart = salted(lambda index: f"own {index}")
    assert apart.hit_tokens == 0


@quick
@given(asynchronous=either, engine=engines(), script=scripts(), stop=st.integers(1, 5), whose=st.integers(0, 8))
def test_the_true_length_of_an_answer_is_not_seen_before_it_ends(asynchronous, engine, script, stop, whose):
    """Law 10: until the model stops, the engine decides as if it did not know when."""
    events = list(script.events)
    places = [place for place, (_, event) in enumerate(events) if not isinstance(event, int)]
    assume(places)
    place = places[whose % len(places)]
    name = f"r{places.index(place)}"

    def run(stops_after):
        turns, arrival = events[place]
        changed = [*events[:place], (turns, arrival._replace(stops_after=stops_after)), *events[place + 1 :]]
        return play(engine, replace_events(script, changed), asynchronous=asynchronous)

    early, late = run(stop), run(None)
    if early.ended[name] != "stop":
        assert early.log == late.log
        return
    end = next(i for i, entry in enumerate(early.log) if len(entry) == 3 and name in entry[1])
    assert early.log[:end] == late.log[:end]


def replace_events(script, events):
    return script._replace(events=tuple(events))


@quick
@given(asynchronous=either, engine=engines(), script=scripts(), data=st.data())
def test_a_request_that_is_rejected_changes_nothing_for_others(asynchronous, engine, script, data):
    place = data.draw(st.integers(0, len(script.events)))
    plain = play(engine, script, asynchronous=asynchronous)
    hopeless = make_request("hopeless", data.draw(st.integers(0, 9)), 0, priority=-1)
    more = play(engine, script, asynchronous=asynchronous, intruder=(place, hopeless))
    assert more.log == plain.log
    assert more.ended == plain.ended | {"hopeless": "rejected"}


@quick
@given(engine=engines(plain=True, caching=True), batch=st.lists(arrivals(), min_size=1, max_size=10))
def test_no_pool_hits_more_than_an_infinite_one(engine, batch):
    """Law 11, one request after another: every hit is there with room for everything, and no more than that."""
    roomy = replace(engine, num_gpu_blocks=500, watermark=0.0)
    results = []
    for chosen in (engine, roomy):
        world = World(chosen)
        requests = []
        for index, arrival in enumerate(batch):
            requests.append(request_of(index, arrival, requests, chosen, index))
            world.arrive(requests[-1])
            world.run()
        results.append(world)
    tight, free = results
    for name, request in tight.requests.items():
        if tight.ended[name] == "length":
            assert max(request.num_cached_tokens, 0) <= free.requests[name].num_cached_tokens


@quick
@given(engine=engines(), script=scripts())
def test_synchronous_and_asynchronous_answer_the_same(engine, script):
    """Where nobody is aborted or rejected, every request gets the same number of tokens under both."""
    calm = replace_events(script, [event for event in script.events if not isinstance(event[1], int)])
    sync, overlapped = (play(engine, calm, asynchronous=value) for value in (False, True))
    for name, how in sync.ended.items():
        if how != "rejected" and overlapped.ended[name] != "rejected":
            assert overlapped.ended[name] == how
            assert overlapped.requests[name].num_output_tokens == sync.requests[name].num_output_tokens


# Real hashes and content fingerprints

streams = st.integers(1, 3)
segments = st.builds(Segment, streams, st.sampled_from([0, 0, 0, 4, 5]), st.integers(1, 12))


@st.composite
def specs(draw):
    prompt = merge_pieces(draw(st.lists(segments, min_size=1, max_size=3)))
    tokens = sum(piece.length for piece in prompt)
    items: list[MultiModalItem] = []
    if tokens > 6 and draw(st.booleans()):
        name, length = draw(st.sampled_from([("cat", 1), ("dog", 3)]))
        items.append(MultiModalItem(name, draw(st.integers(0, tokens - length)), length))
    lora = draw(st.none() | st.sampled_from([LoRA("x", 1, "/x"), LoRA("y", 2, "/y")]))
    return RequestSpec(
        "", 0.0, prompt, draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 50, 51])),
        mm_items=tuple(items), lora=lora, cache_salt=draw(st.sampled_from([None, None, "s"])),
    )  # fmt: skip


@quick
@given(
    engine=engines(plain=True, caching=True), chosen=st.lists(specs(), min_size=1, max_size=8), gap=st.integers(0, 3)
)
def test_content_hashes_and_real_hashes_decide_the_same(engine, chosen, gap):
    size = engine.groups[0].block_size
    logs = []
    for hashes in (ContentHashes(size), *(RealHashes(get_hash_function(name, "0"), size) for name in HASH_ALGORITHMS)):
        world = World(engine)
        for index, spec in enumerate(chosen):
            named = replace(spec, request_id=f"r{index}")
            world.arrive(request_from_spec(named, hashes, index=index, arrival_time=float(index)))
            for _ in range(gap):
                world.turn()
        world.run()
        logs.append(world.log)
    assert all(log == logs[0] for log in logs)


def digest() -> str:
    """A digest of what a fixed world decides, with everything in it that could depend on Python's own hashes."""
    told = hashlib.sha256()
    for asynchronous in (False, True):
        world = play_fixed(asynchronous)
        told.update(repr((world.log, world.ended)).encode())
    return told.hexdigest()


def play_fixed(asynchronous: bool) -> World:
    world = World(
        config(14, [full(), sliding(5)], max_num_batched_tokens=8, encoder_cache_size=6, max_loras=1),
        asynchronous=asynchronous,
    )
    for index in range(12):
        world.arrive(
            make_request(
                f"r{index}", [*range(index % 5 + 6)], 4, lora="xyz"[index % 3], salt=None if index % 4 else "s",
                items=[(("cat", "dog")[index % 2], 1, 2), ("sea", 3, 3)], arrival_time=float(index // 3),
            )
        )  # fmt: skip
        world.turn()
    world.run()
    return world


def test_the_seed_of_pythons_hashes_changes_no_byte():
    """Law 7: nothing is iterated in the order of a set of texts."""
    here = Path(__file__).parent
    program = "import test_metamorphic; print(test_metamorphic.digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(here)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(digests) == 1


def test_a_policy_is_a_free_queue_with_another_order():
    """The scheduler needs no more of a free queue than its interface: here the last freed goes first."""

    class LastFreedFirst(FreeKVCacheBlockQueue):
        def append_n(self, blocks):
            if self.num_free_blocks and blocks:
                self.prepend_n(blocks)
            else:
                super().append_n(blocks)

    engine = Engine(config(6), free_queue=LastFreedFirst)
    assert isinstance(engine.scheduler, Scheduler)
    hits = serve(engine, *(make_request(name, [ord(name)] * 5) for name in "abcab"))
    assert len(hits) == 5
    assert len(engine.free()) == 6
