"""KV-cache groups: layers that share a block table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """One group: its kind of attention, tokens a block, and for sliding windows the window in tokens."""

    kind: Literal["full", "sliding_window"]
    block_size: int
    window: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("full", "sliding_window"):
            raise ValueError(f"a group is full or sliding_window, not {self.kind!r}")
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}")
        if (self.window is None) == (self.kind == "sliding_window") or (self.window is not None and self.window < 1):
            raise ValueError(f"a sliding_window group needs a window of at least 1, a full one has none: {self}")


def scheduler_block_size(groups: Sequence[KVCacheGroup]) -> int:
    """Hits land on multiples of this: the least common multiple of the groups' sizes."""
    return math.lcm(*(group.block_size for group in groups))


def hash_block_size(groups: Sequence[KVCacheGroup]) -> int:
    """Hashes are computed at this size: the greatest common divisor of the groups' sizes."""
    return math.gcd(*(group.block_size for group in groups))
