"""``serve:`` and ``--serve``: settings from a ``vllm serve …`` command line."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from sim.timing.serve_line import parse_serve_line


def with_serve_line(data: Mapping[str, Any], line: str, *, force: bool) -> dict[str, Any]:
    """A copy of the configuration with what the line says.

    Keys that the configuration gives itself win, unless `force`.  Applying a line twice changes
    nothing.  Raises `ServeLineError`, one line per fault.
    """
    out = copy.deepcopy(dict(data))
    said = parse_serve_line(line)
    for section, settings in (("engine", said.engine), ("memory", {"model": said.model} | said.memory)):
        there = out.get(section)
        if there is None:
            there = out[section] = {}
        if not isinstance(there, dict):
            continue  # validation will say that it must be a mapping
        for key, value in settings.items():
            if force or there.get(key) is None:
                there[key] = value
    out["serve"] = line
    return out
