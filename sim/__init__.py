"""kvsim: what would my KV cache do?  A discrete-event simulator of prefix-caching LLM serving.

The interface for notebooks and programs is `sim.api`; its names are offered here and imported when
they are first used, so that ``import sim`` costs nothing.  (`sim.report` is the package that draws;
the call is `write_report`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api.experiments import compare, load, open_results, run, sweep, verify, write_report
    from sim.api.hardware import fit, gpus, models, plan
    from sim.api.results import Comparison, RunResults, SweepResults
    from sim.api.settings import schema, settings
    from sim.api.workload import Curves, Inspection, convert, curve, inspect, workloads
    from sim.config.models import (
        EngineConfig,
        EvictionConfig,
        ExperimentConfig,
        KVGroup,
        RecordingConfig,
        Slo,
        Warmup,
    )
    from sim.config.sweep import SweepConfig, Variant
    from sim.timing.config import FixedTiming, LinearTiming, RooflineTiming, TableTiming
    from sim.timing.memory import Geometry, MemoryConfig

__all__ = [
    "Comparison",
    "Curves",
    "EngineConfig",
    "EvictionConfig",
    "ExperimentConfig",
    "FixedTiming",
    "Geometry",
    "Inspection",
    "KVGroup",
    "LinearTiming",
    "MemoryConfig",
    "RecordingConfig",
    "RooflineTiming",
    "RunResults",
    "Slo",
    "SweepConfig",
    "SweepResults",
    "TableTiming",
    "Variant",
    "Warmup",
    "compare",
    "convert",
    "curve",
    "fit",
    "gpus",
    "inspect",
    "load",
    "models",
    "open_results",
    "plan",
    "run",
    "schema",
    "settings",
    "sweep",
    "verify",
    "workloads",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        module = importlib.import_module("sim.api").module_of(name)
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
