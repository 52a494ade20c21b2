"""Feeds a `MissTracker` from the readable engine: what its pool tells, in dense keys.

With several KV cache groups one is watched: the first with full attention, or else the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sim.core.block import KVCacheBlock, key_group_id
from sim.core.block_pool import PoolObserver
from sim.core.cache_groups import KVCacheGroup
from sim.core.request import Request, RequestStatus
from sim.fast.keys import KeyTable, Span, keys_of
from sim.recording.key_variants import Owner, intern
from sim.recording.miss_tracker import MissTracker
from workloads.fingerprint import Fingerprints
from workloads.spec import RequestSpec


def watched_group(groups: Sequence[KVCacheGroup]) -> int:
    """The group whose blocks are explained."""
    return next((number for number, group in enumerate(groups) if group.window is None), 0)


class MissObserver(PoolObserver):
    """Observes a pool for a tracker.

    Args:
        tracker: explains.
        groups: the engine's KV cache groups.
        now: gives step and time, seconds.
        fingerprints: the content fingerprints of a request, at the tracker's `hash_block_size`.
        caching: whether prefix caching is on; without it nothing is looked up, so nothing misses.
    """

    def __init__(
        self,
        tracker: MissTracker,
        groups: Sequence[KVCacheGroup],
        now: Callable[[], tuple[int, float]],
        fingerprints: Fingerprints,
        *,
        caching: bool,
    ) -> None:
        self.tracker = tracker
        self._caching = caching
        self._group = watched_group(groups)
        self._only_group = len(groups) == 1
        self._fingerprints = fingerprints
        self._keys = KeyTable()
        self._owner = Owner()
        self._block_keys = np.zeros(tracker.num_blocks, dtype=np.int64)
        self._spans: dict[int, list[Span]] = {}
        self._evicted: list[int] = []
        self._admitting: Request | None = None
        self._hit_tokens = 0
        tracker.attach(self._keys, now)

    # requests

    def arrived(self, index: int, spec: RequestSpec) -> None:
        """A request arrives."""
        tracker = self.tracker
        tracker.arrived(index, spec)
        ratio = tracker.block_size // tracker.hash_block_size
        found = self._fingerprints(spec, tracker.hash_block_size)[ratio - 1 :: ratio]
        self._spans[index] = intern(self._keys, found, self._owner)

    def ended(self, index: int) -> None:
        """A request has ended."""
        del self._spans[index]
        self.tracker.ended(index)

    def serving(self, request: Request) -> None:
        """A request gets blocks; one that is not running yet is being admitted."""
        self._settle()
        if self._caching and request.status is not RequestStatus.RUNNING:
            self._admitting, self._hit_tokens = request, 0

    def _settle(self) -> None:
        """All hits of the request that is being admitted are known."""
        request, self._admitting = self._admitting, None
        if request is not None:
            hit = self._hit_tokens // self.tracker.block_size
            self.tracker.admitted(request.index, self._spans[request.index], hit, request.num_tokens)

    # blocks

    def hit(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Blocks were hit; those that were free have left the queue."""
        if blocks:
            self._hit_tokens = max(self._hit_tokens, max(block.num_hashed_tokens for block in blocks))
        left = [b.block_id for b in blocks if b.ref_cnt == 1 and self._block_keys[b.block_id]]
        if left:
            self.tracker.left_free(np.array(left))

    def evicted(self, block: KVCacheBlock) -> None:
        """A block is about to lose its key."""
        self._settle()
        self._evicted.append(block.block_id)

    def allocated(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One taking is over."""
        self._settle()
        if not self._evicted:
            return
        numbers = np.array(self._evicted)
        self._evicted = []
        keys = self._block_keys[numbers]
        self._block_keys[numbers] = 0
        watched = keys > 0
        self._keys.remove(keys[watched], numbers[watched])
        self.tracker.evicted(numbers, keys, None)

    def cached(self, request: Request, blocks: Sequence[KVCacheBlock], first_index: int, block_size: int) -> None:
        """Blocks of a request got keys where they can."""
        self._settle()
        groups = [-1 if b.is_null or b.block_hash is None else key_group_id(b.block_hash) for b in blocks]
        kept = np.array([group == self._group for group in groups])
        if not self._only_group and not kept.any():
            return
        keys = keys_of(self._spans[request.index], first_index, first_index + len(blocks))
        numbers = np.array([block.block_id for block in blocks])
        for key, number in zip(keys[kept].tolist(), numbers[kept].tolist(), strict=True):
            self._keys.insert(key, np.array([number]))
        self._block_keys[numbers[kept]] = keys[kept]
        self.tracker.kept(request.index, keys, first_index, kept)

    def releasing(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Nobody holds these blocks any more."""
        self._settle()
        numbers = np.array([block.block_id for block in blocks], dtype=np.int64)
        keys = self._block_keys[numbers]
        if keys.any():
            self.tracker.entered_free(numbers[keys > 0], keys[keys > 0])
