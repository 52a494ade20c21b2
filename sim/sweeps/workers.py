"""Where points run: in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.config import ExperimentConfig
from sim.errors import ConfigError
from sim.sweeps.expand import Point
from sim.sweeps.folder import finished_test, version
from sim.sweeps.shared import one_line

CONNECT_S = 10.0  # how long to wait for a scheduler, and for its first worker
TRIES = 3  # of points whose worker died; in the last one each runs alone


class Task(NamedTuple):
    """What a worker needs of a point; paths are absolute, or relative to `cwd`."""

    number: int
    config: ExperimentConfig
    out: str
    folder: str
    workload: str | None
    workload_error: str | None
    command: str
    cwd: str
    kvsim_version: str
    parent: int | None = None
    again: bool = False


class Outcome(NamedTuple):
    """How a point ended: `error` is None when it finished."""

    number: int
    error: str | None


def run_point(task: Task) -> Outcome:
    """Run one point; whatever goes wrong is its error, in one line."""
    if task.workload_error is not None:
        return Outcome(task.number, task.workload_error)
    try:
        from sim.experiment import run
        from workloads.packed import PackedWorkload

        if task.kvsim_version != version():
            return Outcome(task.number, f"its worker has kvsim {version()}, the sweep was started by another")
        if Path.cwd() != Path(task.cwd):
            os.chdir(task.cwd)
        target = Path(task.out) / task.config.name / task.folder
        if task.again and finished_test()(target, task.config):
            return Outcome(task.number, None)  # by a worker that died later
        run(
            task.config,
            out=task.out,
            run_name=task.folder,
            overwrite=True,
            command=task.command,
            workload=PackedWorkload(Path(task.workload)) if task.workload is not None else None,
            progress=_end_with(task.parent) if task.parent is not None else False,
        )
    except Exception as error:  # a point's fault must not take the sweep with it
        return Outcome(task.number, one_line(error))
    return Outcome(task.number, None)


def _end_with(parent: int) -> Any:
    """A function that ends this process at the next request when `parent` is gone, lest it works for nobody."""

    def check(ended: int, total: int | None, now_s: float) -> None:
        if os.getppid() != parent:
            os._exit(1)

    return check


def outcomes(
    points: Sequence[Point], task_of: Callable[[Point], Task], jobs: int, dask: str | None
) -> Iterator[Outcome]:
    """The outcomes as they come.

    A task is made when a worker will soon be free for it.  A worker that dies costs the points that were
    running a retry.  In the last try each point runs alone, so that one which always takes its worker with
    it is found, and only that one fails.
    """
    if dask is None and jobs == 1:
        yield from (run_point(task_of(point)) for point in points)
        return
    left = {point.number: point for point in points}
    with _cluster(dask, jobs):
        for attempt in range(TRIES - 1):
            try:
                tasks = (task_of(point)._replace(again=attempt > 0) for point in list(left.values()))
                for outcome in _parallel(tasks, jobs, dask):
                    del left[outcome.number]
                    yield outcome
                return
            except _worker_deaths():
                continue
        for number, point in left.items():
            try:
                yield from _parallel(iter([task_of(point)._replace(again=True)]), max(jobs, 2), dask)
            except _worker_deaths():
                yield Outcome(number, f"its worker died in each of {TRIES} tries; maybe it ran out of memory")


def _worker_deaths() -> tuple[type[BaseException], ...]:
    """What joblib's back ends raise when a worker process is gone."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        from distributed.scheduler import KilledWorker
    except ImportError:
        return (TerminatedWorkerError,)
    return (TerminatedWorkerError, KilledWorker)


def _parallel(tasks: Iterator[Task], jobs: int, dask: str | None) -> Iterator[Outcome]:
    from joblib import Parallel, delayed, parallel_config

    if dask is None:
        here = os.getpid()
        with warnings.catch_warnings():
            # leaving a sweep at its first failed point cancels what was queued, as meant
            warnings.filterwarnings("ignore", message=".*tasks which were still being processed.*")
            yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
                delayed(run_point)(task._replace(parent=here)) for task in tasks
            )
        return
    with parallel_config(backend="dask"):
        yield from Parallel(return_as="generator_unordered", batch_size=1)(delayed(run_point)(task) for task in tasks)


@contextlib.contextmanager
def _cluster(address: str | None, jobs: int) -> Iterator[None]:
    """A Dask client for as long as the sweep runs; nothing when none is asked for."""
    if address is None:
        yield
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ConfigError("--dask needs the package dask (pip install 'kvsim[dask]')") from None
    if address == "local":
        quiet = logging.CRITICAL  # a worker that dies is dealt with, one that is left behind as well
        with _deaf_to_interrupts():
            cluster = LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs=quiet
            )
        with cluster, Client(cluster):  # type: ignore[no-untyped-call]
            yield
        return
    try:
        client = Client(address, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"--dask {address}: no Dask scheduler answers there: {reason}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            raise ConfigError(
                f"--dask {address}: the scheduler has no worker; start some (dask worker ADDRESS)"
            ) from None
        yield


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within ignore Ctrl-C; it is for the one that started them to end them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
