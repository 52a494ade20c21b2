"""What one section alone cannot know: labels of workloads, groups, memory, files."""

from __future__ import annotations

import os
from pathlib import Path

from sim.config.errors import Places
from sim.config.models import ExperimentConfig
from sim.config.resolve import resolve
from sim.core.block import KVCacheBlock
from sim.errors import KvsimError
from sim.eviction.future import KnownFuture
from sim.eviction.registry import make_eviction
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
    faults += _policy_faults(config, places)
    try:
        build_step_time(config.timing, config.memory)
    except (KvsimError, OSError, ValueError) as error:
        faults += [places.fault(("timing",), line) for line in str(error).splitlines()]
    return faults


def _policy_faults(config: ExperimentConfig, places: Places) -> list[str]:
    """Makes the policy for a tiny pool: its name, the names of its settings and their values."""
    policy, params = config.eviction.policy, config.eviction.params()
    try:
        eviction = make_eviction(
            policy, params, num_blocks=3, hash_block_size=1, clock=lambda: 0.0, future=KnownFuture([])
        )
        eviction.free_queue([KVCacheBlock(1), KVCacheBlock(2)])
    except KvsimError as error:
        lines = []
        for line in str(error).splitlines():
            key, _, text = line.removeprefix("eviction.").partition(": ")
            known = key in params or key == "policy"
            path = ("eviction", key) if known and text else ("eviction", "policy")
            lines.append(places.fault(path, text if known and text else line.removeprefix("eviction: ")))
        return lines
    return []


def _unreadable(path: Path) -> str:
    """Why a trace cannot be read, or nothing."""
    if not path.exists():
        return f"{path}: no such file or folder"
    if not os.access(path, os.R_OK):
        return f"{path}: no permission to read it"
    return ""
