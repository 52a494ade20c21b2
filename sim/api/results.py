"""Results as notebooks use them: pandas tables, figures, and a display of their own."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import ResultsError
from sim.recording.results import RunResult
from sim.recording.run_folder import FORMAT_VERSION

if TYPE_CHECKING:
    import pandas as pd

    from sim.report import comparison
    from sim.report.plots import RunPlots, SweepPlots


class RunResults(RunResult):
    """A finished run.

    Its tables are pandas data frames, read when they are first used: `requests`, `steps`, `evictions`,
    `stalls`, others by `table(name)`.  `summary` and `config` are mappings; `figures` has the summary
    flat, with definitions; `plot` draws.
    """

    @cached_property
    def plot(self) -> RunPlots:
        """Every figure of the report: ``results.plot.ttft()``; each takes ``ax=``."""
        from sim.report.plots import RunPlots

        return RunPlots(self)

    @cached_property
    def figures(self) -> pd.DataFrame:
        """Every figure of the summary by name, with its value and its definition."""
        import pandas as pd

        definitions = self.summary.get("definitions", {})
        rows = {
            name: (value, _definition(name, definitions))
            for name, value in _flat(self.summary)
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "definition"])

    def report(self, output: str | Path | None = None) -> Path:
        """Write the HTML report and return its path."""
        from sim.report.build import write_report

        return write_report(self.path, output)

    def _repr_html_(self) -> str:
        return table_html(str(self.summary.get("question") or self.summary.get("name", "")), _highlights(self.summary))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in _highlights(self.summary)[:4])
        return f"RunResults({str(self.path)!r}: {shown})"


class SweepResults:
    """A sweep: `points`, a pandas table with a row a point, `about` (what varied, what was fixed), and `plot`.

    Raises `ResultsError` for a folder without a readable table of points, or one of another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "points.parquet").is_file():
            raise ResultsError(f"{self.path}: no points.parquet here; give the folder that kvsim sweep has named")
        version = self.about.get("format_version")
        if version != FORMAT_VERSION:
            raise ResultsError(
                f"{self.path}: a sweep of format {version}, this kvsim reads format {FORMAT_VERSION}; run it again"
            )

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `sweep.json` says: the parameters, and what was held fixed."""
        file = self.path / "sweep.json"
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultsError(f"{file}: cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise ResultsError(f"{file}: holds no mapping")
        return found

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row a point: every parameter, every figure."""
        import pandas as pd

        file = self.path / "points.parquet"
        try:
            return pd.read_parquet(file)
        except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are among these
            raise ResultsError(f"{file}: cannot be read: {' '.join(str(error).split())[:200]}") from error

    @property
    def parameters(self) -> list[str]:
        """The paths that vary, in the order of the sweep."""
        return list(self.about.get("parameters", []))

    def table(self, *figures: str) -> pd.DataFrame:
        """The points with their parameters and these figures only, in short.

        Raises `ResultsError`, with the nearest names, for a figure that there is not.
        """
        from sim.report.sweep_data import check_column

        wanted = figures or tuple(name for name in _SWEEP_FIGURES if name in self.points.columns)
        for name in wanted:
            check_column(name, list(self.points.columns))
        return self.points[[*self.parameters, *wanted]]

    @cached_property
    def plot(self) -> SweepPlots:
        """Every figure of a sweep's report."""
        from sim.report.plots import SweepPlots

        return SweepPlots(self.points)

    def run(self, point: int) -> RunResults:
        """The results of one point, by its number in the table.  Raises `ResultsError` when there is no such point."""
        folders = self.points.loc[self.points["point"] == point, "folder"]
        if not len(folders):
            raise ResultsError(f"{self.path}: no point {point}; there are 0 to {len(self.points) - 1}")
        return RunResults(self.path / str(folders.iloc[0]))

    def report(self, output: str | Path | None = None, *, goal: str | None = None, where: Sequence[str] = ()) -> Path:
        """Write the HTML report and return its path; `goal` and `where` choose the best point."""
        from sim.report.build import write_report

        return write_report(self.path, output, goal=goal, constraints=where)

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"SweepResults({str(self.path)!r}: {len(self.points)} points over {', '.join(self.parameters)})"


class Comparison:
    """Runs side by side: `settings` that differ and `figures`, a column a run; `report()` writes the page."""

    def __init__(self, found: comparison.Comparison) -> None:
        self.found = found

    @cached_property
    def settings(self) -> pd.DataFrame:
        """The settings that are not the same in all runs."""
        import pandas as pd

        rows = {d.path: [repr(v) if there else "–" for v, there in zip(d.values, d.present, strict=True)]
                for d in self.found.settings}  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index", columns=self.found.names)

    @cached_property
    def figures(self) -> pd.DataFrame:
        """All figures, a row each."""
        import pandas as pd

        rows = {figure.name: figure.values for figure in self.found.figures}
        return pd.DataFrame.from_dict(rows, orient="index", columns=self.found.names)

    @property
    def differing(self) -> pd.DataFrame:
        """The figures that are not the same in all runs."""
        names = [figure.name for figure in self.found.figures if figure.differs]
        return self.figures.loc[names]

    def report(self, output: str | Path = "compare.html") -> Path:
        """Write the page and return its path."""
        from sim.report.compare_page import write_comparison

        return write_comparison(self.found, Path(output))

    def _repr_html_(self) -> str:
        return str(self.settings._repr_html_()) + str(self.differing._repr_html_())  # type: ignore[operator]

    def __repr__(self) -> str:
        from sim.report.comparison import as_text

        return as_text(self.found)


# what a table of results shows unless it is asked for others
_RUN_FIGURES = (
    ("requests", "requests.total"),
    ("finished", "requests.finished"),
    ("hit rate", "hit_rate.tokens"),
    ("evicted blocks", "evictions"),
    ("preemptions", "preemptions"),
    ("TTFT mean, s", "latency.vllm:time_to_first_token_seconds.mean"),
    ("TTFT p99, s", "latency.vllm:time_to_first_token_seconds.p99"),
    ("TPOT mean, s", "latency.vllm:request_time_per_output_token_seconds.mean"),
    ("good requests", "goodput.share"),
    ("simulated, s", "simulated_s"),
)
_SWEEP_FIGURES = tuple(name for _, name in _RUN_FIGURES[2:7])


def _highlights(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    flat = dict(_flat(summary))
    return [(label, shown(flat[name])) for label, name in _RUN_FIGURES if flat.get(name) is not None]


def shown(value: Any) -> str:
    """A number as a person reads it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            if key != "definitions":
                yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _definition(name: str, definitions: Mapping[str, str]) -> str:
    """Of the figure, or of the mapping in which it stands."""
    while name not in definitions and "." in name:
        name = name.rpartition(".")[0]
    return definitions.get(name, "")


def table_html(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table of two columns, texts escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:right'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"
