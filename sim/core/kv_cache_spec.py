"""What one layer keeps per token: the size of its page and the most that one request can hold of it.

A *page* is one block of one layer.  Sizes are bytes.  Layers with equal specs can share a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sim.errors import KvsimError

GIB = 1 << 30

# bytes of one element by the engine's names of `kv_cache_dtype`
KV_DTYPE_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}


class PlanningError(KvsimError):
    """The memory cannot hold what is asked for, or the layers cannot share one pool; the message has the numbers."""


def ceil_div(number: int, divisor: int) -> int:
    """`number / divisor`, rounded up."""
    return -(-number // divisor)


class PlanLimits(NamedTuple):
    """The engine's settings that planning depends on; lengths are tokens."""

    max_model_len: int
    max_num_batched_tokens: int
    num_gpu_blocks_override: int | None = None
    disable_hybrid_kv_cache_manager: bool = False


@dataclass(frozen=True)
class KVCacheSpec:
    """One attention layer.  `num_kv_heads` counts the heads on one GPU; `dtype_bytes` is one element's size."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype_bytes: int

    def __post_init__(self) -> None:
        for name in ("block_size", "num_kv_heads", "head_size", "dtype_bytes"):
            if getattr(self, name) < 1:
                raise PlanningError(f"{type(self).__name__}: {name} is {getattr(self, name)}; it must be at least 1")

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block in this layer: keys and values."""
        return 2 * self.block_size * self.num_kv_heads * self.head_size * self.dtype_bytes

    @property
    def window(self) -> int | None:
        """Tokens that the layer sees, None for all."""
        return None

    def max_blocks(self, limits: PlanLimits) -> int:
        """The most blocks that one request of `max_model_len` tokens holds at once."""
        return ceil_div(limits.max_model_len, self.block_size)

    def with_block_size(self, block_size: int) -> KVCacheSpec:
        """The same layer with another block size."""
        return replace(self, block_size=block_size)


@dataclass(frozen=True)
class FullAttentionSpec(KVCacheSpec):
    """A layer that sees all tokens."""


@dataclass(frozen=True)
class MLAAttentionSpec(FullAttentionSpec):
    """Multi-head latent attention: one compressed vector per token serves as key and value."""

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block in this layer: no second copy for values."""
        return self.block_size * self.num_kv_heads * self.head_size * self.dtype_bytes


@dataclass(frozen=True)
class SlidingWindowSpec(KVCacheSpec):
    """A layer that sees the last `sliding_window` tokens only."""

    sliding_window: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sliding_window < 1:
            raise PlanningError(f"SlidingWindowSpec: sliding_window is {self.sliding_window}; it must be at least 1")

    @property
    def window(self) -> int:
        """Tokens that the layer sees."""
        return self.sliding_window

    def max_blocks(self, limits: PlanLimits) -> int:
        """A window and one step's tokens, and one block more because the window may start inside a block."""
        tokens = min(self.sliding_window - 1 + limits.max_num_batched_tokens, limits.max_model_len)
        return ceil_div(tokens, self.block_size) + 1
