"""Runs a sweep: what is not finished yet, wherever it is to run, and then the table of points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sim.errors import ResultsError
from sim.sweeps.expand import Point, Sweep
from sim.sweeps.folder import finished_test, sweep_folder, version
from sim.sweeps.shared import SharedWorkloads
from sim.sweeps.table import write_about, write_table
from sim.sweeps.workers import Task, outcomes

Progress = Callable[[int, int], None]


def run_sweep(
    sweep: Sweep,
    *,
    out: str | Path = "results",
    jobs: int = 1,
    resume: bool = False,
    continue_on_error: bool = False,
    overwrite: bool = False,
    dask: str | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> Path:
    """Run all points and write the table of points.

    Args:
        sweep: from `expand`.
        out: the results folder; the sweep's own is ``out/<name>``, a folder a point in it.
        jobs: processes; 1 runs in this one.
        resume: leave points alone that are finished already.
        continue_on_error: record a point's error and go on; else the first one ends the sweep.
        overwrite: replace results of another version and damaged tables.
        dask: ``local`` for a cluster of `jobs` workers on this machine, or the address of one; its
            workers must see the current folder and `out` under the same paths.
        progress: called with the numbers of points done and failed, first with those done already.
        command: how the sweep was started, for the manifests.

    Returns:
        The sweep's folder.

    Raises:
        ResultsError: a point failed (after the table was written), or something stands in the folder
            that must not be replaced, or another sweep writes there.
        ConfigError: no Dask cluster is to be had.
    """
    root = Path(out).absolute()
    with sweep_folder(root / sweep.name, sweep, overwrite=overwrite) as folder:
        finished = finished_test()
        done = {point.number for point in sweep.points if resume and finished(folder / point.folder, point.config)}
        errors: dict[int, str] = {}
        advance = progress or (lambda done, failed: None)
        advance(len(done), 0)
        write_about(sweep, folder)
        pending = [point for point in sweep.points if point.number not in done]
        cwd = str(Path.cwd())
        with SharedWorkloads(pending, folder) as shared:

            def task_of(point: Point) -> Task:
                workload = shared.of(point)
                return Task(
                    point.number, point.config, str(root), point.folder, workload.folder, workload.error, command,
                    cwd, version(),
                )  # fmt: skip

            try:
                for outcome in outcomes(shared.order, task_of, jobs, dask):
                    shared.done(outcome.number)
                    if outcome.error is None:
                        done.add(outcome.number)
                    else:
                        errors[outcome.number] = outcome.error
                    advance(len(done) + len(errors), len(errors))
                    if errors and not continue_on_error:
                        break
            finally:
                write_table(sweep, folder, done, errors)
    if errors and not continue_on_error:
        number, error = next(iter(errors.items()))
        raise ResultsError(
            f"point {number} ({sweep.points[number].title}): {error}; {len(done)} of {len(sweep.points)} points "
            "are done, --resume goes on, --continue-on-error skips it"
        )
    return Path(out) / sweep.name
