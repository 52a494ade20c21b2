"""The `memory:` block: GPU memory, or a number of blocks, turned into the plan that the engine uses.

Three ways to say it: `num_gpu_blocks`; `kv_cache_memory` with a model or a geometry; or a model
and a GPU, where what the weights and a reserve leave of
``gpu memory × gpu_memory_utilization`` holds the KV cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

from sim.core.kv_cache_spec import (
    GIB,
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    PlanLimits,
    PlanningError,
    SlidingWindowSpec,
)
from sim.core.planning import KVCacheConfig, bytes_per_block, get_kv_cache_groups, plan_kv_cache
from sim.timing.account import Account, GroupAccount
from sim.timing.models import LayerKind, ModelSpec, kv_dtype_bytes, weight_format

_UNITS = {"B": 1} | {
    prefix + unit: factor**power
    for unit, factor in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k", "M", "G", "T"), start=1)
}
_UNITS |= {"KB": 1000, "KiB": 1024}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([A-Za-z]*)\s*")

# memory that no tensor shows: CUDA context, communication buffers, captured graphs
_FIXED_RESERVE_BYTES = GIB


def parse_size(value: object) -> int:
    """Bytes from a number of bytes or a text such as ``10.5GiB`` or ``40GB``; `ValueError` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        unit = (match[2] or "B") if match else ""
        if match is None or unit not in _UNITS:
            raise ValueError(f"{value!r} is not a size; write bytes, or a number with one of {', '.join(_UNITS)}")
        size = int(float(match[1]) * _UNITS[unit])
    if size <= 0:
        raise ValueError(f"a size must be above 0, not {value!r}")
    return size


def _sizes(value: object) -> object:
    return tuple(parse_size(item) for item in value) if isinstance(value, list | tuple) else (parse_size(value),)


Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
Sizes = Annotated[tuple[int, ...], BeforeValidator(_sizes, json_schema_input_type=int | str | list[int | str])]


class Geometry(BaseModel):
    """Layers of a model that is in no catalog."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    num_layers: PositiveInt = Field(description="layers that keep keys and values")
    num_kv_heads: PositiveInt = Field(default=1, description="key/value heads of the whole model (1 with mla)")
    head_size: PositiveInt = Field(description="elements of one head (with mla: of the latent vector)")
    mla: bool = Field(default=False, description="one latent vector per token instead of keys and values")
    attention_pattern: Annotated[
        tuple[LayerKind, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v), Field(min_length=1)
    ] = Field(default=("full",), description="kinds of layers (full, sliding), repeated over all layers")
    sliding_window: PositiveInt | None = Field(default=None, description="tokens that sliding layers see")

    @model_validator(mode="after")
    def _window(self) -> Geometry:
        if ("sliding" in self.attention_pattern) != (self.sliding_window is not None):
            raise ValueError("sliding layers in attention_pattern and sliding_window belong together")
        return self

    def kv_cache_spec(self, block_size: int, kv_cache_dtype: str, tensor_parallel_size: int) -> dict[str, KVCacheSpec]:
        """Name → spec of every layer, in order."""
        if self.num_kv_heads % tensor_parallel_size and tensor_parallel_size % self.num_kv_heads:
            raise PlanningError(
                f"tensor_parallel_size {tensor_parallel_size} neither divides nor is a multiple of"
                f" the {self.num_kv_heads} key/value heads"
            )
        heads = max(self.num_kv_heads // tensor_parallel_size, 1)
        shape = (block_size, 1 if self.mla else heads, self.head_size, kv_dtype_bytes(kv_cache_dtype))
        full = MLAAttentionSpec(*shape) if self.mla else FullAttentionSpec(*shape)
        by_kind: dict[LayerKind, KVCacheSpec] = {"full": full}
        if self.sliding_window is not None:
            by_kind["sliding"] = SlidingWindowSpec(*shape, sliding_window=self.sliding_window)
        pattern = self.attention_pattern
        return {f"layer.{layer}": by_kind[pattern[layer % len(pattern)]] for layer in range(self.num_layers)}


class MemoryConfig(BaseModel):
    """How much KV cache there is; give `num_gpu_blocks`, or `kv_cache_memory`, or `model` and `gpu`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)

    num_gpu_blocks: int | None = Field(
        default=None, ge=2, le=1 << 31, description="blocks, the null block included; nothing is planned"
    )
    kv_cache_memory: Sizes | None = Field(
        default=None, description="bytes per GPU for the KV cache, such as 10.5GiB or 40GB; a list: one per worker"
    )
    model: str | None = Field(default=None, description="catalog name (kvsim models) or path of a config.json")
    geometry: Geometry | None = Field(default=None, description="layers of a model that is in no catalog")
    gpu: str | None = Field(default=None, description="catalog name of the GPU (kvsim gpus)")
    tensor_parallel_size: int = Field(default=1, ge=1, le=1024, description="GPUs that share every layer")
    dtype: str | None = Field(
        default=None, description="weights as bf16, fp8, int8, int4, fp4, mxfp4 (default: as the model is published)"
    )
    kv_cache_dtype: str = Field(default="auto", description="auto (two bytes), bfloat16, fp8, …")
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0.0, le=1.0, description="share of the GPU's memory that the engine may use"
    )
    weights_memory: Size | None = Field(
        default=None, description="bytes of weights per GPU, where they are known better than by the catalog"
    )
    reserve: Size | None = Field(
        default=None, description="bytes per GPU for activations and overhead (default: estimated, and printed)"
    )

    @model_validator(mode="after")
    def _one_way(self) -> MemoryConfig:
        given = self.model_fields_set - {n for n in self.model_fields_set if getattr(self, n) is None}
        if self.num_gpu_blocks is not None and self.kv_cache_memory is not None:
            sizes = ", ".join(f"{size / GIB:.2f} GiB" for size in self.kv_cache_memory)
            raise ValueError(
                f"num_gpu_blocks ({self.num_gpu_blocks}) and kv_cache_memory ({sizes}) contradict each other: give one"
            )
        fixed = "num_gpu_blocks" if self.num_gpu_blocks is not None else "kv_cache_memory"
        if getattr(self, fixed) is not None:
            extra = sorted(given & {"gpu_memory_utilization", "weights_memory", "reserve"})
            if extra:
                raise ValueError(f"{fixed} leaves nothing to plan, so {', '.join(extra)} would do nothing: drop one")
        if self.model is not None and self.geometry is not None:
            raise ValueError("model and geometry contradict each other: give one")
        if self.num_gpu_blocks is None:
            if self.kv_cache_memory is not None and self.model is None and self.geometry is None:
                raise ValueError("kv_cache_memory needs a model or a geometry: how large is a block?")
            if self.kv_cache_memory is None and (self.model is None or self.gpu is None):
                raise ValueError("give num_gpu_blocks, or kv_cache_memory with a model, or a model and a gpu")
        if self.kv_cache_memory is not None and len(self.kv_cache_memory) == 0:
            raise ValueError("kv_cache_memory is an empty list")
        try:
            kv_dtype_bytes(self.kv_cache_dtype)
            if self.dtype is not None:
                weight_format(self.dtype)
        except PlanningError as error:
            raise ValueError(str(error)) from None
        return self


class MemoryPlan(NamedTuple):
    """What the engine gets: blocks (the null block included), and groups as `engine.kv_cache_groups` holds them.

    `groups` is None where only a number of blocks was given: the engine's own stand.
    """

    num_gpu_blocks: int
    groups: tuple[dict[str, Any], ...] | None
    max_model_len: int
    account: Account


def plan_memory(
    memory: MemoryConfig,
    *,
    block_size: int = 16,
    max_model_len: int | None = None,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    num_gpu_blocks_override: int | None = None,
    disable_hybrid_kv_cache_manager: bool = False,
    base: Path | None = None,
) -> MemoryPlan:
    """The plan for this memory and these engine settings; a relative `config.json` is looked for under `base`.

    `max_model_len` None takes the model's own.  Raises `PlanningError`, one line with the numbers,
    for a model that doesn't fit, heads that can't be divided, unknown names and absurd figures.
    """
    from sim.timing.catalog import find_gpu, find_model

    model = find_model(memory.model, base) if memory.model is not None else None
    gpu = find_gpu(memory.gpu) if memory.gpu is not None else None
    if max_model_len is None:
        max_model_len = model.max_model_len if model else None
        if max_model_len is None:
            raise PlanningError("max_model_len is not known for this model: give it")
    workers: tuple[int, ...]
    parts: dict[str, Any] = {"gpu": gpu.name if gpu else None, "gpu_bytes": gpu.memory_bytes if gpu else None}
    if model is not None:
        model.check_tensor_parallel(memory.tensor_parallel_size)
        parts["model"] = model.name
    if memory.num_gpu_blocks is not None:
        if model is None and memory.geometry is None:
            return _only_blocks(memory.num_gpu_blocks, block_size, max_model_len, parts)
        if num_gpu_blocks_override is not None and num_gpu_blocks_override != memory.num_gpu_blocks:
            raise PlanningError(
                f"num_gpu_blocks ({memory.num_gpu_blocks}) and num_gpu_blocks_override ({num_gpu_blocks_override})"
                " contradict each other: give one"
            )
        num_gpu_blocks_override = memory.num_gpu_blocks
    limits = PlanLimits(max_model_len, max_num_batched_tokens, num_gpu_blocks_override, disable_hybrid_kv_cache_manager)
    layout = (block_size, memory.kv_cache_dtype, memory.tensor_parallel_size)
    if memory.geometry is not None:
        specs = memory.geometry.kv_cache_spec(*layout)
    elif model is not None:
        specs = model.kv_cache_spec(*layout)
    else:
        raise PlanningError("kv_cache_memory needs a model or a geometry: how large is a block?")
    if memory.kv_cache_memory is not None:
        workers = memory.kv_cache_memory
        if gpu is not None and max(workers) > gpu.memory_bytes:
            raise PlanningError(
                f"kv_cache_memory {max(workers) / GIB:.2f} GiB is more than one {gpu.name} has: {gpu.memory_gib:g} GiB"
            )
    elif memory.num_gpu_blocks is not None:
        row = _row_bytes(specs, limits)
        workers = (memory.num_gpu_blocks * row,)
    elif model is None or gpu is None:
        raise PlanningError("planning from a GPU needs a model and a gpu")
    else:
        workers = (_left_for_cache(memory, model, gpu.name, gpu.memory_bytes, limits, max_num_seqs, parts),)
    config = plan_kv_cache(specs, limits, workers)
    return _finish(config, limits, workers, memory, parts)


def activation_bytes(
    model: ModelSpec, max_num_batched_tokens: int, max_num_seqs: int, tensor_parallel_size: int = 1
) -> int:
    """Estimated peak of one step's activations on one GPU.

    Per token four vectors of the hidden size (residual, its norm, attention in and out) and the
    feed-forward's gate, up and product, two bytes each; per request one row of logits in fp32 and
    its copy for sampling.  An estimate: the engine itself measures it.
    """
    wide = max(
        model.intermediate_size,
        (model.moe.experts_per_token * model.moe.intermediate_size) if model.moe else 0,
    )
    per_token = 2 * (4 * model.hidden_size + 3 * wide // tensor_parallel_size)
    return max_num_batched_tokens * per_token + max_num_seqs * 8 * model.vocab_size // tensor_parallel_size


def _left_for_cache(
    memory: MemoryConfig,
    model: ModelSpec,
    gpu_name: str,
    gpu_bytes: int,
    limits: PlanLimits,
    max_num_seqs: int,
    parts: dict[str, Any],
) -> int:
    size = memory.tensor_parallel_size
    usable = int(gpu_bytes * memory.gpu_memory_utilization)
    form = weight_format(memory.dtype or model.weights)

    def need(gpus: int) -> tuple[int, int]:
        weights = memory.weights_memory or model.weight_bytes(form, gpus)
        estimate = _FIXED_RESERVE_BYTES + activation_bytes(model, limits.max_num_batched_tokens, max_num_seqs, gpus)
        return weights, memory.reserve or estimate

    weights, reserve = need(size)
    parts |= {
        "gpu_memory_utilization": memory.gpu_memory_utilization,
        "usable_bytes": usable,
        "weights_bytes": weights,
        "weights_dtype": form,
        "reserve_bytes": reserve,
        "reserve_estimated": memory.reserve is None,
    }
    left = usable - weights - reserve
    if left <= 0:
        enough = [
            n
            for n in range(size + 1, 65)
            if model.num_attention_heads % n == 0 and n & (n - 1) == 0 and sum(need(n)) < usable
        ]
        advice = f"; tensor_parallel_size {enough[0]} would leave room" if enough and not memory.weights_memory else ""
        raise PlanningError(
            f"{model.name} does not fit: {weights / GIB:.2f} GiB of {form} weights"
            f" and {reserve / GIB:.2f} GiB reserve per GPU, but {gpu_name} × {memory.gpu_memory_utilization:g}"
            f" gives {usable / GIB:.2f} GiB at tensor_parallel_size {size}{advice}"
        )
    return left


def _row_bytes(specs: Mapping[str, KVCacheSpec], limits: PlanLimits) -> int:
    return bytes_per_block(get_kv_cache_groups(specs, limits))


def _only_blocks(blocks: int, block_size: int, max_model_len: int, parts: dict[str, Any]) -> MemoryPlan:
    account = Account(
        num_blocks=blocks,
        block_size=block_size,
        size_tokens=blocks * block_size,
        max_model_len=max_model_len,
        max_concurrency=blocks / -(-max_model_len // block_size),
        **{name: value for name, value in parts.items() if value is not None},
    )
    return MemoryPlan(blocks, None, max_model_len, account)


def _finish(
    config: KVCacheConfig, limits: PlanLimits, workers: tuple[int, ...], memory: MemoryConfig, parts: dict[str, Any]
) -> MemoryPlan:
    groups: list[dict[str, Any]] = []
    rows: list[GroupAccount] = []
    for group in config.groups:
        spec = group.kv_cache_spec
        kind: Literal["full", "sliding_window"] = "full" if spec.window is None else "sliding_window"
        entry: dict[str, Any] = {"kind": kind, "block_size": spec.block_size}
        groups.append(entry if spec.window is None else entry | {"window": spec.window})
        rows.append(GroupAccount(type(spec).__name__, len(group.layer_names), spec.block_size, spec.window))
    account = Account(
        num_blocks=config.num_blocks,
        block_size=config.scheduler_block_size,
        size_tokens=config.size_tokens(limits),
        max_model_len=limits.max_model_len,
        max_concurrency=config.max_concurrency(limits),
        kv_cache_bytes=None if memory.num_gpu_blocks is not None else workers,
        kv_cache_dtype=memory.kv_cache_dtype,
        tensor_parallel_size=memory.tensor_parallel_size,
        page_size_bytes=config.groups[0].kv_cache_spec.page_size_bytes,
        bytes_per_block=config.bytes_per_block,
        groups=tuple(rows),
        override=limits.num_gpu_blocks_override if memory.num_gpu_blocks is None else None,
        **{name: value for name, value in parts.items() if value is not None},
    )
    return MemoryPlan(config.num_blocks, tuple(groups), limits.max_model_len, account)
