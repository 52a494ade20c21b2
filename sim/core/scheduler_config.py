"""Settings of the scheduler, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.core.cache_groups import KVCacheGroup


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Everything that decides, checked elsewhere.  Lengths are tokens.

    `num_gpu_blocks` counts the null block.  `max_num_encoder_input_tokens` (the encoder compute budget
    of a step) and `encoder_cache_size` count embeddings; None = `max_num_batched_tokens`.
    """

    num_gpu_blocks: int
    groups: tuple[KVCacheGroup, ...]
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 131072
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    max_loras: int | None = None
    disable_chunked_mm_input: bool = False
    max_num_encoder_input_tokens: int | None = None
    encoder_cache_size: int | None = None
    retention_interval: int | None = 0
    async_scheduling: bool = False

    @property
    def encoder_compute_budget(self) -> int:
        """Embeddings that a step may compute."""
        budget = self.max_num_encoder_input_tokens
        return self.max_num_batched_tokens if budget is None else budget

    @property
    def encoder_capacity(self) -> int:
        """Embeddings that the encoder cache holds."""
        return self.max_num_batched_tokens if self.encoder_cache_size is None else self.encoder_cache_size

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free while something is running."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def max_admission_tokens(self) -> int:
        """Tokens that can be scheduled before a window frees anything: one batch, or two in flight."""
        return self.max_num_batched_tokens * (2 if self.async_scheduling else 1)
