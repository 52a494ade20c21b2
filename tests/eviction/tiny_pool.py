"""A pool of a few blocks under any policy, with requests that hold their blocks for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.core.block import BlockHash, KVCacheBlock, make_block_key
from sim.core.block_pool import BlockPool
from sim.core.request import Request
from sim.eviction.facts import Origin
from sim.eviction.future import KnownFuture
from sim.eviction.registry import make_eviction, needs_future

SIZE = 2  # tokens of a block


def chain(*tokens: int) -> list[BlockHash]:
    """Hashes of a chain of blocks: each stands for all tokens up to it."""
    return [BlockHash(bytes(tokens[: end + 1])) for end in range(len(tokens))]


class TinyPool:
    """`blocks` usable blocks.  Requests are chains of small integers; time is the number of the request."""

    def __init__(
        self,
        policy: str,
        blocks: int,
        *,
        seed: int = 0,
        future: Sequence[Sequence[int]] = (),
        origins: dict[int, Origin] | None = None,
        **params: Any,
    ) -> None:
        self.now = 0.0
        self.served = -1
        known = None
        if needs_future(policy):
            known = KnownFuture([make_block_key(h, 0) for h in chain(*tokens)] for tokens in future)
        self.eviction = make_eviction(
            policy,
            params,
            num_blocks=blocks + 1,
            hash_block_size=SIZE,
            clock=lambda: self.now,
            seed=seed,
            origin_of=lambda request: (origins or {}).get(request.index, Origin()),
            future=known,
        )
        self.pool = BlockPool(blocks + 1, free_queue=self.eviction.free_queue, observer=self.eviction.observer)

    @property
    def policy(self) -> Any:
        """The policy's own object, without the watcher around it."""
        return getattr(self.pool.free_block_queue, "queue", self.pool.free_block_queue)

    def begin(self, *tokens: int, keyless: int = 0) -> tuple[list[KVCacheBlock], int]:
        """Serve a request: its blocks (as many as there are) and how many of them hit.

        `keyless` blocks more are taken that never get a key, as partial last blocks are.
        """
        self.served += 1
        self.now += 1
        hashes = chain(*tokens)
        request = Request(str(self.served), SIZE * len(hashes), 1, block_hasher=lambda _: hashes, index=self.served)
        if self.pool.observer is not None:
            self.pool.observer.serving(request)
        held: list[KVCacheBlock] = []
        for block_hash in hashes:
            found = self.pool.get_cached_block(block_hash, (0,))
            if found is None:
                break
            held += found
        hits = len(held)
        self.pool.touch(held)
        held += self.pool.get_new_blocks(min(len(hashes) - hits, self.pool.get_num_free_blocks()))
        if len(held) > hits:
            self.pool.cache_full_blocks(request, held, hits, len(held), SIZE, 0, hashes)
        held += self.pool.get_new_blocks(min(keyless, self.pool.get_num_free_blocks()))
        return held, hits

    def end(self, held: list[KVCacheBlock]) -> None:
        """The request lets go of its blocks, last to first."""
        self.pool.free_blocks(reversed(held))

    def serve(self, *tokens: int) -> int:
        """One request from start to end; how many of its blocks hit."""
        held, hits = self.begin(*tokens)
        self.end(held)
        return hits

    def cached(self, *tokens: int) -> bool:
        """Whether the last block of this chain is cached."""
        return self.pool.get_cached_block(chain(*tokens)[-1], (0,)) is not None
