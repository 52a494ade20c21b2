"""From bytes of GPU memory to a number of blocks and the groups of layers that share them.

The pool is one array of blocks.  Block i is a row of pages, one for each layer of the largest
group; each group uses the row's pages for its own layers.  So all groups draw block ids from the
same pool, and a row costs page size × layers of the largest group.  The rule is section 8 of the
reference's description; its recordings are replayed by `replay_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sim.core.kv_cache_spec import (
    GIB,
    KV_DTYPE_BYTES,
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    PlanLimits,
    PlanningError,
    SlidingWindowSpec,
    ceil_div,
)

# one kind of layers may fill up the other's groups if it has less than this many times its layers
_NEARLY_EQUAL = 1.5


class KVCacheGroupSpec(NamedTuple):
    """Layers that share one block table per request."""

    layer_names: tuple[str, ...]
    kv_cache_spec: KVCacheSpec


@dataclass(frozen=True)
class KVCacheConfig:
    """One worker's plan: how many blocks (the null block included), and the groups that use them."""

    num_blocks: int
    groups: tuple[KVCacheGroupSpec, ...]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one row of the pool."""
        return bytes_per_block(self.groups)

    @property
    def scheduler_block_size(self) -> int:
        """Tokens to which hits are aligned: least common multiple of the groups' block sizes."""
        return math.lcm(*(group.kv_cache_spec.block_size for group in self.groups))

    @property
    def hash_block_size(self) -> int:
        """Tokens per hash: greatest common divisor of the groups' block sizes."""
        return math.gcd(*(group.kv_cache_spec.block_size for group in self.groups))

    def max_concurrency(self, limits: PlanLimits) -> float:
        """How many requests of `max_model_len` tokens the blocks hold at once."""
        return self.num_blocks / blocks_per_request(self.groups, limits)

    def size_tokens(self, limits: PlanLimits) -> int:
        """Capacity in tokens, as the engine logs it: concurrency × `max_model_len`."""
        return int(self.max_concurrency(limits) * limits.max_model_len)


def bytes_per_block(groups: Sequence[KVCacheGroupSpec]) -> int:
    """Bytes of one row of the pool: page size × layers of the largest group."""
    return groups[0].kv_cache_spec.page_size_bytes * max(len(group.layer_names) for group in groups)


def blocks_per_request(groups: Sequence[KVCacheGroupSpec], limits: PlanLimits) -> int:
    """The most blocks that one request of `max_model_len` holds, over all groups."""
    return sum(group.kv_cache_spec.max_blocks(limits) for group in groups)


def is_kv_cache_type_uniform(kv_cache_spec: Mapping[str, KVCacheSpec]) -> bool:
    """Whether all layers are alike, so that one group holds them all."""
    return len(set(kv_cache_spec.values())) <= 1


def unify_hybrid_kv_cache_specs(kv_cache_spec: Mapping[str, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    """Plan sliding layers as full ones, for an engine whose hybrid manager is off.

    A model of sliding layers alone stays as it is: it needs no hybrid manager.  Raises
    `PlanningError` if the layers still differ.
    """
    if is_kv_cache_type_uniform(kv_cache_spec) or not any(
        isinstance(spec, FullAttentionSpec) for spec in kv_cache_spec.values()
    ):
        unified = dict(kv_cache_spec)
    else:
        unified = {
            name: FullAttentionSpec(spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype_bytes)
            if isinstance(spec, SlidingWindowSpec)
            else spec
            for name, spec in kv_cache_spec.items()
        }
    if not is_kv_cache_type_uniform(unified):
        kinds = sorted({_describe(spec) for spec in unified.values()})
        raise PlanningError(f"without the hybrid manager all layers must be alike, but there are {'; '.join(kinds)}")
    return unified


def unify_page_sizes(kv_cache_spec: Mapping[str, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    """Give layers with smaller pages larger blocks until all pages are as large as the largest.

    Raises `PlanningError` where the largest page is not a multiple of a smaller one.
    """
    first_layer: dict[KVCacheSpec, str] = {}
    for name, spec in kv_cache_spec.items():
        first_layer.setdefault(spec, name)
    largest = max(spec.page_size_bytes for spec in first_layer)
    unified: dict[KVCacheSpec, KVCacheSpec] = {}
    for spec, name in first_layer.items():
        factor, rest = divmod(largest, spec.page_size_bytes)
        if rest:
            raise PlanningError(
                f"{name}: a page of {spec.page_size_bytes} bytes ({_describe(spec)}) does not divide the largest"
                f" page of {largest} bytes, so the layers can't share one pool"
            )
        unified[spec] = spec if factor == 1 else spec.with_block_size(spec.block_size * factor)
    return {name: unified[spec] for name, spec in kv_cache_spec.items()}


def group_layers(kv_cache_spec: Mapping[str, KVCacheSpec]) -> list[list[str]]:
    """Deal the layers into groups of nearly equal size, each of one kind.

    The size of a group is the smallest kind's number of layers, unless the largest kind has less
    than 1.5 times as many: then the largest's.  A kind with more layers is dealt into
    ceil(count / size) groups, its i-th layer to group i mod groups, so that consecutive layers of
    a kind lie in different groups.  Kinds stand in the order of their first layer.
    """
    kinds: dict[KVCacheSpec, list[str]] = {}
    for name, spec in kv_cache_spec.items():
        kinds.setdefault(spec, []).append(name)
    counts = [len(names) for names in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * _NEARLY_EQUAL else min(counts)
    grouped = []
    for names in kinds.values():
        number = ceil_div(len(names), size)
        grouped += [names[first::number] for first in range(number)]
    return grouped


def create_kv_cache_group_specs(
    kv_cache_spec: Mapping[str, KVCacheSpec], grouped_layer_names: Sequence[Sequence[str]]
) -> tuple[KVCacheGroupSpec, ...]:
    """Groups from names.  Raises `PlanningError` for an empty group or one of unlike layers."""
    groups = []
    for names in grouped_layer_names:
        specs = {kv_cache_spec[name] for name in names}
        if len(specs) != 1:
            raise PlanningError(f"a group needs layers of exactly one kind, but {list(names)} has {len(specs)}")
        groups.append(KVCacheGroupSpec(tuple(names), specs.pop()))
    return tuple(groups)


def get_kv_cache_groups(kv_cache_spec: Mapping[str, KVCacheSpec], limits: PlanLimits) -> tuple[KVCacheGroupSpec, ...]:
    """The groups of a model's layers (name → spec, in layer order)."""
    if not kv_cache_spec:
        raise PlanningError("the model has no layer that keeps keys and values")
    if limits.disable_hybrid_kv_cache_manager:
        kv_cache_spec = unify_hybrid_kv_cache_specs(kv_cache_spec)
    if is_kv_cache_type_uniform(kv_cache_spec):
        return create_kv_cache_group_specs(kv_cache_spec, [list(kv_cache_spec)])
    kv_cache_spec = unify_page_sizes(kv_cache_spec)
    return create_kv_cache_group_specs(kv_cache_spec, group_layers(kv_cache_spec))


def check_enough_kv_cache_memory(groups: Sequence[KVCacheGroupSpec], limits: PlanLimits, available_bytes: int) -> None:
    """Refuse memory that can't hold one request of `max_model_len`.

    One row of the pool is the null block and counts as not available.  With
    `num_gpu_blocks_override` the memory is what that many blocks take.  Raises `PlanningError`
    with the needed and the available GiB and the longest `max_model_len` that would fit.
    """
    if available_bytes <= 0:
        raise PlanningError(
            f"no memory is left for the KV cache ({_gib(available_bytes)} GiB): one request of"
            f" {limits.max_model_len} tokens needs {_gib(_needed_bytes(groups, limits))} GiB;"
            " raise gpu_memory_utilization, or use more or larger GPUs"
        )
    row = bytes_per_block(groups)
    if limits.num_gpu_blocks_override is not None:
        available_bytes = limits.num_gpu_blocks_override * row
    usable = available_bytes - row
    needed = _needed_bytes(groups, limits)
    if needed <= usable:
        return
    longest = estimate_max_model_len(groups, limits, usable)
    advice = f" Based on the available memory, the estimated maximum model length is {longest}." if longest else ""
    raise PlanningError(
        f"To serve at least one request with the model's max seq len ({limits.max_model_len}),"
        f" ({_gib(needed)} GiB KV cache is needed, which is larger than the available KV cache memory"
        f" ({_gib(usable)} GiB).{advice}"
    )


def estimate_max_model_len(groups: Sequence[KVCacheGroupSpec], limits: PlanLimits, usable_bytes: int) -> int:
    """The longest `max_model_len`, up to the one asked for, of which one request fits; 0 if none does."""
    low, high = 0, limits.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if _needed_bytes(groups, limits._replace(max_model_len=middle)) <= usable_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def get_kv_cache_config(groups: Sequence[KVCacheGroupSpec], limits: PlanLimits, available_bytes: int) -> KVCacheConfig:
    """One worker's plan: as many rows as fit, or `num_gpu_blocks_override`."""
    num_blocks = max(available_bytes // bytes_per_block(groups), 0)
    if limits.num_gpu_blocks_override is not None:
        num_blocks = limits.num_gpu_blocks_override
    return KVCacheConfig(num_blocks, tuple(groups))


def unify_kv_cache_configs(configs: Sequence[KVCacheConfig]) -> list[KVCacheConfig]:
    """All workers use the smallest worker's number of blocks.

    Raises `PlanningError` if their groups disagree: number, kind or block size, since every worker
    follows the same block tables.  (Names of layers may differ: pipeline stages hold other layers.)
    """
    first = [group.kv_cache_spec for group in configs[0].groups]
    for worker, config in enumerate(configs):
        specs = [group.kv_cache_spec for group in config.groups]
        if specs != first:
            raise PlanningError(
                f"worker {worker} groups its layers as {', '.join(map(_describe, specs))},"
                f" but worker 0 as {', '.join(map(_describe, first))}: all must agree"
            )
    smallest = min(config.num_blocks for config in configs)
    return [KVCacheConfig(smallest, config.groups) for config in configs]


def plan_kv_cache(
    kv_cache_spec: Mapping[str, KVCacheSpec], limits: PlanLimits, available_bytes: Sequence[int]
) -> KVCacheConfig:
    """The plan that all workers of a model use; `available_bytes` has one entry per worker.

    Raises `PlanningError` where a worker's memory can't hold one request of `max_model_len`.
    """
    if not available_bytes:
        raise PlanningError("planning needs the memory of at least one worker")
    groups = get_kv_cache_groups(kv_cache_spec, limits)
    for available in available_bytes:
        check_enough_kv_cache_memory(groups, limits, available)
    return unify_kv_cache_configs([get_kv_cache_config(groups, limits, available) for available in available_bytes])[0]


def _needed_bytes(groups: Sequence[KVCacheGroupSpec], limits: PlanLimits) -> int:
    return blocks_per_request(groups, limits) * bytes_per_block(groups)


def _gib(size: int) -> float:
    return round(size / GIB, 2)


def _describe(spec: KVCacheSpec) -> str:
    window = f", window {spec.window}" if spec.window is not None else ""
    return (
        f"{type(spec).__name__}(block size {spec.block_size}, {spec.num_kv_heads} heads of {spec.head_size},"
        f" {spec.dtype_bytes} bytes{window})"
    )


class _Geometry(NamedTuple):
    """Layers, key/value heads per GPU and head size of a recorded model, and its windows."""

    layers: int
    heads: int
    head_size: int
    window: int | None = None
    full_every: int = 0  # every n-th layer is full; 0: none is, if there is a window
    mla: bool = False


# the models of the recordings (their README)
_RECORDED = {
    "llama-3.1-8b": _Geometry(32, 8, 128),
    "llama-3.1-70b-tp8": _Geometry(80, 1, 128),
    "qwen2.5-7b": _Geometry(28, 4, 128),
    "mistral-7b-v0.1-window-4096": _Geometry(32, 8, 128, window=4096),
    "gemma-3-27b": _Geometry(62, 16, 128, window=1024, full_every=6),
    "gpt-oss-20b": _Geometry(24, 8, 64, window=128, full_every=2),
    "deepseek-v3-mla": _Geometry(61, 1, 576, mla=True),
}


def replay_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Plan one recorded case again: the record's inputs, and `plan` or `refused` as computed here.

    Raises `PlanningError` for a model whose geometry the recordings' description doesn't give.
    """
    if plan["model"] not in _RECORDED:
        raise PlanningError(f"no geometry is known for the recorded model {plan['model']!r}")
    if plan["kv_cache_dtype"] not in KV_DTYPE_BYTES:
        raise PlanningError(f"kv_cache_dtype {plan['kv_cache_dtype']!r} is none of {', '.join(KV_DTYPE_BYTES)}")
    geometry = _RECORDED[plan["model"]]
    shape = (plan["block_size"], geometry.heads, geometry.head_size, KV_DTYPE_BYTES[plan["kv_cache_dtype"]])
    specs: dict[str, KVCacheSpec] = {}
    for layer in range(geometry.layers):
        full = geometry.window is None or (geometry.full_every > 0 and (layer + 1) % geometry.full_every == 0)
        if geometry.mla:
            specs[f"layer.{layer}"] = MLAAttentionSpec(*shape)
        elif full:
            specs[f"layer.{layer}"] = FullAttentionSpec(*shape)
        else:
            specs[f"layer.{layer}"] = SlidingWindowSpec(*shape, sliding_window=geometry.window or 0)
    limits = PlanLimits(
        plan["max_model_len"],
        plan["max_num_batched_tokens"],
        plan["num_gpu_blocks_override"],
        bool(plan.get("disable_hybrid_kv_cache_manager", False)),
    )
    inputs = {name: value for name, value in plan.items() if name not in ("plan", "refused")}
    inputs["page_size_bytes"] = specs["layer.0"].page_size_bytes
    try:
        config = plan_kv_cache(specs, limits, [int(gib * GIB) for gib in plan["available_memory_gib"]])
    except PlanningError as refusal:
        return inputs | {"refused": str(refusal)}
    return inputs | {
        "plan": {
            "num_blocks": config.num_blocks,
            "kv_cache_size_tokens": config.size_tokens(limits),
            "max_concurrency": round(config.max_concurrency(limits), 6),
            "scheduler_block_size": config.scheduler_block_size,
            "hash_block_size": config.hash_block_size,
            "groups": [
                {
                    "kind": type(group.kv_cache_spec).__name__,
                    "layers": len(group.layer_names),
                    "first_layers": list(group.layer_names[:3]),
                    "block_size": group.kv_cache_spec.block_size,
                    "page_size_bytes": group.kv_cache_spec.page_size_bytes,
                    "window": group.kv_cache_spec.window,
                }
                for group in config.groups
            ],
        }
    }
