"""The table of a sweep's points: every parameter, every summary figure."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sim.errors import ResultsError
from sim.recording.run_folder import FORMAT_VERSION
from sim.sweeps.expand import Sweep, flatten
from sim.sweeps.folder import ABOUT, TABLE, version

# of the summary: what the table has as parameters, or is text about figures
_NOT_FIGURES = ("definitions", "notes", "name", "question", "seed", "kvsim_version", "timing")
# mappings whose keys are texts of a run: one cell each
_WHOLE = ("skipped", "not_finished")


def point_rows(sweep: Sweep, folder: Path, done: Collection[int], errors: Mapping[int, str]) -> list[dict[str, Any]]:
    """One row a point, in order: number, folder, status, error, parameters, the whole configuration, figures.

    `status` is ``finished``, ``failed``, or ``missing`` where the sweep ended before.

    Raises `ResultsError` for a finished point whose summary cannot be read.
    """
    rows = []
    for point in sweep.points:
        status = "finished" if point.number in done else "failed" if point.number in errors else "missing"
        row: dict[str, Any] = {"point": point.number, "folder": point.folder, "status": status}
        row["error"] = errors.get(point.number)
        row |= {path: _cell(value) for path, value in point.parameters.items()}
        config = {key: value for key, value in point.config.model_dump(mode="json").items() if key != "sweep"}
        row |= {path: _cell(value) for path, value in flatten(config).items() if path not in row}
        if status == "finished":
            summary = _summary(folder / point.folder / "summary.json")
            kept = {key: value for key, value in summary.items() if key not in (*_NOT_FIGURES, *_WHOLE)}
            figures = flatten(kept) | {key: summary.get(key) or {} for key in _WHOLE}
            row |= {path: _cell(value) for path, value in figures.items() if path not in row}
        rows.append(row)
    return rows


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ResultsError(f"{path}: cannot be read ({reason}); remove that folder and --resume") from None
    if not isinstance(summary, dict):
        raise ResultsError(f"{path}: holds no summary; remove that folder and --resume")
    return summary


def _cell(value: Any) -> Any:
    """A value that a column can hold: numbers and texts as they are, anything else as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)


def write_about(sweep: Sweep, folder: Path) -> None:
    """Write ``sweep.json``: what varies, what is held fixed, what was left out, and by which version."""
    about = {
        "format_version": FORMAT_VERSION,
        "kvsim_version": version(),
        "name": sweep.name,
        "question": sweep.points[0].config.question,
        "parameters": sweep.parameters,
        "points": len(sweep.points),
        "left_out_by_conditions": sweep.left_out,
        "repeats_of_a_configuration": sweep.same,
        "held_fixed": sweep.fixed,
    }
    text = json.dumps(about, indent=2, sort_keys=False, ensure_ascii=False) + "\n"
    _replace(folder / ABOUT, lambda path: path.write_text(text, encoding="utf-8"))


def write_table(sweep: Sweep, folder: Path, done: Collection[int], errors: Mapping[int, str]) -> None:
    """Write ``points.parquet`` and ``points.csv``, each whole or not at all.

    The same results make the same bytes, in whatever order and by whatever processes they came.
    """
    import pandas as pd

    table = pd.DataFrame(point_rows(sweep, folder, done, errors))
    for name in table.columns:
        kinds = {type(value) for value in table[name] if value is not None and value == value}
        if len(kinds) > 1 and not kinds <= {int, float}:
            table[name] = [None if value is None or value != value else str(value) for value in table[name]]
    _replace(folder / f"{TABLE}.parquet", lambda path: table.to_parquet(path, index=False))
    _replace(folder / f"{TABLE}.csv", lambda path: table.to_csv(path, index=False, lineterminator="\n"))


def _replace(path: Path, write: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    write(partial)
    os.replace(partial, path)
