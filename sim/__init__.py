"""kvsim: what would my KV cache do?  A discrete-event simulator of prefix-caching LLM serving.

The interface for notebooks and programs is `sim.api`; its names are offered here and imported when
they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import (
        RunResults as RunResults,
    )
    from sim.api import (
        SweepResults as SweepResults,
    )
    from sim.api import (
        load as load,
    )
    from sim.api import (
        open_results as open_results,
    )
    from sim.api import (
        report as report,
    )
    from sim.api import (
        run as run,
    )
    from sim.api import (
        sweep as sweep,
    )
    from sim.api import (
        verify as verify,
    )
    from sim.config import ExperimentConfig as ExperimentConfig

_API = ("RunResults", "SweepResults", "load", "open_results", "report", "run", "sweep", "verify", "ExperimentConfig")


def __getattr__(name: str) -> Any:
    if name in _API:
        import importlib

        value = getattr(importlib.import_module("sim.api"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_API})
