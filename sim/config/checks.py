"""What one section alone cannot know: labels of workloads, groups, memory, files."""

from __future__ import annotations

import os
from pathlib import Path

from sim.config.errors import Places
from sim.config.models import ExperimentConfig
from sim.config.resolve import resolve
from sim.errors import KvsimError
from sim.timing.build import build_step_time
from workloads.load import TraceParams, check_labels


def cross_faults(config: ExperimentConfig, places: Places) -> list[str]:
    """Lines for all faults that only show across the sections of a configuration whose sections are valid."""
    faults = []
    items = config.workload_items()
    for index, item in enumerate(items):
        path = ("workload",) if config.workload is not None else ("workloads", index)
        if isinstance(item, TraceParams):
            text = _unreadable(Path(item.path))
            if text:
                faults.append(places.fault((*path, "path"), text))
    faults += check_labels(items)
    try:
        resolve(config)
    except KvsimError as error:
        faults += [places.fault(("memory",), line) for line in str(error).splitlines()]
    except ValueError as error:
        faults.append(places.fault(("engine", "kv_cache_groups"), str(error)))
    try:
        build_step_time(config.timing, config.memory)
    except (KvsimError, OSError, ValueError) as error:
        faults += [places.fault(("timing",), line) for line in str(error).splitlines()]
    return faults


def _unreadable(path: Path) -> str:
    """Why a trace cannot be read, or nothing."""
    if not path.exists():
        return f"{path}: no such file or folder"
    if not os.access(path, os.R_OK):
        return f"{path}: no permission to read it"
    return ""
