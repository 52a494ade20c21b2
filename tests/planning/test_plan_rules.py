"""The rule of planning on tiny models: pages, groups, rows, refusals, several workers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.kv_cache_spec import (
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    PlanLimits,
    PlanningError,
    SlidingWindowSpec,
)
from sim.core.planning import (
    blocks_per_request,
    bytes_per_block,
    check_enough_kv_cache_memory,
    create_kv_cache_group_specs,
    estimate_max_model_len,
    get_kv_cache_config,
    get_kv_cache_groups,
    is_kv_cache_type_uniform,
    plan_kv_cache,
    replay_plan,
    unify_hybrid_kv_cache_specs,
    unify_kv_cache_configs,
)
from sim.timing.catalog import find_model

LIMITS = PlanLimits(max_model_len=8, max_num_batched_tokens=4)


def full(block_size: int = 2, heads: int = 1, size: int = 4) -> FullAttentionSpec:
    return FullAttentionSpec(block_size, heads, size, 2)


def sliding(window: int = 3, block_size: int = 2, heads: int = 1, size: int = 4) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size, heads, size, 2, sliding_window=window)


def layers(*specs: KVCacheSpec) -> dict[str, KVCacheSpec]:
    return {f"layer.{number}": spec for number, spec in enumerate(specs)}


def test_a_page_holds_keys_and_values_and_a_latent_vector_only_once() -> None:
    assert FullAttentionSpec(16, 8, 128, 2).page_size_bytes == 2 * 16 * 8 * 128 * 2
    assert MLAAttentionSpec(16, 1, 576, 2).page_size_bytes == 16 * 576 * 2
    assert FullAttentionSpec(16, 8, 128, 1).page_size_bytes == 2 * 16 * 8 * 128


def test_a_window_holds_its_tokens_a_step_and_one_block_more() -> None:
    assert sliding(window=3).max_blocks(LIMITS) == 3 + 1  # ceil((3 - 1 + 4) / 2) + 1
    assert sliding(window=100).max_blocks(LIMITS) == 4 + 1  # never more than the longest request
    assert full().max_blocks(LIMITS) == 4


def test_like_layers_are_one_group_and_the_null_row_is_not_available() -> None:
    specs = layers(full(), full(), full())
    row = 3 * full().page_size_bytes
    assert plan_kv_cache(specs, LIMITS, [5 * row]).num_blocks == 5
    with pytest.raises(PlanningError, match="needed"):
        plan_kv_cache(specs, LIMITS, [5 * row - 1])


@pytest.mark.parametrize(
    ("kinds", "sizes"),
    [
        ("sfsf", [2, 2]),
        ("sssssf" * 2, [2, 2, 2, 2, 2, 2]),
        ("sssff", [2, 2, 1]),  # 3 is not below 1.5 x 2 ...
        ("ssssssffff", [4, 3, 3]),
        ("sssssffff", [5, 4]),  # ... but 5 is below 1.5 x 4, so one group of five
    ],
)
def test_groups_are_dealt_by_the_smaller_kind(kinds: str, sizes: list[int]) -> None:
    specs = layers(*(full() if kind == "f" else sliding() for kind in kinds))
    groups = get_kv_cache_groups(specs, LIMITS)
    found = sorted((len(group.layer_names) for group in groups), reverse=True)
    assert found == sorted(sizes, reverse=True)
    assert sorted(name for group in groups for name in group.layer_names) == sorted(specs)
    assert bytes_per_block(groups) == full().page_size_bytes * max(found)


def test_layer_i_of_a_kind_goes_to_group_i_modulo_groups() -> None:
    groups = get_kv_cache_groups(layers(*[sliding()] * 5, full(), full()), LIMITS)
    assert groups[0].layer_names == ("layer.0", "layer.3")
    assert groups[2].layer_names == ("layer.2",)
    assert groups[3].layer_names == ("layer.5", "layer.6")


def test_without_the_hybrid_manager_sliding_layers_are_planned_as_full_ones() -> None:
    mixed = layers(sliding(), full(), sliding())
    assert is_kv_cache_type_uniform(unify_hybrid_kv_cache_specs(mixed))
    groups = get_kv_cache_groups(mixed, LIMITS._replace(disable_hybrid_kv_cache_manager=True))
    assert [len(group.layer_names) for group in groups] == [3]
    assert isinstance(groups[0].kv_cache_spec, FullAttentionSpec)
    only = layers(sliding(), sliding())
    assert unify_hybrid_kv_cache_specs(only) == only
    with pytest.raises(PlanningError, match="all layers must be alike"):
        unify_hybrid_kv_cache_specs(layers(full(), full(heads=2), sliding()))


def test_smaller_pages_get_larger_blocks_or_are_refused() -> None:
    groups = get_kv_cache_groups(layers(full(), sliding(heads=2)), LIMITS)
    assert [group.kv_cache_spec.block_size for group in groups] == [4, 2]
    config = get_kv_cache_config(groups, LIMITS, 10**6)
    assert (config.scheduler_block_size, config.hash_block_size) == (4, 2)
    with pytest.raises(PlanningError, match="does not divide the largest page"):
        get_kv_cache_groups(layers(full(heads=2), sliding(heads=3)), LIMITS)


def test_a_group_is_of_one_kind() -> None:
    with pytest.raises(PlanningError, match="exactly one kind"):
        create_kv_cache_group_specs(layers(full(), sliding()), [["layer.0", "layer.1"]])
    with pytest.raises(PlanningError, match="exactly one kind"):
        create_kv_cache_group_specs({}, [[]])


def test_the_smallest_worker_decides_and_groups_must_agree() -> None:
    specs = layers(full(), full())
    row = 2 * full().page_size_bytes
    assert plan_kv_cache(specs, LIMITS, [9 * row, 7 * row, 8 * row]).num_blocks == 7
    other = get_kv_cache_config(get_kv_cache_groups(layers(full(block_size=4)), LIMITS), LIMITS, 10**6)
    mine = get_kv_cache_config(get_kv_cache_groups(specs, LIMITS), LIMITS, 10**6)
    with pytest.raises(PlanningError, match="worker 1 groups its layers"):
        unify_kv_cache_configs([mine, other])
    with pytest.raises(PlanningError, match="at least one worker"):
        plan_kv_cache(specs, LIMITS, [])


def test_an_override_replaces_the_number_even_above_what_fits() -> None:
    specs = layers(full())
    page = full().page_size_bytes
    assert plan_kv_cache(specs, LIMITS._replace(num_gpu_blocks_override=77), [5 * page]).num_blocks == 77
    with pytest.raises(PlanningError, match="estimated maximum model length is 6"):
        plan_kv_cache(specs, LIMITS._replace(num_gpu_blocks_override=4), [99 * page])


@pytest.mark.parametrize("available", [0, -(1 << 30)])
def test_no_memory_is_refused_with_the_numbers(available: int) -> None:
    with pytest.raises(PlanningError, match=r"no memory is left .* one request of 8 tokens needs"):
        plan_kv_cache(layers(full()), LIMITS, [available])


@pytest.mark.parametrize("field", ["block_size", "num_kv_heads", "head_size", "dtype_bytes"])
def test_sizes_below_one_are_refused(field: str) -> None:
    shape = {"block_size": 2, "num_kv_heads": 1, "head_size": 4, "dtype_bytes": 2} | {field: 0}
    with pytest.raises(PlanningError, match=f"{field} is 0"):
        FullAttentionSpec(**shape)
    with pytest.raises(PlanningError, match="no layer"):
        plan_kv_cache({}, LIMITS, [1000])
    with pytest.raises(PlanningError, match="sliding_window is 0"):
        sliding(window=0)


@given(
    kinds=st.text("fs", min_size=1, max_size=9),
    window=st.integers(1, 20),
    block_size=st.sampled_from([1, 2, 3, 8]),
    max_len=st.integers(1, 40),
    batched=st.integers(1, 16),
    rows=st.integers(1, 60),
)
def test_the_estimated_length_is_the_longest_that_fits(
    kinds: str, window: int, block_size: int, max_len: int, batched: int, rows: int
) -> None:
    specs = layers(*(full(block_size) if k == "f" else sliding(window, block_size) for k in kinds))
    limits = PlanLimits(max_len, batched)
    groups = get_kv_cache_groups(specs, limits)
    row = bytes_per_block(groups)
    fitting = [n for n in range(1, max_len + 1) if blocks_per_request(groups, PlanLimits(n, batched)) <= rows - 1]
    assert estimate_max_model_len(groups, limits, (rows - 1) * row) == max(fitting, default=0)
    if max_len in fitting:
        check_enough_kv_cache_memory(groups, limits, rows * row)
    else:
        with pytest.raises(PlanningError):
            check_enough_kv_cache_memory(groups, limits, rows * row)


@given(available=st.integers(1, 10**7), more=st.integers(0, 10**7))
def test_more_memory_never_plans_fewer_blocks(available: int, more: int) -> None:
    groups = get_kv_cache_groups(layers(sliding(), full(), sliding()), LIMITS)
    fewer = get_kv_cache_config(groups, LIMITS, available)
    assert get_kv_cache_config(groups, LIMITS, available + more).num_blocks >= fewer.num_blocks
    assert fewer.num_blocks * fewer.bytes_per_block <= available


def test_a_recording_of_an_unknown_model_or_dtype_is_named() -> None:
    plan = {"model": "gpt-oss-20b", "kv_cache_dtype": "int3", "block_size": 16}
    with pytest.raises(PlanningError, match="int3"):
        replay_plan(plan)
    with pytest.raises(PlanningError, match="no geometry"):
        replay_plan(plan | {"model": "gpt-9"})


def test_planning_takes_less_than_a_millisecond() -> None:
    specs = find_model("gemma-3-27b").kv_cache_spec(16)
    limits = PlanLimits(131072, 8192)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        plan_kv_cache(specs, limits, [64 << 30])
        times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 1e-3
