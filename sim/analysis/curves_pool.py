"""Free-queue policies in a cache without a clock: the real pool, one request after another."""

from __future__ import annotations

import numpy as np

from sim.analysis.accesses import Accesses, BoolArray
from sim.analysis.curves_policies import CurvePolicy, PolicyRun
from sim.analysis.stack_distance import ReuseRuns, mark
from sim.core.block import BlockHash, KVCacheBlock, make_block_key
from sim.core.block_pool import BlockPool
from sim.core.request import Request
from sim.errors import InvariantError
from sim.eviction.facts import Origin
from sim.eviction.future import KnownFuture
from sim.eviction.registry import POLICIES, check_policy, make_eviction, needs_future

QUEUE = "queue:"


def queue_policy(name: str) -> CurvePolicy:
    """The free-queue policy of this name (``queue:`` before it or not).

    Raises:
        ConfigError: there is none; the message has the nearest names.
    """
    plain = name.removeprefix(QUEUE)
    check_policy(plain)
    summary = POLICIES[plain].summary if plain in POLICIES else f"{plain}, a policy of your own"

    def prepare(accesses: Accesses, runs: ReuseRuns, seed: int) -> PolicyRun:
        requests = _requests(accesses)
        return PolicyRun(lambda capacity: _hits(accesses, requests, plain, capacity, seed))

    return CurvePolicy(name, summary, prepare)


def _requests(accesses: Accesses) -> list[Request]:
    hashes = [BlockHash(key.to_bytes(8, "big")) for key in range(accesses.num_keys)]
    keys = accesses.keys.tolist()
    starts = accesses.starts.tolist()

    def request(index: int) -> Request:
        mine = [hashes[key] for key in keys[starts[index] : starts[index + 1]]]
        tokens = len(mine) * accesses.block_size
        return Request(str(index), tokens, 1, block_hasher=lambda _: mine, index=index)

    return [request(index) for index in range(accesses.num_requests)]


def _hits(accesses: Accesses, requests: list[Request], name: str, capacity: int, seed: int) -> BoolArray:
    """Whether each access hits in a pool of `capacity` blocks.

    A request holds the blocks before its first miss, takes the rest from the queue, and lets go of all of them, last
    to first.  One larger than the pool keeps to the blocks that it can get: its tail is not cached.
    """
    origins = accesses.origins or [Origin()] * len(requests)
    clock = _Clock()
    future = None
    if needs_future(name):
        future = KnownFuture([make_block_key(h, 0) for h in request.block_hashes] for request in requests)
    eviction = make_eviction(
        name,
        num_blocks=capacity + 1,
        hash_block_size=accesses.block_size,
        clock=clock,
        seed=np.random.SeedSequence(seed, spawn_key=(0,)),
        origin_of=lambda request: origins[request.index],
        future=future,
    )
    pool = BlockPool(capacity + 1, free_queue=eviction.free_queue, observer=eviction.observer)
    begins: list[int] = []
    ends: list[int] = []
    try:
        for request, start in zip(requests, accesses.starts.tolist(), strict=False):
            clock.now = request.index
            found = _serve(pool, request, accesses.block_size)
            begins.append(start)
            ends.append(start + found)
    except InvariantError as error:
        raise InvariantError(f"request {clock.now:.0f}, {capacity:,} blocks: {error}") from error
    return mark(len(accesses), begins, ends)


class _Clock:
    """The number of the request being served is the time."""

    now = 0

    def __call__(self) -> float:
        return self.now


def _serve(pool: BlockPool, request: Request, block_size: int) -> int:
    """Serve one request; how many of its blocks hit."""
    if pool.observer is not None:
        pool.observer.serving(request)
    held: list[KVCacheBlock] = []
    for block_hash in request.block_hashes:
        block = pool.get_cached_block(block_hash, (0,))
        if block is None:
            break
        held.append(block[0])
    found = len(held)
    pool.touch(held)
    held += pool.get_new_blocks(min(len(request.block_hashes) - found, pool.get_num_free_blocks()))
    if len(held) > found:
        pool.cache_full_blocks(request, held, found, len(held), block_size, 0, request.block_hashes)
    pool.free_blocks(reversed(held))
    return found
