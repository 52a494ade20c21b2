"""Laws of all models of step time, and those of the roofline: equal in columns, monotone, a sum of parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.core.kv_cache_spec import PlanningError
from sim.timing.base import Batch, StepTime
from sim.timing.build import build_step_time
from sim.timing.catalog import find_gpu, find_model
from sim.timing.config import Efficiencies, FixedTiming, LinearTiming, RooflineTiming, TableTiming, TimingConfig
from sim.timing.fixed import FixedStepTime
from sim.timing.linear import LinearStepTime
from sim.timing.memory import MemoryConfig
from sim.timing.roofline import RooflineStepTime


def roofline(model: str = "llama-3.1-8b", gpu: str = "h100", **settings: Any) -> RooflineStepTime:
    return RooflineStepTime(find_model(model), find_gpu(gpu), **settings)


STEP_TIMES: dict[str, StepTime] = {
    "fixed": FixedStepTime(0.04),
    "linear": LinearStepTime(0.005, 5e-5, 2e-5, 1e-4, 1e-5),
    "dense": roofline(),
    "sliding": roofline("gemma-3-27b", tensor_parallel_size=2),
    "experts": roofline("gpt-oss-120b", "b200", tensor_parallel_size=4),
    "shared experts": roofline("qwen3-30b-a3b", "rtx pro 6000", data_parallel_size=2),
    "latent": roofline("deepseek-v3", "h200", tensor_parallel_size=8),
    "images": roofline("qwen2.5-vl-7b", "l40s", dtype="int4", kv_cache_dtype="fp8"),
}


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    chunks = draw(st.lists(st.tuples(st.integers(1, 8192), st.integers(0, 200_000)), max_size=4))
    decodes = draw(st.lists(st.integers(1, 200_000), max_size=6)) * draw(st.integers(1, 40))
    return Batch.of(chunks, decodes, draw(st.sampled_from([0, 0, 1, 576, 20_000])))


@pytest.mark.parametrize("name", STEP_TIMES)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(batches(), min_size=1, max_size=6))
def test_columns_give_the_same_seconds_to_the_last_bit(name: str, rows: list[Batch]) -> None:
    model = STEP_TIMES[name]
    columns = {field: np.array([getattr(row, field) for row in rows]) for field in Batch._fields}
    assert model.seconds_many(columns).tolist() == [model.seconds(row) for row in rows]


@pytest.mark.parametrize("name", STEP_TIMES)
def test_missing_columns_count_as_zero_and_unknown_ones_are_refused(name: str) -> None:
    model = STEP_TIMES[name]
    column = np.array([1, 7], dtype=np.int64)
    expected = [model.seconds(Batch(decode_requests=n)) for n in (1, 7)]
    assert model.seconds_many({"decode_requests": column}).tolist() == expected
    assert len(model.seconds_many({})) == 0
    with pytest.raises(ValueError, match="no such field of a batch: decodes"):
        model.seconds_many({"decodes": column})
    with pytest.raises(ValueError, match="unequal length"):
        model.seconds_many({"decode_requests": column, "prefill_tokens": np.zeros(3)})
    assert model.describe()


def test_a_batch_sums_up_its_requests() -> None:
    batch = Batch.of([(10, 0), (4, 100)], [50, 60], 7)
    assert batch == Batch(14, 2, 2, 210, 100, 10 * 5.5 + 4 * 102.5, 7)
    assert Batch.of([], []) == Batch()


def test_linear_is_its_formula() -> None:
    batch = Batch.of([(100, 500)], [1000, 1500])
    expected = 0.005 + 100 * 5e-5 + 2 * 2e-5 + 3.0 * 1e-4
    assert STEP_TIMES["linear"].seconds(batch) == pytest.approx(expected, rel=1e-12)


ROOFLINES = [name for name in STEP_TIMES if name not in ("fixed", "linear")]


@pytest.mark.parametrize("name", ROOFLINES)
@settings(max_examples=60, deadline=None)
@given(batch=batches(), more=batches())
def test_a_bigger_batch_is_never_faster(name: str, batch: Batch, more: Batch) -> None:
    bigger = Batch(*(a + b for a, b in zip(batch, more, strict=True)))
    assert STEP_TIMES[name].seconds(bigger) >= STEP_TIMES[name].seconds(batch)


@pytest.mark.parametrize("name", ROOFLINES)
@settings(max_examples=60, deadline=None)
@given(
    decodes=st.lists(st.integers(0, 100_000), min_size=1, max_size=8),
    new=st.integers(1, 8192),
    more=st.integers(1, 10**5),
)
def test_a_longer_context_is_never_faster(name: str, decodes: list[int], new: int, more: int) -> None:
    model = STEP_TIMES[name]
    assert model.seconds(Batch.of([], [n + more for n in decodes])) >= model.seconds(Batch.of([], decodes))
    assert model.seconds(Batch.of([(new, decodes[0] + more)], [])) >= model.seconds(Batch.of([(new, decodes[0])], []))


@settings(max_examples=60, deadline=None)
@given(
    batch=batches(),
    model=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b", "gemma-2-9b", "qwen2.5-vl-7b"]),
    dtype=st.sampled_from(["bf16", "fp8", "int4", "fp4", "mxfp4"]),
    slower=st.floats(0.1, 1.0),
    part=st.sampled_from(["bandwidth_gbps", "dense_tflops", "interconnect_gbps", "pcie_gbps"]),
    gpus=st.sampled_from([1, 2]),
)
def test_a_slower_gpu_is_never_faster(
    batch: Batch, model: str, dtype: str, slower: float, part: str, gpus: int
) -> None:
    fast = find_gpu("b200")
    value = getattr(fast, part)
    lower = {name: rate * slower for name, rate in value.items()} if isinstance(value, dict) else value * slower
    slow = fast.model_copy(update={part: lower})
    spec = find_model(model)
    times = [RooflineStepTime(spec, gpu, tensor_parallel_size=gpus, dtype=dtype).seconds(batch) for gpu in (fast, slow)]
    assert times[1] >= times[0]


@pytest.mark.parametrize("name", ROOFLINES)
def test_the_parts_add_up(name: str) -> None:
    model = STEP_TIMES[name]
    assert isinstance(model, RooflineStepTime)
    batch = Batch.of([(512, 3000)], [1000] * 20, 576)
    parts = model.parts(batch)
    assert sum(parts.values()) == pytest.approx(model.seconds(batch), rel=1e-12)
    assert all(seconds >= 0 for seconds in parts.values())


def test_decode_reads_every_weight_once() -> None:
    model = roofline(efficiencies=Efficiencies(weight_bandwidth=1.0))
    parts = model.parts(Batch.of([], [1]))
    spec = find_model("llama-3.1-8b")
    expected = (spec.linear_params + spec.head_params) * 2 / 3350e9
    assert parts["linear"] + parts["lm_head"] == pytest.approx(expected, rel=0.01)
    assert "experts" not in parts


def test_a_long_prefill_is_bound_by_arithmetic() -> None:
    parts = roofline(efficiencies=Efficiencies(compute=0.5)).parts(Batch.of([(8192, 0)], []))
    assert parts["linear"] == pytest.approx(
        2 * find_model("llama-3.1-8b").linear_params * 8192 / (0.5 * 989e12), rel=0.01
    )


def test_experts_are_read_as_far_as_tokens_reach_them() -> None:
    ideal = Efficiencies(weight_bandwidth=1.0, compute=1.0, dequantize=1.0, expert_tile_tokens=0.0)
    model = roofline("gpt-oss-120b", tensor_parallel_size=2, efficiencies=ideal)
    spec = find_model("gpt-oss-120b")
    everything = 36 * 128 * spec.expert_params * 0.53125 / 2 / 3350e9
    one = model.parts(Batch.of([], [1]))["experts"]
    assert one == pytest.approx(everything * 4 / 128, rel=0.05)
    assert model.parts(Batch.of([], [1] * 256))["experts"] >= 0.99 * everything


def test_a_window_bounds_what_is_read() -> None:
    model = roofline("gpt-oss-20b")
    near, far = (model.parts(Batch.of([], [n]))["kv_reads"] for n in (128, 12_800))
    assert far == pytest.approx(near * (12 * 1 + 12 * 100) / (12 + 12), rel=1e-6)


def test_gpus_that_share_a_model_pay_for_talking() -> None:
    alone, joined = roofline(), roofline(tensor_parallel_size=2)
    batch = Batch.of([(4096, 0)], [])
    assert alone.parts(batch)["communication"] == 0
    expected = 2 * 32 * (6e-6 + 4096 * 4096 * 2 * 1.0 / (450e9 * 0.67))
    assert joined.parts(batch)["communication"] == pytest.approx(expected, rel=1e-9)
    over_pcie = roofline(gpu="l40s", tensor_parallel_size=2).parts(batch)["communication"]
    assert over_pcie > 10 * joined.parts(batch)["communication"]


def test_images_take_the_encoder() -> None:
    model = roofline("llava-1.5-7b")
    without, one, two = (model.parts(Batch.of([], [10], n))["encoder"] for n in (0, 576, 1152))
    assert without == 0
    assert 0 < one < two < 2 * one
    assert "encoder" not in roofline().parts(Batch.of([], [10], 576))


def test_four_bit_weights_cost_conversion_where_the_gpu_has_no_such_arithmetic() -> None:
    prefill = Batch.of([(8192, 0)], [])
    hopper, blackwell = (
        roofline(gpu=gpu, dtype="fp4").parts(prefill)["linear"] / roofline(gpu=gpu).parts(prefill)["linear"]
        for gpu in ("h100", "b200")
    )
    assert hopper == pytest.approx(5.0, rel=0.05)
    assert blackwell == pytest.approx(0.25, rel=0.05)


def test_the_roofline_refuses_what_cannot_be() -> None:
    with pytest.raises(PlanningError, match="5 does not divide"):
        roofline(tensor_parallel_size=5)
    with pytest.raises(PlanningError, match="no experts to share"):
        roofline(data_parallel_size=2)


def test_a_roofline_takes_from_memory_what_it_leaves_out() -> None:
    memory = MemoryConfig(model="llama-3.1-8b", gpu="h100", tensor_parallel_size=2, dtype="fp8")
    built = build_step_time(RooflineTiming(), memory)
    assert built.seconds(Batch.of([], [9])) == roofline(tensor_parallel_size=2, dtype="fp8").seconds(Batch.of([], [9]))
    own = build_step_time(RooflineTiming(gpu="a100", tensor_parallel_size=1), memory)
    assert own.seconds(Batch.of([], [9])) == roofline(gpu="a100", dtype="fp8").seconds(Batch.of([], [9]))
    with pytest.raises(PlanningError, match="needs model and gpu"):
        build_step_time(RooflineTiming())
    with pytest.raises(PlanningError, match="needs gpu"):
        build_step_time(RooflineTiming(model="phi-4"), MemoryConfig(num_gpu_blocks=10))


def test_the_timing_block_is_told_apart_by_kind(tmp_path: Path) -> None:
    read: TypeAdapter[Any] = TypeAdapter(TimingConfig)
    assert read.validate_python({"kind": "fixed", "step_s": 0.04}) == FixedTiming(step_s=0.04)
    assert isinstance(read.validate_python({"kind": "linear", "step_s": 0.04}), LinearTiming)
    assert isinstance(build_step_time(LinearTiming(step_s=0.1)), LinearStepTime)
    assert isinstance(build_step_time(FixedTiming(step_s=0.1)), FixedStepTime)
    (tmp_path / "t.csv").write_text("decode_requests,seconds\n1,0.1\n3,0.3\n")
    table = build_step_time(TableTiming(path="t.csv"), base=tmp_path)
    assert table.seconds(Batch(decode_requests=2)) == pytest.approx(0.2)
    for wrong in (
        {"kind": "magic"},
        {"kind": "fixed"},
        {"kind": "fixed", "step_s": -1.0},
        {"kind": "roofline", "x": 1},
    ):
        with pytest.raises(ValidationError):
            read.validate_python(wrong)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Efficiencies(compute=1.5)
