"""The table of a sweep's points: every parameter, every summary figure."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.config import ExperimentConfig
from sim.config.load import config_hash
from sim.recording.run_folder import FORMAT_VERSION, read_manifest
from sim.sweeps.expand import Sweep, flatten

TABLE = "points"
ABOUT = "sweep.json"
# of the summary: what the table has as parameters, or is text about figures
_NOT_FIGURES = ("definitions", "notes", "name", "question", "seed", "kvsim_version", "timing", "memory")


def finished(folder: Path, config: ExperimentConfig) -> bool:
    """Whether a run folder holds the finished run of just this configuration, by this version of kvsim."""
    from importlib import metadata

    manifest = read_manifest(folder)
    return (
        manifest is not None
        and manifest.get("format_version") == FORMAT_VERSION
        and manifest.get("status") == "complete"
        and manifest.get("config_hash") == config_hash(config)
        and manifest.get("kvsim_version") == metadata.version("kvsim")
    )


def point_rows(sweep: Sweep, folder: Path, errors: Mapping[int, str]) -> list[dict[str, Any]]:
    """One row a point, in order: number, folder, status (finished, failed or missing), error, parameters, figures."""
    rows = []
    for point in sweep.points:
        row: dict[str, Any] = {"point": point.number, "folder": point.folder, "status": "missing", "error": None}
        row |= {path: _cell(value) for path, value in point.parameters.items()}
        config = {key: value for key, value in point.config.model_dump(mode="json").items() if key != "sweep"}
        row |= {path: _cell(value) for path, value in flatten(config).items() if path not in row}
        if point.number in errors:
            row |= {"status": "failed", "error": errors[point.number]}
        elif finished(folder / point.folder, point.config):
            summary = json.loads((folder / point.folder / "summary.json").read_text(encoding="utf-8"))
            figures = flatten({key: value for key, value in summary.items() if key not in _NOT_FIGURES})
            row |= {"status": "finished"}
            row |= {path: _cell(value) for path, value in figures.items() if path not in row}
        rows.append(row)
    return rows


def _cell(value: Any) -> Any:
    """A value that a column can hold: numbers and texts as they are, anything else as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)


def write_table(sweep: Sweep, folder: Path, errors: Mapping[int, str]) -> None:
    """Write ``points.parquet``, ``points.csv`` and ``sweep.json``, each whole or not at all."""
    import pandas as pd

    table = pd.DataFrame(point_rows(sweep, folder, errors))
    for name in table.columns:
        kinds = {type(value) for value in table[name] if value is not None and value == value}
        if len(kinds) > 1 and not kinds <= {int, float}:
            table[name] = [None if value is None or value != value else str(value) for value in table[name]]
    about = {
        "format_version": FORMAT_VERSION,
        "name": sweep.name,
        "parameters": sweep.parameters,
        "points": len(sweep.points),
        "left_out_by_conditions": sweep.left_out,
        "repeats_of_a_configuration": sweep.same,
        "held_fixed": sweep.fixed,
    }
    _replace(folder / f"{TABLE}.parquet", lambda path: table.to_parquet(path, index=False))
    _replace(folder / f"{TABLE}.csv", lambda path: table.to_csv(path, index=False, lineterminator="\n"))
    text = json.dumps(about, indent=2, sort_keys=False, ensure_ascii=False) + "\n"
    _replace(folder / ABOUT, lambda path: path.write_text(text, encoding="utf-8"))


def _replace(path: Path, write: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    write(partial)
    os.replace(partial, path)
