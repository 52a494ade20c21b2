"""The Python interface: what the command line does, one call each.

>>> import sim  # doctest: +SKIP
>>> results = sim.run("configs/quickstart.yaml", progress=True)  # doctest: +SKIP
>>> results.summary["hit_rate"], results.requests.head(), results.plot.ttft()  # doctest: +SKIP

`import sim` offers these by name and imports nothing heavy until one is called.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config import ExperimentConfig
from sim.config.load import LoadedConfig, config_from_mapping, load_config, read_config
from sim.errors import ResultsError
from sim.recording.results import RunResult

if TYPE_CHECKING:
    import pandas as pd

    from sim.parity.verify import Outcome
    from sim.report.plots import RunPlots, SweepPlots

ConfigLike = ExperimentConfig | Mapping[str, Any] | str | Path


class RunResults(RunResult):
    """A finished run: tables as pandas (`requests`, `steps`, `evictions`, …), `summary`, `config`, and `plot`."""

    @cached_property
    def plot(self) -> RunPlots:
        """Every figure of the report: ``results.plot.ttft()``; each takes ``ax=``."""
        from sim.report.plots import RunPlots

        return RunPlots(self)

    def report(self) -> Path:
        """Write the HTML report and return its path."""
        return report(self.path)

    def _repr_html_(self) -> str:
        """A short table of the figures that matter, for Jupyter."""
        return _table(str(self.summary.get("question") or self.summary.get("name", "")), _figures(self.summary))

    def __repr__(self) -> str:
        return f"RunResults({str(self.path)!r})"


class SweepResults:
    """A sweep: `points`, a pandas table with a row a point, and `plot`.

    Raises `ResultsError` for a folder without a readable table of points.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "points.parquet").is_file():
            raise ResultsError(f"{self.path}: no points.parquet here; give the folder that kvsim sweep has named")

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row a point: every parameter, every figure."""
        import pandas as pd

        try:
            return pd.read_parquet(self.path / "points.parquet")
        except (OSError, ValueError) as error:  # pyarrow's errors are among these
            raise ResultsError(f"{self.path / 'points.parquet'}: cannot be read: {error}") from error

    @cached_property
    def plot(self) -> SweepPlots:
        """Every figure of a sweep's report."""
        from sim.report.plots import SweepPlots

        return SweepPlots(self.points)

    def run(self, point: int) -> RunResults:
        """The results of one point, by its number in the table."""
        return RunResults(self.path / str(self.points.loc[self.points["point"] == point, "folder"].iloc[0]))

    def report(self) -> Path:
        """Write the HTML report and return its path."""
        return report(self.path)

    def _repr_html_(self) -> str:
        """The table of points, for Jupyter."""
        return str(self.points._repr_html_())  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"SweepResults({str(self.path)!r}, {len(self.points)} points)"


def load(path: str | Path, *overrides: str, trace: str | None = None) -> ExperimentConfig:
    """Read and validate a configuration; ``overrides`` are texts such as ``"engine.block_size=32"``.

    Raises `ConfigError` with one line for every fault.
    """
    return load_config(path, overrides, trace=trace)


def run(config: ConfigLike, *, progress: bool = False, out: str | Path = "results", **options: Any) -> RunResults:
    """Run one experiment and return its results; other options are those of `sim.experiment.run`."""
    from sim.experiment import run as run_experiment

    return RunResults(run_experiment(config, progress=progress, out=out, **options).path)


def sweep(
    config: ConfigLike,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    progress: bool = False,
    out: str | Path = "results",
    jobs: int = 1,
    **options: Any,
) -> SweepResults:
    """Run every point of a configuration's `sweep:` (and of `axes`, path → values), and return the table of points.

    Other options are those of `sim.sweeps.run.run_sweep`.
    """
    from tqdm.auto import tqdm

    from sim.sweeps.expand import expand
    from sim.sweeps.run import run_sweep

    loaded = _loaded(config)
    if axes:
        section = dict(loaded.data.get("sweep") or {})
        section["grid"] = dict(section.get("grid") or {}) | {path: list(values) for path, values in axes.items()}
        loaded.data["sweep"] = section
    points = expand(loaded)
    with tqdm(total=len(points.points), unit="point", disable=not progress) as bar:

        def advance(done: int) -> None:
            bar.update(done - bar.n)

        folder = run_sweep(points, out=out, jobs=jobs, progress=advance, **options)
    return SweepResults(folder)


def open_results(path: str | Path) -> RunResults | SweepResults:
    """The results in a folder: of a run, or of a sweep.  Raises `ResultsError` when there are none."""
    if (Path(path) / "points.parquet").is_file():
        return SweepResults(path)
    return RunResults(path)


def report(path: str | Path) -> Path:
    """Write the HTML report of a run or sweep and return its path."""
    from sim.report.build import write_report

    return write_report(path)


def verify(paths: Iterable[str | Path]) -> list[Outcome]:
    """Replay recordings of the reference; an `Outcome` a file, whose `difference` is None where all is equal."""
    from sim.parity.verify import find_recordings, verify_file

    return [verify_file(path) for path in find_recordings([Path(path) for path in paths])]


def _loaded(config: ConfigLike) -> LoadedConfig:
    """A configuration as the raw mapping that a sweep changes."""
    from sim.config.errors import Places

    if isinstance(config, str | Path):
        return read_config(config)
    if isinstance(config, ExperimentConfig):
        data = config.model_dump(mode="json", exclude_unset=True)
    else:
        config_from_mapping({key: value for key, value in config.items() if key != "sweep"})
        data = dict(config)
    return LoadedConfig(data, Places())


def _figures(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The top-level figures of a summary as text."""
    rows = []
    for name, value in summary.items():
        if isinstance(value, bool | str) or value is None or name in ("definitions", "notes"):
            continue
        if isinstance(value, int):
            rows.append((name, f"{value:,}"))
        elif isinstance(value, float):
            rows.append((name, f"{value:.4g}"))
    return rows


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"
