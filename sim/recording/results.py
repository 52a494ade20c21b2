"""Finished runs, read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import ResultsError
from sim.recording.run_folder import FORMAT_VERSION, read_manifest
from sim.recording.schema import TABLES

if TYPE_CHECKING:
    import pandas as pd


class RunResult:
    """A run on disk.  Tables are read when they are asked for.

    Args:
        path: the run's folder.
        partial: accept a run that failed or was killed; its tables go as far as it came.

    Raises:
        ResultsError: no run, one that is not whole, or one of another format version.
    """

    def __init__(self, path: str | Path, *, partial: bool = False) -> None:
        self.path = Path(path)
        if not self.path.exists() and self.path.with_name(self.path.name + ".partial").exists() and not partial:
            raise ResultsError(
                f"{self.path}: only {self.path.name}.partial is there: the run did not finish; run it again"
            )
        manifest = read_manifest(self.path)
        if manifest is None:
            raise ResultsError(f"{self.path}: no readable manifest.json here; give the folder that kvsim run has named")
        self.manifest = manifest
        version = manifest.get("format_version")
        if version != FORMAT_VERSION:
            raise ResultsError(
                f"{self.path}: results of format {version}, this kvsim reads format {FORMAT_VERSION}; run it again"
            )
        status = manifest.get("status")
        if status != "complete" and not partial:
            why = f": {manifest['error']}" if "error" in manifest else " (it was killed, or still goes on)"
            raise ResultsError(f"{self.path}: the run is not complete{why}; run it again")

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.manifest.get("status") == "complete")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures, see `sim.recording.definitions`."""
        return self._json("summary.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        import yaml

        try:
            data = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ResultsError(f"{self.path / 'config.yaml'}: cannot be read: {_one_line(error)}") from error
        if not isinstance(data, dict):
            raise ResultsError(f"{self.path / 'config.yaml'}: holds no configuration")
        return data

    def has_table(self, name: str) -> bool:
        """Whether the run has written this table."""
        return self._file(name).exists()

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """A table as pandas, all columns or some.

        Raises `ResultsError` for a table that there is not, or that is damaged.
        """
        import pandas as pd

        file = self._file(name)
        if not file.exists():
            there = ", ".join(table for table in TABLES if self.has_table(table)) or "none"
            raise ResultsError(
                f"{self.path}: no table {name!r}; there are {there} (see `recording:` in its config.yaml)"
            )
        try:
            return pd.read_parquet(file, columns=None if columns is None else list(columns))
        except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are among these
            raise ResultsError(f"{file}: cannot be read: {_one_line(error)}") from error

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request."""
        return self.table("requests")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step."""
        return self.table("steps")

    @cached_property
    def evictions(self) -> pd.DataFrame:
        """One row per evicted block."""
        return self.table("evictions")

    @cached_property
    def stalls(self) -> pd.DataFrame:
        """One row per late token."""
        return self.table("stalls")

    @cached_property
    def misses(self) -> pd.DataFrame:
        """One row per run of blocks that missed for one cause."""
        return self.table("misses")

    @cached_property
    def eviction_costs(self) -> pd.DataFrame:
        """What each eviction cost, row by row of `evictions`."""
        return self.table("eviction_costs")

    def _file(self, name: str) -> Path:
        salvaged = self.path / f"{name}.partial.parquet"
        return salvaged if not self.complete and salvaged.exists() else self.path / f"{name}.parquet"

    def _json(self, name: str) -> dict[str, Any]:
        try:
            data = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"{self.path / name}: cannot be read: {_one_line(error)}") from error
        if not isinstance(data, dict):
            raise ResultsError(f"{self.path / name}: holds no mapping")
        return data

    def __repr__(self) -> str:
        return f"RunResult({str(self.path)!r})"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
