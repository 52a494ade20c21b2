"""Runs the points of a sweep, in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.config.load import config_from_mapping
from sim.core.cache_groups import hash_block_size
from sim.errors import ConfigError, ResultsError
from sim.sweeps.expand import Point, Sweep
from sim.sweeps.table import finished, write_table

RETRIES = 2  # of points whose worker died

Progress = Callable[[int], None]


class Task(NamedTuple):
    """What a worker needs of a point: plain values, so that any process can take it."""

    number: int
    config: dict[str, Any]
    out: str
    folder: str
    workload: str | None
    command: str


class Outcome(NamedTuple):
    """How a point ended: `error` is None when it finished."""

    number: int
    error: str | None


def run_point(task: Task) -> Outcome:
    """Run one point; whatever goes wrong is its error, in one line."""
    from sim.experiment import run
    from workloads.packed import PackedWorkload

    try:
        packed = PackedWorkload(Path(task.workload)) if task.workload is not None else None
        run(
            config_from_mapping(task.config),
            out=task.out,
            run_name=task.folder,
            overwrite=True,
            command=task.command,
            workload=packed,
        )
    except Exception as error:  # a point's fault must not take the sweep with it
        text = str(error).strip().replace("\n", "; ") or repr(error)
        return Outcome(task.number, f"{type(error).__name__}: {text}")
    return Outcome(task.number, None)


def run_sweep(
    sweep: Sweep,
    *,
    out: str | Path = "results",
    jobs: int = 1,
    resume: bool = False,
    continue_on_error: bool = False,
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
        dask: ``local`` for a cluster of `jobs` workers on this machine, or the address of one; its
            workers must see `out` under the same path.
        progress: called with the number of points done, first with those that were done already.
        command: how the sweep was started, for the manifests.

    Returns:
        The sweep's folder.

    Raises:
        ResultsError: a point failed (after the table was written), or the folder holds something else.
    """
    folder = Path(out).absolute() / sweep.name
    folder.mkdir(parents=True, exist_ok=True)
    done = {point.number for point in sweep.points if resume and finished(folder / point.folder, point.config)}
    pending = [point for point in sweep.points if point.number not in done]
    errors: dict[int, str] = {}
    if progress is not None:
        progress(len(done))
    with _shared_workloads(pending, folder) as shared:
        tasks = {
            point.number: Task(
                point.number,
                point.config.model_dump(mode="json", exclude_unset=True),
                str(out),
                point.folder,
                shared[point.number],
                command,
            )
            for point in pending
        }
        try:
            for outcome in _outcomes(tasks, jobs, dask):
                done.add(outcome.number)
                if outcome.error is not None:
                    errors[outcome.number] = outcome.error
                    if not continue_on_error:
                        break
                if progress is not None:
                    progress(len(done))
        finally:
            write_table(sweep, folder, errors)
    if errors and not continue_on_error:
        number, error = next(iter(errors.items()))
        raise ResultsError(
            f"point {number} ({_named(sweep.points[number])}): {error}; "
            f"{len(done) - 1} of {len(sweep.points)} points are done, --resume goes on, --continue-on-error skips it"
        )
    return folder


def _named(point: Point) -> str:
    return ", ".join(f"{path}={value}" for path, value in point.parameters.items())


@contextlib.contextmanager
def _shared_workloads(points: Sequence[Point], folder: Path) -> Iterator[dict[int, str | None]]:
    """The packed workload of each point, made once for all that share it, gone afterwards."""
    from sim.config.resolve import resolve
    from workloads.load import open_workload
    from workloads.packed import pack

    groups: dict[str, list[Point]] = {}
    sizes: dict[str, set[int]] = {}
    lengths: dict[str, int] = {}
    for point in points:
        scheduler = resolve(point.config).scheduler
        items = [item.model_dump(mode="json") for item in point.config.workload_items()]
        text = json.dumps([items, point.config.seed, scheduler.max_model_len], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        groups.setdefault(key, []).append(point)
        lengths[key] = scheduler.max_model_len
        if scheduler.enable_prefix_caching:
            sizes.setdefault(key, set()).add(hash_block_size(scheduler.groups))
    where: dict[int, str | None] = {}
    made: list[Path] = []
    try:
        for key, members in groups.items():
            path: Path | None = None
            if len(members) > 1:
                path = folder / f".workload-{key}"
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                made.append(path)
                config = members[0].config
                workload = open_workload(config.workload_items(), config.seed, max_model_len=lengths[key])
                pack(workload, path, sorted(sizes.get(key, ())))
            where |= {point.number: str(path) if path is not None else None for point in members}
        yield where
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def _outcomes(tasks: dict[int, Task], jobs: int, dask: str | None) -> Iterator[Outcome]:
    """The outcomes as they come; a point whose worker died is tried again, `RETRIES` times."""
    if dask is None and jobs == 1:
        yield from map(run_point, tasks.values())
        return
    left = dict(tasks)
    for attempt in range(RETRIES + 1):
        try:
            for outcome in _parallel(list(left.values()), jobs, dask):
                del left[outcome.number]
                yield outcome
            return
        except _worker_deaths() as error:
            if attempt == RETRIES:
                reason = f"its worker died {RETRIES + 1} times: {str(error).splitlines()[0]}"
                yield from (Outcome(number, reason) for number in left)
                return


def _worker_deaths() -> tuple[type[BaseException], ...]:
    """What joblib's back ends raise when a worker process is gone."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        return (TerminatedWorkerError,)
    return (TerminatedWorkerError, KilledWorker)


def _parallel(tasks: list[Task], jobs: int, dask: str | None) -> Iterator[Outcome]:
    from joblib import Parallel, delayed, parallel_config

    if dask is None:
        with warnings.catch_warnings():
            # leaving a sweep at its first failed point cancels what was queued, as meant
            warnings.filterwarnings("ignore", message=".*tasks which were still being processed.*")
            yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
                delayed(run_point)(task) for task in tasks
            )
        return
    with _dask_client(dask, jobs), parallel_config(backend="dask"):
        yield from Parallel(return_as="generator_unordered")(delayed(run_point)(task) for task in tasks)


@contextlib.contextmanager
def _dask_client(address: str, jobs: int) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ConfigError("--dask needs the package dask (pip install 'kvsim[dask]')") from None
    if address != "local":
        try:
            client = Client(address, timeout="10s")  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise ConfigError(f"--dask {address}: no Dask scheduler answers there: {error}") from None
        with client:
            yield client
        return
    with (
        LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        yield client
