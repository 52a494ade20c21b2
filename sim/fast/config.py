"""What the fast path needs to know of an engine, all numbers resolved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FastConfig:
    """An engine with one full-attention group; the fields are the engine keys of a config."""

    num_gpu_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 131072
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    max_loras: int | None = None
    disable_chunked_mm_input: bool = False
    max_num_encoder_input_tokens: int | None = None
    encoder_cache_size: int | None = None
    async_scheduling: bool = False

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admissions leave free."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def encoder_budget(self) -> int:
        """Embeddings that one step may compute."""
        budget = self.max_num_encoder_input_tokens
        return self.max_num_batched_tokens if budget is None else budget

    @property
    def encoder_space(self) -> int:
        """Embeddings that the encoder cache holds."""
        return self.max_num_batched_tokens if self.encoder_cache_size is None else self.encoder_cache_size
