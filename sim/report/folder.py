"""A results folder as a report sees it: its JSON, its YAML and the columns of its tables that a figure needs."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sim.errors import ResultsError
from sim.recording.results import RunResult
from sim.recording.run_folder import FORMAT_VERSION

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["run", "sweep"]


class ResultsFolder:
    """A finished run or sweep on disk.  Nothing is read before it is asked for.

    Raises ResultsError for a folder that is missing, is no results folder or has a damaged file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            found = "is a file" if self.path.exists() else "does not exist"
            raise ResultsError(f"{self.path}: {found}; a folder written by 'kvsim run' or 'kvsim sweep' is wanted")
        self.kind: Kind = self._find_kind()
        _ = self.run if self.kind == "run" else self.about  # what is not whole is refused now

    def _find_kind(self) -> Kind:
        if (self.path / "points.parquet").is_file():
            return "sweep"
        if (self.path / "manifest.json").is_file():
            return "run"
        runs = sorted(
            p.parent.name for p in self.path.glob("*/manifest.json") if p.parent.suffix not in (".partial", ".old")
        )
        if len(runs) == 1:
            self.path = self.path / runs[0]
            return "run"
        if runs:
            listed = ", ".join(runs[:5]) + (", …" if len(runs) > 5 else "")
            raise ResultsError(f"{self.path}: holds {len(runs)} runs; name one of them: {listed}")
        raise ResultsError(f"{self.path}: no results here: neither manifest.json (a run) nor points.parquet (a sweep)")

    @cached_property
    def run(self) -> RunResult:
        """The run, checked to be whole and of this format."""
        return RunResult(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json of a run; empty for a sweep."""
        return self.run.summary if self.kind == "run" else {}

    @property
    def manifest(self) -> dict[str, Any]:
        """manifest.json of a run; empty for a sweep."""
        return self.run.manifest if self.kind == "run" else {}

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml of a run, as resolved; empty for a sweep, whose `about` says what was held fixed."""
        return self.run.config if self.kind == "run" else {}

    @cached_property
    def about(self) -> dict[str, Any]:
        """sweep.json: name, parameters, what was held fixed.  Raises ResultsError for one of another version."""
        found = self._json("sweep.json")
        version = found.get("format_version")
        if version != FORMAT_VERSION:
            raise ResultsError(
                f"{self.path}: a sweep of format {version}, this kvsim reads format {FORMAT_VERSION}; run it again"
            )
        return found

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"{file}: not readable as JSON ({error}); run the experiment again") from error
        if not isinstance(content, dict):
            raise ResultsError(
                f"{file}: holds a {type(content).__name__}, an object is wanted; run the experiment again"
            )
        return content

    def columns(self, table: str) -> list[str]:
        """The columns of a table; none when the run did not record it."""
        file = self.path / f"{table}.parquet"
        if not file.is_file():
            return []
        import pyarrow.parquet as pq

        with _damage_named(file):
            return list(pq.read_schema(file).names)

    def table(self, name: str, columns: tuple[str, ...] | list[str] | None = None) -> pd.DataFrame:
        """Read a table, or only these of its columns.  Raises ResultsError for a missing or damaged one."""
        file = self.path / f"{name}.parquet"
        if not file.is_file():
            raise ResultsError(f"{file}: the run has no such table")
        import pyarrow.parquet as pq

        with _damage_named(file):
            frame: pd.DataFrame = pq.read_table(file, columns=None if columns is None else list(columns)).to_pandas()
            return frame


class _damage_named:
    """Turn what the Parquet reader says of a damaged file into one line."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import pyarrow as pa

        if isinstance(error, (pa.ArrowException, ValueError)):
            first = (str(error).splitlines() or ["unknown damage"])[0]
            raise ResultsError(f"{self.file}: not a readable Parquet table ({first}); run the experiment again")
