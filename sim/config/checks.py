"""What one section alone cannot know: workload kinds and their parameters, groups, memory, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.config.errors import Places
from sim.config.models import ExperimentConfig
from sim.config.workloads import workload_faults


def cross_faults(data: Mapping[str, Any], config: ExperimentConfig | None, places: Places) -> list[str]:
    """Lines for all faults that only show across sections; `config` is None when sections have faults themselves."""
    faults = []
    if isinstance(data.get("workload"), Mapping):
        faults += workload_faults(data["workload"], ("workload",), places)
    if isinstance(data.get("workloads"), list):
        for index, part in enumerate(data["workloads"]):
            if isinstance(part, Mapping):
                faults += workload_faults(part, ("workloads", index), places)
    if config is not None:
        faults += _group_faults(config, places)
    return faults


def _group_faults(config: ExperimentConfig, places: Places) -> list[str]:
    """Full-attention groups of different block sizes cannot share one lookup."""
    faults = []
    groups = config.engine.kv_cache_groups or []
    if len([group for group in groups if group.kind == "full"]) > 1:
        sizes = {group.block_size or config.engine.block_size for group in groups if group.kind == "full"}
        if len(sizes) > 1:
            shown = ", ".join(str(size) for size in sorted(sizes))
            faults.append(
                places.fault(
                    ("engine", "kv_cache_groups"), f"full-attention groups must share one block size, got {shown}"
                )
            )
    return faults
