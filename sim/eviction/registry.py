"""Eviction policies by name, and the making of one.

A new policy is one file here and one line in `POLICIES`; a policy in somebody's own module needs neither:
it is named ``my_module:MyQueue``.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sim.core.block import KVCacheBlock
from sim.core.block_pool import FreeQueue, PoolObserver
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.errors import ConfigError
from sim.eviction.base import EvictionPolicy, Future, PolicyContext
from sim.eviction.checked import CheckedQueue
from sim.eviction.facts import BlockLedger, BlockView, Origin

if TYPE_CHECKING:
    from sim.core.request import Request


class Entry(NamedTuple):
    """Where a policy is, and what it does in one line."""

    module: str
    class_name: str
    summary: str


_HERE = "sim.eviction"
LRU = "lru"

POLICIES: dict[str, Entry] = {
    LRU: Entry(
        "sim.core.free_queue", "FreeKVCacheBlockQueue", "the reference: least recently used, tails before heads"
    ),
    "fifo": Entry(f"{_HERE}.fifo", "Fifo", "cached first, evicted first"),
    "random": Entry(f"{_HERE}.random", "Random", "any block"),
    "lfu": Entry(f"{_HERE}.lfu", "Lfu", "fewest uses, with aging"),
    "lru_k": Entry(f"{_HERE}.lru_k", "LruK", "the k-th last use longest ago"),
    "slru": Entry(f"{_HERE}.slru", "Slru", "blocks hit once are protected from those never hit"),
    "2q": Entry(f"{_HERE}.two_q", "TwoQ", "a first queue for new blocks, a ghost queue, and LRU behind"),
    "arc": Entry(f"{_HERE}.arc", "Arc", "balances recency and frequency by its own mistakes"),
    "s3fifo": Entry(f"{_HERE}.s3fifo", "S3Fifo", "three FIFO queues: small, main, ghost"),
    "sieve": Entry(f"{_HERE}.sieve", "Sieve", "a hand that spares blocks hit since it last passed"),
    "gdsf": Entry(f"{_HERE}.gdsf", "Gdsf", "uses times the cost to compute the block again, with aging"),
    "leaf_lru": Entry(
        f"{_HERE}.leaf_lru", "LeafLru", "least recently used without cached children, as radix caches do"
    ),
    "length_aware": Entry(f"{_HERE}.length_aware", "LengthAware", "fewest uses, then deepest (Mooncake)"),
    "workload_aware": Entry(
        f"{_HERE}.workload_aware", "WorkloadAware", "least likely reused, learnt per category and turn (Bailian)"
    ),
    "ttl": Entry(f"{_HERE}.ttl", "Ttl", "first to outlive the time that its category is kept"),
    "pinned": Entry(f"{_HERE}.pinned", "Pinned", "heads of popular prefixes and named categories go last"),
    "belady": Entry(f"{_HERE}.belady", "Belady", "wanted again last; sees the future: a bound, not a policy"),
}


class Eviction(NamedTuple):
    """What a pool needs to run a policy: a maker of its free queue and, for all but `lru`, an observer."""

    free_queue: Callable[[list[KVCacheBlock]], FreeQueue]
    observer: PoolObserver | None


def check_policy(name: str, params: Mapping[str, Any] | None = None) -> type[Any]:
    """The class of a policy, after looking at the names of its settings.

    Raises:
        ConfigError: no such policy (with the nearest names) or module, or a setting that it does not have.
    """
    found = _find(name)
    if found is FreeKVCacheBlockQueue:
        known: list[str] = []
    else:
        parameters = list(inspect.signature(found).parameters.values())
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return found
        known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    for key in params or {}:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            has = f"it has {', '.join(known)}" if known else "it has none"
            hint = f"did you mean {near[0]}?" if near else has
            raise ConfigError(f"eviction.{key}: policy {name!r} has no such setting; {hint}")
    return found


def needs_future(name: str) -> bool:
    """Whether the policy is an optimum that must know the future.  Raises `ConfigError` as `check_policy` does."""
    return bool(getattr(_find(name), "needs_future", False))


def make_eviction(
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    num_blocks: int,
    hash_block_size: int,
    clock: Callable[[], float],
    seed: np.random.SeedSequence | int = 0,
    origin_of: Callable[[Request], Origin] = lambda request: Origin(),
    future: Future | None = None,
) -> Eviction:
    """A policy, ready for a pool.

    Args:
        name: of `POLICIES`, or ``module:Class``.
        params: the policy's settings.
        num_blocks: blocks of the pool, the null block included.
        hash_block_size: tokens of one entry of a request's `block_hashes`.
        clock: gives the time, in any unit; `ttl` and `workload_aware` count in it.
        seed: of the policy's own random generator.
        origin_of: who sent a request.
        future: for a policy that needs it.

    Raises:
        ConfigError: as `check_policy`; or the policy needs the future and there is none; or refuses its settings.
    """
    policy_class = check_policy(name, params)
    if policy_class is FreeKVCacheBlockQueue:
        return Eviction(FreeKVCacheBlockQueue, None)
    if getattr(policy_class, "needs_future", False):
        if future is None:
            raise ConfigError(
                f"eviction.policy: {name!r} is an optimum and needs a workload whose future is known: all requests "
                "given beforehand, none released by another's end"
            )
    else:
        future = None
    ledger = BlockLedger(num_blocks, clock, hash_block_size, origin_of)
    context = PolicyContext(BlockView(ledger), np.random.default_rng(seed), future)

    def free_queue(blocks: list[KVCacheBlock]) -> FreeQueue:
        try:
            queue = policy_class(blocks, context, **dict(params or {}))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"eviction: policy {name!r} cannot be made: {error}") from error
        if isinstance(queue, EvictionPolicy):
            ledger.policy = queue
        return CheckedQueue(name, queue, blocks)

    return Eviction(free_queue, ledger)


def _find(name: str) -> type[Any]:
    entry = POLICIES.get(name)
    if entry is not None:
        found: type[Any] = getattr(importlib.import_module(entry.module), entry.class_name)
        return found
    module_name, colon, class_name = name.partition(":")
    if not colon:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), POLICIES, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(POLICIES)}"
        raise ConfigError(f"unknown eviction policy {name!r}; {hint} (your own: my_module:MyQueue)")
    module = _import(name, module_name)
    custom = getattr(module, class_name, None)
    if not isinstance(custom, type):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        raise ConfigError(f"eviction policy {name!r}: {module_name} has no class {class_name!r}; it has {classes}")
    lacking = [method for method in _NEEDED if not hasattr(custom, method)]
    if lacking:
        raise ConfigError(f"eviction policy {name!r} is no free queue: it lacks {', '.join(lacking)}")
    return custom


def _import(name: str, module_name: str) -> ModuleType:
    """A module from the working folder or from wherever Python finds packages."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"eviction policy {name!r}: cannot import {module_name!r} ({reason}); it is looked for in {here} and where "
            "Python finds packages"
        ) from error
    finally:
        sys.path.remove(here)


_NEEDED = ("popleft_n", "remove", "append_n", "prepend_n", "get_all_free_blocks", "num_free_blocks", "check")
