"""The account of a plan: where the memory goes, as text for people and as numbers for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sim.core.kv_cache_spec import GIB


class GroupAccount(NamedTuple):
    """One group of layers: its kind, how many, tokens per block, and the window of sliding ones."""

    kind: str
    layers: int
    block_size: int
    window: int | None


@dataclass(frozen=True)
class Account:
    """A plan with what led to it; bytes are of one GPU, and None was not part of this plan.

    `block_size` is the scheduler's (hits are aligned to it); `size_tokens` and `max_concurrency`
    are what the engine logs at start.
    """

    num_blocks: int
    block_size: int
    size_tokens: int
    max_model_len: int
    max_concurrency: float
    model: str | None = None
    gpu: str | None = None
    tensor_parallel_size: int = 1
    gpu_bytes: int | None = None
    gpu_memory_utilization: float | None = None
    usable_bytes: int | None = None
    weights_bytes: int | None = None
    weights_dtype: str | None = None
    reserve_bytes: int | None = None
    reserve_estimated: bool | None = None
    kv_cache_bytes: tuple[int, ...] | None = None
    kv_cache_dtype: str | None = None
    page_size_bytes: int | None = None
    bytes_per_block: int | None = None
    groups: tuple[GroupAccount, ...] = ()
    override: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All figures under their names; groups as objects."""
        return asdict(self) | {"groups": [group._asdict() for group in self.groups]}

    def lines(self) -> list[str]:
        """The account as aligned lines."""
        rows: list[tuple[str, str]] = []
        if self.model is not None:
            shared = f", shared by {self.tensor_parallel_size} GPUs" if self.tensor_parallel_size > 1 else ""
            rows.append(("model", self.model + shared))
        if self.gpu is not None and self.gpu_bytes is not None:
            rows.append(("GPU", f"{self.gpu}, {_gib(self.gpu_bytes)}"))
        if self.usable_bytes is not None:
            rows.append(
                ("usable", f"{_gib(self.usable_bytes)} (gpu_memory_utilization {self.gpu_memory_utilization:g})")
            )
        if self.weights_bytes is not None:
            rows.append(("− weights", f"{_gib(self.weights_bytes)} ({self.weights_dtype})"))
        if self.reserve_bytes is not None:
            how = "estimated activations and overhead" if self.reserve_estimated else "as configured"
            rows.append(("− reserve", f"{_gib(self.reserve_bytes)} ({how})"))
        if self.kv_cache_bytes is not None:
            each = " / ".join(map(_gib, self.kv_cache_bytes))
            smallest = " (the smallest worker decides)" if len(self.kv_cache_bytes) > 1 else ""
            rows.append(("= KV cache", each + smallest))
        if self.page_size_bytes is not None and self.bytes_per_block is not None:
            layers = max(group.layers for group in self.groups)
            rows.append(
                (
                    "page",
                    f"{self.page_size_bytes:,} bytes × {layers} layers = {self.bytes_per_block:,} bytes a block"
                    f" (kv_cache_dtype {self.kv_cache_dtype})",
                )
            )
        for number, group in enumerate(self.groups):
            window = f", window {group.window}" if group.window is not None else ""
            rows.append(
                (f"group {number}", f"{group.layers} × {group.kind}, {group.block_size} tokens a block{window}")
            )
        how = " (num_gpu_blocks_override)" if self.override is not None else ""
        rows += [
            ("blocks", f"{self.num_blocks:,}{how}"),
            ("tokens", f"{self.size_tokens:,}"),
            ("concurrency", f"{self.max_concurrency:.2f} requests of max_model_len {self.max_model_len:,}"),
        ]
        return [f"{name:<12} {text}" for name, text in rows]


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
