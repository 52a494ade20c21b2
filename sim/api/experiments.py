"""Experiments: load, run, sweep, open results, write reports, compare, verify."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.api.results import Comparison, RunResults, SweepResults
from sim.config import ExperimentConfig
from sim.config.checks import cross_faults
from sim.config.errors import ConfigFaults, Places
from sim.config.load import LoadedConfig, config_from_mapping, load_config, read_config, resolved_yaml
from sim.config.overrides import Override, apply_overrides
from sim.config.yaml_io import parse_yaml

if TYPE_CHECKING:
    import pandas as pd

ConfigLike = ExperimentConfig | Mapping[str, Any] | str | Path
MOST_POINTS = 1000


def load(
    path: str | Path, *overrides: str, trace: str | Path | None = None, serve: str | None = None
) -> ExperimentConfig:
    """Read and validate a configuration.

    Args:
        path: the YAML file.
        overrides: texts such as ``"engine.block_size=32"``, as after ``--set``.
        trace: the file of its workload of kind `trace`.
        serve: a ``vllm serve …`` command line that sets engine and memory.

    Raises:
        ConfigError: one line for every fault.
    """
    return load_config(path, overrides, trace=None if trace is None else str(trace), serve=serve)


def run(
    config: ConfigLike,
    *,
    changes: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
    progress: bool = False,
    out: str | Path = "results",
    **options: Any,
) -> RunResults:
    """Run one experiment.

    Args:
        config: a path, a mapping as in YAML, or an `ExperimentConfig`.
        changes: configuration path → value, such as ``{"engine.block_size": 32}``.
        trace: the file of its workload of kind `trace`.
        progress: show a bar.
        out: the results folder; the run's own is ``out/NAME/HASH``.
        options: further ones of `sim.experiment.run`: `run_name`, `overwrite`, `check_invariants`.

    Returns:
        The results, also on disk.

    Raises:
        ConfigError, WorkloadError, ResultsError: as `sim.experiment.run`.
    """
    from sim.experiment import run as run_experiment

    loaded = _loaded(config, changes, trace)
    checked = config_from_mapping(loaded.data, loaded.places)
    return RunResults(run_experiment(checked, progress=progress, out=out, **options).path)


def sweep(
    config: ConfigLike,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    trace: str | Path | None = None,
    progress: bool = False,
    out: str | Path = "results",
    jobs: int = 1,
    yes: bool = False,
    **options: Any,
) -> SweepResults:
    """Run every point of a sweep.

    Args:
        config: a path, a mapping as in YAML, or an `ExperimentConfig`; its `sweep:` says what varies.
        axes: more of it: configuration path → values; one that `sweep:` has as well is replaced.
        changes: configuration path → value, for every point.
        trace: the file of its workload of kind `trace`.
        progress: show one bar over all points.
        out: the results folder; the sweep's own is ``out/NAME``.
        jobs: processes.
        yes: run more than 1,000 points.
        options: further ones of `sim.sweeps.run.run_sweep`: `resume`, `continue_on_error`, `overwrite`, `dask`.

    Raises:
        ConfigError: a fault of any point, before the first one runs.
        ResultsError: a point failed, or the folder holds what must not be replaced.
    """
    from sim.sweeps.expand import expand
    from sim.sweeps.progress import SweepBar
    from sim.sweeps.run import run_sweep

    loaded = _loaded(config, changes, trace)
    if axes:
        section = dict(loaded.data.get("sweep") or {})
        section["grid"] = dict(section.get("grid") or {}) | {path: list(values) for path, values in axes.items()}
        loaded.data["sweep"] = section
    points = expand(loaded, most_points=None if yes else MOST_POINTS)
    with SweepBar(len(points.points), shown=progress) as bar:
        folder = run_sweep(points, out=out, jobs=jobs, progress=bar, **options)
    return SweepResults(folder)


def open_results(path: str | Path) -> RunResults | SweepResults:
    """The results in a folder: of a run, of a sweep, or of the only run in it.

    Raises `ResultsError` when there are none, or they are damaged or of another version.
    """
    from sim.report.folder import ResultsFolder

    found = ResultsFolder(path)
    return SweepResults(found.path) if found.kind == "sweep" else RunResults(found.path)


def write_report(
    path: str | Path, output: str | Path | None = None, *, goal: str | None = None, where: Sequence[str] = ()
) -> Path:
    """Write the HTML report of a run or sweep and return its path; see `sim.report.build.write_report`."""
    from sim.report import build

    return build.write_report(path, output, goal=goal, constraints=where)


def compare(runs: Sequence[str | Path | RunResults]) -> Comparison:
    """Two runs or more side by side.  Raises `ResultsError` for fewer, or for a folder that is no run."""
    from sim.report.comparison import compare as compare_folders

    return Comparison(compare_folders([run.path if isinstance(run, RunResults) else run for run in runs]))


def verify(paths: str | Path | Iterable[str | Path], *, engine: str = "reference") -> pd.DataFrame:
    """Replay recordings of the reference and compare every field of every step.

    Args:
        paths: files or folders of recordings.
        engine: ``reference`` or ``fast``, which code path replays the steps.

    Returns:
        A row a recording: path, kind, how much was compared, and the first difference (None: all equal).

    Raises:
        RecordingError: one cannot be read.
    """
    import pandas as pd

    from sim.parity.players import ReferencePlayer
    from sim.parity.verify import find_recordings, verify_file

    player: Any = ReferencePlayer
    if engine == "fast":
        from importlib import import_module

        player = import_module("sim.parity.fast_player").FastPlayer
    elif engine != "reference":
        raise ValueError(f"engine must be reference or fast, not {engine!r}")
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    rows = []
    for path in find_recordings([Path(one) for one in given]):
        found = verify_file(path, player)
        difference = None if found.difference is None else str(found.difference)
        rows.append((str(path), found.kind, found.compared, difference))
    return pd.DataFrame(rows, columns=["path", "kind", "compared", "difference"])


def _loaded(config: ConfigLike, changes: Mapping[str, Any] | None, trace: str | Path | None) -> LoadedConfig:
    """A configuration as a raw mapping with the changes made."""
    file = None if trace is None else str(trace)
    if isinstance(config, str | Path):
        loaded = read_config(config, trace=file)
    elif isinstance(config, ExperimentConfig):
        places = Places()
        if lines := cross_faults(config, places):
            raise ConfigFaults(lines)
        loaded = LoadedConfig(parse_yaml(resolved_yaml(config), "").data, places)
    else:
        loaded = LoadedConfig(dict(config), Places())
    data = apply_overrides(loaded.data, [_change(path, value) for path, value in (changes or {}).items()])
    if file is not None and not isinstance(config, str | Path):
        data = apply_overrides(data, [_change("workload.path", file)])
    return LoadedConfig(data, loaded.places)


def _change(path: str, value: Any) -> Override:
    keys = tuple(int(part) if part.isdecimal() else part for part in path.split("."))
    return Override(keys, value, f"{path}={value}")
