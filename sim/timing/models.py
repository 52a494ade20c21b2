"""What is known of a model: layers by kind, sizes, parameters, and what they weigh.

All figures are of the whole model; `kv_cache_spec` is of one GPU.  Parameters are counted from the
geometry (norms and biases, well under one percent, are left out).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from sim.core.kv_cache_spec import (
    KV_DTYPE_BYTES,
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    PlanningError,
    SlidingWindowSpec,
)

LayerKind = Literal["full", "sliding"]


class WeightFormat(NamedTuple):
    """Bytes per parameter of linear layers and of experts, and the arithmetic that multiplies them."""

    linear_bytes: float
    expert_bytes: float
    arithmetic: Literal["bf16", "fp8", "fp4"]


# Embedding, LM head and routers keep two bytes in every format but fp32.  Four-bit formats count
# their scales: one fp16 scale and zero per 128 (int4), one fp8 scale per 16 (fp4), one per 32 (mxfp4).
WEIGHT_FORMATS = {
    "fp32": WeightFormat(4.0, 4.0, "bf16"),
    "bf16": WeightFormat(2.0, 2.0, "bf16"),
    "fp8": WeightFormat(1.0, 1.0, "fp8"),
    "int8": WeightFormat(1.0, 1.0, "bf16"),
    "int4": WeightFormat(0.53125, 0.53125, "bf16"),
    "fp4": WeightFormat(0.5625, 0.5625, "fp4"),
    "mxfp4": WeightFormat(2.0, 0.53125, "bf16"),
}
_FORMAT_NAMES = {
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "float": "fp32",
    "float32": "fp32",
    "w8a8": "int8",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "w4a16": "int4",
    "nvfp4": "fp4",
    "modelopt_fp4": "fp4",
    "modelopt": "fp8",
    "fbgemm_fp8": "fp8",
}


def weight_format(name: str) -> str:
    """The key of `WEIGHT_FORMATS` for a dtype or quantization by any of its names."""
    key = _FORMAT_NAMES.get(name.lower(), name.lower())
    if key not in WEIGHT_FORMATS:
        raise PlanningError(f"unknown weight format {name!r}: known are {', '.join([*WEIGHT_FORMATS, *_FORMAT_NAMES])}")
    return key


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


class MoE(_Entry):
    """Experts of a layer; `intermediate_size` is one expert's."""

    num_experts: PositiveInt
    experts_per_token: PositiveInt
    intermediate_size: PositiveInt
    shared_experts: int = Field(default=0, ge=0)
    dense_layers_first: int = Field(default=0, ge=0)


class MLA(_Entry):
    """Ranks and head sizes of multi-head latent attention; no `q_lora_rank`: queries are not compressed."""

    kv_lora_rank: PositiveInt
    q_lora_rank: PositiveInt | None = None
    qk_rope_head_dim: PositiveInt
    qk_nope_head_dim: PositiveInt
    v_head_dim: PositiveInt


class Vision(_Entry):
    """An image encoder: a transformer over patches, `patches_per_token` of which make one embedding.

    A fixed size gives `tokens_per_image`; a native-resolution encoder makes one token per
    `pixels_per_token` pixels, at most `max_tokens_per_image`.
    """

    layers: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    patches_per_token: PositiveInt
    tokens_per_image: PositiveInt | None = None
    pixels_per_token: PositiveInt | None = None
    max_tokens_per_image: PositiveInt | None = None
    source: str | None = None

    def image_tokens(self, width: int, height: int) -> int:
        """Embeddings that an image of this many pixels becomes."""
        if self.tokens_per_image is not None:
            return self.tokens_per_image
        side = math.isqrt(self.pixels_per_token or 784)
        tokens = max(round(width / side), 1) * max(round(height / side), 1)
        return min(tokens, self.max_tokens_per_image or tokens)

    @property
    def params(self) -> int:
        """Parameters of the encoder's layers (attention and a feed-forward of two matrices)."""
        return self.layers * (4 * self.hidden_size**2 + 2 * self.hidden_size * self.intermediate_size)


class ModelSpec(_Entry):
    """One model, as an entry of the catalog or read from a Hugging Face `config.json`."""

    name: str
    source: str
    aliases: tuple[str, ...] = ()
    confidence: str = "high"
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt | None = None
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    tie_word_embeddings: bool
    attention_pattern: tuple[LayerKind, ...] = Field(
        default=("full",), min_length=1, description="kinds of layers, repeated over all of them"
    )
    sliding_window: PositiveInt | None = None
    moe: MoE | None = None
    mla: MLA | None = None
    vision: Vision | None = None
    weights: str = Field(default="bf16", description="how the published weights are stored")
    max_model_len: PositiveInt | None = None
    total_params_b: float | None = Field(default=None, gt=0, description="billions, as the source counts them")
    active_params_b: float | None = Field(default=None, gt=0)
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if "sliding" in self.attention_pattern and self.sliding_window is None:
            raise ValueError("layers with a sliding window need sliding_window")
        if self.head_dim is None and self.mla is None and self.hidden_size % self.num_attention_heads:
            raise ValueError("head_dim is missing and hidden_size is not a multiple of num_attention_heads")
        return self

    @property
    def head_size(self) -> int:
        """Elements of one head's key (without MLA)."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def layer_kinds(self) -> list[LayerKind]:
        """The kind of each layer."""
        pattern = self.attention_pattern
        return [pattern[layer % len(pattern)] for layer in range(self.num_hidden_layers)]

    @property
    def sliding_layers(self) -> int:
        """Layers with a window."""
        return self.layer_kinds().count("sliding")

    @property
    def attention_params(self) -> int:
        """Parameters of one layer's attention."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        if self.mla is None:
            return 2 * hidden * (heads + self.num_key_value_heads) * self.head_size
        mla = self.mla
        query = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        rank = mla.q_lora_rank
        queries = hidden * heads * query if rank is None else rank * (hidden + heads * query)
        compress = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        expand = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        return queries + compress + expand + heads * mla.v_head_dim * hidden

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.num_hidden_layers - self.moe.dense_layers_first if self.moe else 0

    @property
    def expert_params(self) -> int:
        """Parameters of one expert in one layer (gate, up and down)."""
        return 3 * self.hidden_size * self.moe.intermediate_size if self.moe else 0

    @property
    def linear_params(self) -> int:
        """Parameters outside embedding, LM head and routed experts: every token meets all of them."""
        dense = (self.num_hidden_layers - self.moe_layers) * 3 * self.hidden_size * self.intermediate_size
        shared = self.moe_layers * self.moe.shared_experts * self.expert_params if self.moe else 0
        return self.num_hidden_layers * self.attention_params + dense + shared

    @property
    def router_params(self) -> int:
        """Parameters that choose experts."""
        return self.moe_layers * self.hidden_size * self.moe.num_experts if self.moe else 0

    @property
    def head_params(self) -> int:
        """Parameters of the LM head (or of the embedding; tied, they are one)."""
        return self.vocab_size * self.hidden_size

    @property
    def total_params(self) -> int:
        """All parameters, the image encoder's included."""
        experts = self.moe_layers * self.moe.num_experts * self.expert_params if self.moe else 0
        heads = self.head_params * (1 if self.tie_word_embeddings else 2)
        return self.linear_params + self.router_params + experts + heads + (self.vision.params if self.vision else 0)

    @property
    def active_params(self) -> int:
        """Parameters that one token of text meets, embedding included."""
        idle = self.moe.num_experts - self.moe.experts_per_token if self.moe else 0
        vision = self.vision.params if self.vision else 0
        return self.total_params - vision - self.moe_layers * idle * self.expert_params

    def weight_bytes(self, dtype: str | None = None, tensor_parallel_size: int = 1) -> int:
        """Bytes of the weights on one GPU; `dtype` is a key of `WEIGHT_FORMATS`, default the published one."""
        form = WEIGHT_FORMATS[weight_format(dtype or self.weights)]
        wide = 4.0 if form.linear_bytes == 4.0 else 2.0
        experts = self.moe_layers * self.moe.num_experts * self.expert_params if self.moe else 0
        heads = self.head_params * (1 if self.tie_word_embeddings else 2)
        encoder = self.vision.params if self.vision else 0
        total = (
            self.linear_params * form.linear_bytes
            + experts * form.expert_bytes
            + (heads + self.router_params + encoder) * wide
        )
        return int(total / tensor_parallel_size)

    def check_tensor_parallel(self, size: int) -> None:
        """Raise `PlanningError` unless this many GPUs divide the heads as the engine needs it."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        if size < 1:
            raise PlanningError(f"tensor_parallel_size is {size}; it must be at least 1")
        if heads % size:
            fits = [n for n in range(1, heads + 1) if heads % n == 0 and n <= 64]
            raise PlanningError(
                f"tensor_parallel_size {size} does not divide the {heads} attention heads of {self.name};"
                f" possible are {', '.join(map(str, fits))}"
            )
        if self.mla is None and kv_heads % size and size % kv_heads:
            raise PlanningError(
                f"tensor_parallel_size {size} neither divides nor is a multiple of the {kv_heads} key/value heads"
                f" of {self.name}"
            )

    def kv_heads_per_gpu(self, tensor_parallel_size: int) -> int:
        """Key/value heads that one GPU keeps: at least one, and one latent vector with MLA."""
        return 1 if self.mla is not None else max(self.num_key_value_heads // tensor_parallel_size, 1)

    def kv_cache_spec(
        self, block_size: int, kv_cache_dtype: str = "auto", tensor_parallel_size: int = 1
    ) -> dict[str, KVCacheSpec]:
        """Name → spec of every layer, in order, as planning takes it."""
        self.check_tensor_parallel(tensor_parallel_size)
        size = kv_dtype_bytes(kv_cache_dtype)
        heads = self.kv_heads_per_gpu(tensor_parallel_size)
        full: FullAttentionSpec
        if self.mla is not None:
            full = MLAAttentionSpec(block_size, 1, self.mla.kv_lora_rank + self.mla.qk_rope_head_dim, size)
        else:
            full = FullAttentionSpec(block_size, heads, self.head_size, size)
        by_kind: dict[LayerKind, KVCacheSpec] = {"full": full}
        if self.sliding_window is not None:
            by_kind["sliding"] = SlidingWindowSpec(
                block_size, heads, self.head_size, size, sliding_window=self.sliding_window
            )
        return {f"layer.{layer}": by_kind[kind] for layer, kind in enumerate(self.layer_kinds())}

    def kv_bytes_per_token_and_layer(self, kv_cache_dtype: str = "auto", tensor_parallel_size: int = 1) -> int:
        """Bytes that one token keeps in one layer on one GPU."""
        size = kv_dtype_bytes(kv_cache_dtype)
        if self.mla is not None:
            return (self.mla.kv_lora_rank + self.mla.qk_rope_head_dim) * size
        return 2 * self.kv_heads_per_gpu(tensor_parallel_size) * self.head_size * size


def kv_dtype_bytes(name: str) -> int:
    """Bytes of one cached element; `auto` is two, as all models of the catalog compute in bf16 or fp16."""
    if name == "auto":
        return 2
    if name not in KV_DTYPE_BYTES:
        raise PlanningError(f"unknown kv_cache_dtype {name!r}: known are auto, {', '.join(KV_DTYPE_BYTES)}")
    return KV_DTYPE_BYTES[name]
