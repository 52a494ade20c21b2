"""The eviction policy of a run, and for an optimum the future that it must know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from sim.config.models import ExperimentConfig
from sim.config.resolve import Resolved
from sim.core.block import BlockKey, make_block_key
from sim.core.cache_groups import hash_block_size
from sim.core.hashing import BlockHashListWithBlockSize
from sim.core.request import Request
from sim.core.spec_request import ContentHashes, SpecHashes, request_from_spec
from sim.eviction.facts import Origin
from sim.eviction.future import KnownFuture
from sim.eviction.registry import LRU, Eviction, make_eviction, needs_future
from workloads.spec import RequestSpec, stream_id

Specs = Callable[[], Iterator[RequestSpec]]
PolicyMaker = Callable[[Callable[[], float], Callable[[Request], Origin]], Eviction]


def policy_maker(
    config: ExperimentConfig, resolved: Resolved, specs: Specs, hashes: SpecHashes | None
) -> PolicyMaker | None:
    """What makes the policy from the engine's clock and the origins of its requests; None for the pool's own queue.

    Args:
        config: names the policy and its settings.
        resolved: the engine's numbers.
        specs: all requests once more, for a policy that must know the future.
        hashes: the block hashes of the run; None = content fingerprints.

    Raises:
        ConfigError: the policy cannot be made, or needs a future that nobody knows.
    """
    name, params = config.eviction.policy, config.eviction.params()
    if name == LRU and not params:
        return None
    scheduler = resolved.scheduler
    future = known_future(specs, resolved, hashes) if needs_future(name) else None

    def make(clock: Callable[[], float], origin_of: Callable[[Request], Origin]) -> Eviction:
        return make_eviction(
            name,
            params,
            num_blocks=scheduler.num_gpu_blocks,
            hash_block_size=hash_block_size(scheduler.groups),
            clock=clock,
            seed=np.random.SeedSequence(config.seed, spawn_key=(stream_id("eviction"),)),
            origin_of=origin_of,
            future=future,
        )

    return make


def known_future(specs: Specs, resolved: Resolved, hashes: SpecHashes | None) -> KnownFuture | None:
    """The keys that every request will look up, by its index; None when an end decides when a request comes."""
    groups = resolved.scheduler.groups
    fine = hash_block_size(groups)
    hashes = hashes or ContentHashes(fine)
    wanted: list[list[BlockKey]] = []
    for index, spec in enumerate(specs()):
        if spec.after is not None:
            return None
        found = request_from_spec(spec, hashes, index=index, arrival_time=spec.arrival_s).block_hashes
        wanted.append(
            [
                make_block_key(block_hash, group_id)
                for group_id, group in enumerate(groups)
                for block_hash in BlockHashListWithBlockSize(found, fine, group.block_size)
            ]
        )
    return KnownFuture(wanted)
