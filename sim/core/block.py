"""One block of KV cache, and the keys under which blocks are cached."""

from __future__ import annotations

from typing import NewType

BlockId = NewType("BlockId", int)
BlockHash = NewType("BlockHash", bytes)
BlockKey = NewType("BlockKey", bytes)  # block hash + 4-byte big-endian group id


def make_block_key(block_hash: BlockHash, group_id: int) -> BlockKey:
    """The cache key of a block hash within a KV-cache group."""
    return BlockKey(block_hash + group_id.to_bytes(4, "big"))


def key_hash(key: BlockKey) -> BlockHash:
    """The block hash within a key."""
    return BlockHash(key[:-4])


def key_group_id(key: BlockKey) -> int:
    """The group id within a key."""
    return int.from_bytes(key[-4:], "big")


class KVCacheBlock:
    """A slot of GPU memory for `block_size` tokens of one group.

    `ref_cnt` counts the requests that hold it.  `block_hash` is the key under which it is cached,
    `num_hashed_tokens` the length of the prefix (tokens) that this key covers.  `partial_key` is a second
    key, for a prefix that ends inside the block.  The two links belong to the free queue alone.
    `is_phantom` marks a cached block whose content was never computed.
    """

    __slots__ = (
        "_block_hash",
        "block_id",
        "is_null",
        "is_phantom",
        "next_free_block",
        "num_hashed_tokens",
        "partial_key",
        "prev_free_block",
        "ref_cnt",
    )

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self._block_hash: BlockKey | None = None
        self.num_hashed_tokens = 0
        self.partial_key: BlockKey | None = None
        self.prev_free_block: KVCacheBlock | None = None
        self.next_free_block: KVCacheBlock | None = None
        self.is_null = False
        self.is_phantom = False

    @property
    def block_hash(self) -> BlockKey | None:
        """The key under which the block is cached, or None."""
        return self._block_hash

    def set_hash(self, key: BlockKey, num_hashed_tokens: int) -> None:
        """Give the block its key.  Raises `ValueError` when it has one already."""
        if self._block_hash is not None:
            raise ValueError(f"block {self.block_id} already has a hash; reset it first")
        self._block_hash = key
        self.num_hashed_tokens = num_hashed_tokens

    def reset_hash(self) -> None:
        """Forget the keys."""
        self._block_hash = None
        self.partial_key = None
        self.num_hashed_tokens = 0
        self.is_phantom = False

    def __repr__(self) -> str:
        before = self.prev_free_block.block_id if self.prev_free_block else None
        after = self.next_free_block.block_id if self.next_free_block else None
        key = self._block_hash.hex() if self._block_hash is not None else None
        return (
            f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={key}, "
            f"prev_free_block={before}, next_free_block={after})"
        )
