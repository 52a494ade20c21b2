"""Which implementation decides, and how long its steps take."""

from __future__ import annotations

import os
from typing import NamedTuple

from sim.config.models import ExperimentConfig
from sim.config.resolve import Resolved
from sim.core.cache_groups import hash_block_size
from sim.core.hashing import HashFunction, get_hash_function
from sim.core.spec_request import RealHashes
from sim.engine.fast import FastDecider
from sim.engine.interface import Decider
from sim.engine.policy import Specs, policy_maker
from sim.engine.reference import ReferenceEngine
from sim.errors import ConfigError
from sim.fast.support import supports
from sim.recording.kv_events import KVEventWriter
from sim.recording.miss_tracker import MissTracker
from sim.recording.recorder import Recorder
from sim.timing.base import StepTime
from sim.timing.build import build_step_time
from workloads.fingerprint import Fingerprints, sequence_fingerprints


class Choice(NamedTuple):
    """A decider, the name of its implementation, why it is this one, and the model of its step time."""

    decider: Decider
    name: str
    reason: str
    step_time: StepTime


def choose_decider(
    config: ExperimentConfig,
    resolved: Resolved,
    recorder: Recorder,
    specs: Specs,
    *,
    check_invariants: bool = False,
    events: KVEventWriter | None = None,
    fingerprints: Fingerprints = sequence_fingerprints,
    misses: MissTracker | None = None,
) -> Choice:
    """The implementation that `engine.implementation` asks for.

    Args:
        config, resolved: what to simulate.
        recorder: receives rows.
        specs: all requests once more, for an eviction policy that must know the future.
        check_invariants: check every law after every step.
        events: receives KV events, with real block hashes.
        fingerprints: the content fingerprints of a request, made or known before.
        misses: explains misses.

    Raises:
        ConfigError: the fast path is asked for and does not cover this engine, or the policy cannot be made.
    """
    step_time = build_step_time(config.timing, config.memory)
    scheduler, asked = resolved.scheduler, config.engine.implementation
    why_not = supports(scheduler, eviction_policy=config.eviction.policy, real_hashes=events is not None)
    if asked == "fast" and why_not is not None:
        raise ConfigError(f"engine.implementation: the fast path does not cover this engine: {why_not}")
    if asked != "reference" and why_not is None:
        fast = FastDecider(
            scheduler,
            step_time,
            recorder,
            check_invariants=check_invariants,
            fingerprints=fingerprints,
            misses=misses,
        )
        return Choice(fast, "fast", "", step_time)
    hashes = None
    if events is not None:
        hashes = RealHashes(_hash_function(config), hash_block_size(scheduler.groups))
    reference = ReferenceEngine(
        scheduler,
        step_time,
        recorder,
        check_invariants=check_invariants,
        make_policy=policy_maker(config, resolved, specs, hashes),
        hashes=hashes,
        events=events,
        fingerprints=fingerprints,
        misses=misses,
    )
    reason = "" if why_not is None else f"the fast path does not cover this engine: {why_not}"
    return Choice(reference, "reference", reason, step_time)


def _hash_function(config: ExperimentConfig) -> HashFunction:
    """The hash that the engine would use; where that is random per process, the run's seed stands in."""
    name = config.engine.prefix_caching_hash_algo
    seed = os.environ.get("PYTHONHASHSEED")
    if seed is None and not name.startswith("sha256"):
        seed = str(config.seed)
    return get_hash_function(name, seed)
