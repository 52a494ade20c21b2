"""Checks the `workload:` block against the generator or trace reader that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.config.errors import Places
from sim.config.yaml_io import KeyPath


def workload_faults(part: Mapping[str, Any], path: KeyPath, places: Places) -> list[str]:
    """Lines for every fault of one workload."""
    return []
