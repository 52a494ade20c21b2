"""The pool: all blocks, which of them are free, and which are cached under which key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from sim.core.block import BlockHash, BlockKey, KVCacheBlock, key_group_id, key_hash, make_block_key
from sim.core.events import AllBlocksCleared, BlockRemoved, BlockStored, ExtraKeys, KVCacheEvent
from sim.core.free_queue import FreeKVCacheBlockQueue
from sim.core.hashing import generate_block_hash_extra_keys, need_extra_keys
from sim.core.request import Request
from sim.errors import InvariantError

logger = logging.getLogger(__name__)


class FreeQueue(Protocol):
    """What the pool asks of a free queue; an eviction policy is one of these with another order."""

    @property
    def num_free_blocks(self) -> int:
        """Number of free blocks."""
        ...

    def popleft(self) -> KVCacheBlock:
        """Take the block to reuse next."""
        ...

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take the n blocks to reuse next, in order."""
        ...

    def remove(self, block: KVCacheBlock) -> None:
        """Take out a block that was hit."""
        ...

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in cached blocks that nobody holds any more, in this order."""
        ...

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Take in blocks that cannot be hit; they go first."""
        ...

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks in the order of reuse."""
        ...

    def check(self) -> None:
        """Raise `InvariantError` when something does not agree."""
        ...


class PoolObserver:
    """Told what happens to blocks; every method may be overridden, none may change anything.

    Recorders and eviction policies that want to know depth, hits or times are observers.
    """

    def serving(self, request: Request) -> None:
        """What follows is done for this request."""

    def allocated(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Blocks were taken from the free queue for new tokens."""

    def evicted(self, block: KVCacheBlock) -> None:
        """The block, still with its key, is about to lose it."""

    def hit(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Cached blocks were hit by the request being served; free ones have just left the free queue."""

    def cached(self, request: Request, blocks: Sequence[KVCacheBlock], first_index: int, block_size: int) -> None:
        """Blocks ``first_index …`` of the request's table (null and masked ones included) got keys where they can."""

    def releasing(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Nobody holds these blocks any more; they are about to enter the free queue."""

    def cleared(self) -> None:
        """All keys were dropped."""


class BlockMap:
    """Key → blocks.  The same content may sit in several blocks; a lookup gives the one inserted first."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, KVCacheBlock | dict[int, KVCacheBlock]] = {}

    def get(self, key: BlockKey) -> KVCacheBlock | None:
        """The first-inserted block with this key that is still there, or None."""
        found = self._blocks.get(key)
        if isinstance(found, dict):
            return next(iter(found.values()))
        return found

    def insert(self, key: BlockKey, block: KVCacheBlock) -> None:
        """Add a block behind those that have the key already."""
        found = self._blocks.get(key)
        if found is None:
            self._blocks[key] = block
        elif isinstance(found, dict):
            found[block.block_id] = block
        else:
            self._blocks[key] = {found.block_id: found, block.block_id: block}

    def remove(self, key: BlockKey, block_id: int) -> bool:
        """Take one block from under its key; False when it was not there."""
        found = self._blocks.get(key)
        if isinstance(found, dict):
            gone = found.pop(block_id, None) is not None
            if not found:
                del self._blocks[key]
            return gone
        if found is None or found.block_id != block_id:
            return False
        del self._blocks[key]
        return True

    def clear(self) -> None:
        """Drop everything."""
        self._blocks.clear()

    def items(self) -> Iterable[tuple[BlockKey, list[KVCacheBlock]]]:
        """Every key with its blocks in order of insertion."""
        for key, found in self._blocks.items():
            yield key, list(found.values()) if isinstance(found, dict) else [found]

    def __len__(self) -> int:
        return len(self._blocks)


class BlockPool:
    """All blocks of the GPU.  Block 0 is the *null block*, a placeholder that is never cached, freed or counted.

    Args:
        num_gpu_blocks: how many blocks, the null block included; at least 1.
        enable_caching: whether blocks keep keys at all.
        enable_kv_cache_events: whether events are collected for `take_events`.
        free_queue: makes the free queue from the list of blocks; its order is the eviction policy.
        observer: told of what happens.
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool = True,
        enable_kv_cache_events: bool = False,
        free_queue: Callable[[list[KVCacheBlock]], FreeQueue] = FreeKVCacheBlockQueue,
        observer: PoolObserver | None = None,
    ) -> None:
        if num_gpu_blocks < 1:
            raise ValueError(f"a pool needs at least one block, got {num_gpu_blocks}")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.enable_kv_cache_events = enable_kv_cache_events
        self.observer = observer
        self.blocks = [KVCacheBlock(i) for i in range(num_gpu_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = free_queue(self.blocks[1:])
        self.cached_block_hash_to_block = BlockMap()
        self.num_evicted_keys = 0
        self._events: list[KVCacheEvent] = []

    def get_cached_block(self, block_hash: BlockHash, group_ids: Sequence[int]) -> list[KVCacheBlock] | None:
        """The cached block of each group, or None unless all groups have one."""
        found = []
        for group_id in group_ids:
            block = self.cached_block_hash_to_block.get(make_block_key(block_hash, group_id))
            if block is None:
                return None
            found.append(block)
        return found

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue; those that still have a key are evicted.

        Raises:
            ValueError: fewer are free; nothing has changed.
        """
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"cannot get {num_blocks} blocks: {self.get_num_free_blocks()} are free")
        blocks = self.free_block_queue.popleft_n(num_blocks)
        for block in blocks:
            if block.block_hash is not None:
                self._evict(block)
            block.ref_cnt += 1
        if self.observer is not None:
            self.observer.allocated(blocks)
        return blocks

    def _evict(self, block: KVCacheBlock) -> None:
        key = block.block_hash
        assert key is not None
        if self.observer is not None:
            self.observer.evicted(block)
        keys = [key] if block.partial_key is None else [key, block.partial_key]
        for key in keys:
            self.cached_block_hash_to_block.remove(key, block.block_id)
            if self.enable_kv_cache_events:
                self._events.append(BlockRemoved((key_hash(key),), key_group_id(key)))
        block.reset_hash()
        self.num_evicted_keys += len(keys)

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Hold blocks that were hit; a free one leaves the free queue.  Null blocks are skipped."""
        hit = [block for block in blocks if not block.is_null]
        for block in hit:
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1
        if self.observer is not None:
            self.observer.hit(hit)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Let go of blocks, given in the order in which they should be evicted.

        Those that nobody holds any more enter the free queue: without a key at the front, with a key at
        the back, each as one list in the given order.  Null blocks are skipped.
        """
        unhashed: list[KVCacheBlock] = []
        hashed: list[KVCacheBlock] = []
        for block in ordered_blocks:
            if block.is_null:
                continue
            if block.ref_cnt <= 0:
                raise InvariantError(f"law 2: {block} is freed but nobody holds it")
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                (hashed if self.enable_caching and block.block_hash is not None else unhashed).append(block)
        if self.observer is not None:
            self.observer.releasing(unhashed + hashed)
        self.free_block_queue.prepend_n(unhashed)
        self.free_block_queue.append_n(hashed)

    def cache_full_blocks(
        self,
        request: Request,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        group_id: int,
        block_hashes: Sequence[BlockHash],
        mask: Sequence[bool] | None = None,
    ) -> None:
        """Give blocks ``num_cached_blocks … num_full_blocks - 1`` of a table their keys.

        Args:
            request: whose tokens they hold.
            blocks: the request's block table in this group.
            num_cached_blocks: how many at its start were dealt with before.
            num_full_blocks: how many are full of known tokens.
            block_size: of the group, tokens.
            group_id: the group.
            block_hashes: hashes at this block size, at least `num_full_blocks`.
            mask: which of the new blocks get a key; all for None.
        """
        new = blocks[num_cached_blocks:num_full_blocks]
        stored: list[int] = []
        for offset, block in enumerate(new):
            if block.is_null or (mask is not None and not mask[offset]):
                continue
            index = num_cached_blocks + offset
            key = make_block_key(block_hashes[index], group_id)
            block.set_hash(key, (index + 1) * block_size)
            self.cached_block_hash_to_block.insert(key, block)
            stored.append(index)
        if self.observer is not None:
            self.observer.cached(request, new, num_cached_blocks, block_size)
        if self.enable_kv_cache_events:
            parent = block_hashes[num_cached_blocks - 1] if num_cached_blocks else None
            spans = [(index * block_size, (index + 1) * block_size) for index in stored]
            hashes = [block_hashes[index] for index in stored]
            self._events.append(self._stored(request, spans, block_size, group_id, hashes, parent))

    def cache_partial_block(
        self,
        request: Request,
        block: KVCacheBlock,
        start: int,
        stop: int,
        group_id: int,
        block_hash: BlockHash,
        parent: BlockHash | None,
    ) -> None:
        """Give a full block a second key, for the prefix that ends at token `stop` inside it.

        Args:
            request: whose tokens it holds.
            block: the block, which has its own key already.
            start: where the last hashed piece of the prefix begins, tokens.
            stop: the end of the prefix, tokens.
            group_id: the group.
            block_hash: hash of that prefix.
            parent: hash of the prefix that ends at `start`, None at the start of the sequence.
        """
        block.partial_key = make_block_key(block_hash, group_id)
        self.cached_block_hash_to_block.insert(block.partial_key, block)
        if self.enable_kv_cache_events:
            size = stop - start
            self._events.append(self._stored(request, [(start, stop)], size, group_id, [block_hash], parent))

    @staticmethod
    def _stored(
        request: Request,
        spans: Sequence[tuple[int, int]],
        block_size: int,
        group_id: int,
        hashes: Sequence[BlockHash],
        parent: BlockHash | None,
    ) -> BlockStored:
        tokens: list[int] = []
        extra: list[ExtraKeys] = []
        with_extra = need_extra_keys(request)
        for start, stop in spans:
            tokens += request.token_ids(start, stop)
            extra.append(generate_block_hash_extra_keys(request, start, stop, 0)[0] if with_extra else None)
        lora = request.lora_request
        return BlockStored(
            block_hashes=tuple(hashes),
            parent_block_hash=parent,
            token_ids=tuple(tokens),
            block_size=block_size,
            lora_id=lora.id if lora else None,
            lora_name=lora.name if lora else None,
            group_id=group_id,
            extra_keys=tuple(extra),
        )

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Drop the keys of these blocks, wherever they are."""
        for block_id in block_ids:
            if not 0 <= block_id < self.num_gpu_blocks:
                raise ValueError(f"block {block_id} is not among the pool's {self.num_gpu_blocks}")
            if self.blocks[block_id].block_hash is not None:
                self._evict(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Drop every key.  Does nothing and returns False while any block but the null one is in use."""
        used = self.num_gpu_blocks - 1 - self.get_num_free_blocks()
        if used:
            logger.warning("the prefix cache is not reset: %d blocks are in use", used)
            return False
        self.cached_block_hash_to_block.clear()
        for block in self.blocks:
            block.reset_hash()
        if self.observer is not None:
            self.observer.cleared()
        if self.enable_kv_cache_events:
            self._events.append(AllBlocksCleared())
        return True

    def get_num_free_blocks(self) -> int:
        """Number of blocks in the free queue."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """Share of blocks in use, the null block left out; 0 for a pool of only that."""
        total = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / total if total else 0.0

    def take_events(self) -> list[KVCacheEvent]:
        """Events since the last call."""
        events, self._events = self._events, []
        return events

    def check(self) -> None:
        """Raise `InvariantError` unless queue, references, keys and blocks agree (laws 1, 3, 4)."""
        self.free_block_queue.check()
        free = self.free_block_queue.get_all_free_blocks()
        used = sum(1 for block in self.blocks if block.ref_cnt > 0 and not block.is_null)
        if len({block.block_id for block in free}) + used != self.num_gpu_blocks - 1:
            raise InvariantError(f"law 1: {len(free)} free + {used} used != {self.num_gpu_blocks - 1} blocks")
        in_use = [block for block in free if block.ref_cnt or block.is_null]
        if in_use:
            raise InvariantError(f"law 4: {in_use[0]} is free and in use")
        mapped: list[tuple[int, BlockKey]] = []
        for key, blocks in self.cached_block_hash_to_block.items():
            for block in blocks:
                if key not in (block.block_hash, block.partial_key):
                    raise InvariantError(f"law 3: {block} stands under key {key.hex()}")
                mapped.append((block.block_id, key))
        keys = [
            (block.block_id, key)
            for block in self.blocks
            for key in (block.block_hash, block.partial_key)
            if key is not None
        ]
        if sorted(keys) != sorted(mapped):
            raise InvariantError(f"law 3: keys of blocks and keys in the map differ: {set(keys) ^ set(mapped)}")
        if self.null_block.block_hash is not None or self.null_block.ref_cnt:
            raise InvariantError("law 4: the null block is cached or counted")
