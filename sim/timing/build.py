"""From the `timing:` block to the model of step time that it describes."""

from __future__ import annotations

from pathlib import Path

from sim.core.kv_cache_spec import PlanningError
from sim.timing.base import StepTime
from sim.timing.config import FixedTiming, LinearTiming, RooflineTiming, TableTiming
from sim.timing.fixed import FixedStepTime
from sim.timing.linear import LinearStepTime
from sim.timing.memory import MemoryConfig


def build_step_time(
    timing: FixedTiming | LinearTiming | RooflineTiming | TableTiming,
    memory: MemoryConfig | None = None,
    base: Path | None = None,
) -> StepTime:
    """The model of step time; what a roofline leaves out is taken from `memory`, paths are relative to `base`.

    Raises `PlanningError` for unknown names or a roofline without model or GPU, `MeasurementError`
    for a table that can't be used.
    """
    if isinstance(timing, FixedTiming):
        return FixedStepTime(timing.step_s)
    if isinstance(timing, LinearTiming):
        return LinearStepTime(
            timing.step_s,
            timing.prefill_token_s,
            timing.decode_request_s,
            timing.context_kilotoken_s,
            timing.encoder_token_s,
        )
    if isinstance(timing, TableTiming):
        from sim.timing.points import read_points
        from sim.timing.table import TableStepTime

        path = (base or Path()) / timing.path
        return TableStepTime(read_points(path), clamp=timing.extrapolate == "clamp", name=str(timing.path))
    return _roofline(timing, memory, base)


def _roofline(timing: RooflineTiming, memory: MemoryConfig | None, base: Path | None) -> StepTime:
    from sim.timing.catalog import find_gpu, find_model
    from sim.timing.roofline import RooflineStepTime

    model = timing.model or (memory.model if memory else None)
    gpu = timing.gpu or (memory.gpu if memory else None)
    missing = [name for name, value in (("model", model), ("gpu", gpu)) if value is None]
    if model is None or gpu is None:
        raise PlanningError(f"timing: a roofline needs {' and '.join(missing)}, here or under memory")
    size = timing.tensor_parallel_size or (memory.tensor_parallel_size if memory else 1)
    return RooflineStepTime(
        find_model(model, base),
        find_gpu(gpu),
        tensor_parallel_size=size,
        data_parallel_size=timing.data_parallel_size,
        dtype=timing.dtype or (memory.dtype if memory else None),
        kv_cache_dtype=timing.kv_cache_dtype or (memory.kv_cache_dtype if memory else "auto"),
        efficiencies=timing.efficiencies,
    )
