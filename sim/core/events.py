"""KV-cache events in the shape that consumers of vLLM's event stream know."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.core.block import BlockHash

ExtraKeys = tuple[tuple[object, ...], ...] | None


def event_hash(block_hash: BlockHash) -> int:
    """The integer that stands for a hash in events: its low 64 bits."""
    return int.from_bytes(block_hash[-8:], "big")


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks got their keys.

    `block_hashes` are chained, the first one's parent is `parent_block_hash` (None at the start of a
    sequence).  `token_ids` are the blocks' tokens, empty where the run makes none.
    """

    block_hashes: tuple[BlockHash, ...]
    parent_block_hash: BlockHash | None
    token_ids: tuple[int, ...]
    block_size: int
    lora_id: int | None = None
    lora_name: str | None = None
    group_id: int = 0
    extra_keys: tuple[ExtraKeys, ...] = field(default=())
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Keys left the cache because their blocks were taken for something else."""

    block_hashes: tuple[BlockHash, ...]
    group_id: int = 0
    medium: str = "GPU"


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Every key was dropped by a reset."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared
