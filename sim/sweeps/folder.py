"""The folder of a sweep: one sweep at a time writes there, and nothing strange or damaged is written over."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from sim.config import ExperimentConfig
from sim.config.load import config_hash
from sim.errors import ResultsError
from sim.recording.run_folder import FORMAT_VERSION, describe_input, read_manifest
from sim.sweeps.expand import Sweep
from workloads.load import TraceParams

TABLE = "points"
ABOUT = "sweep.json"
LOCK = ".lock"
WORKLOADS = ".workload-"


def version() -> str:
    """The version of kvsim that runs here."""
    return metadata.version("kvsim")


@contextlib.contextmanager
def sweep_folder(folder: Path, sweep: Sweep, *, overwrite: bool) -> Iterator[Path]:
    """Open a sweep's folder for writing; made when it is not there, checked when it is.

    Args:
        folder: where the sweep goes.
        sweep: its points, whose folders are looked at.
        overwrite: accept results of another version and damaged tables, which will be replaced.

    Raises:
        ResultsError: another process writes there, or something stands there that must not be replaced.
        OSError: the folder cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise ResultsError(f"{folder}: is a file; the sweep wants a folder of that name, choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        _refuse_to_replace(folder, sweep, overwrite)
        _wait_for_orphans(folder, sweep)
        for stale in folder.glob(f"{WORKLOADS}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield folder


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder; the system lets it go when this process ends, however it ends."""
    path = folder / LOCK
    with path.open("a+", encoding="utf-8") as file:
        try:
            import fcntl
        except ImportError:  # not on this system; sweeps in one folder at a time are up to the user there
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            who = file.read().strip() or "another"
            raise ResultsError(f"{folder}: a sweep (process {who}) is writing here; wait for it or stop it") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _refuse_to_replace(folder: Path, sweep: Sweep, overwrite: bool) -> None:
    """Raise `ResultsError` for what the sweep would replace without being asked to."""
    strange = [p.folder for p in sweep.points if _is_strange(folder / p.folder)]
    if strange:
        raise ResultsError(f"{folder / strange[0]}: exists and is no run of kvsim; move it away")
    if overwrite:
        return
    hint = "choose another --out, or --overwrite it"
    about = folder / ABOUT
    if about.exists():
        found = _about(about)
        if found is None:
            raise ResultsError(f"{about}: damaged, it is no JSON of a sweep; {hint}")
        there = (found.get("format_version"), found.get("kvsim_version"))
        if there != (FORMAT_VERSION, version()):
            raise ResultsError(
                f"{folder}: a sweep of kvsim {there[1]} (format {there[0]}), this is {version()} "
                f"(format {FORMAT_VERSION}); {hint}"
            )
    table = folder / f"{TABLE}.parquet"
    if table.exists() and (damage := _damage(table)):
        raise ResultsError(f"{table}: damaged ({damage}); {hint}")
    for point in sweep.points:
        manifest = read_manifest(folder / point.folder)
        if manifest is not None:
            there = (manifest.get("format_version"), manifest.get("kvsim_version"))
            if there != (FORMAT_VERSION, version()):
                raise ResultsError(
                    f"{folder / point.folder}: a run of kvsim {there[1]} (format {there[0]}), this is {version()} "
                    f"(format {FORMAT_VERSION}); {hint}"
                )


def _wait_for_orphans(folder: Path, sweep: Sweep, most_s: float = 20.0) -> None:
    """Wait for workers of a killed sweep, which notice at their next request that they work for nobody.

    One that stays is named when its point is to be written.
    """
    until = time.monotonic() + most_s
    while time.monotonic() < until and any(_is_written(folder / f"{p.folder}.partial") for p in sweep.points):
        time.sleep(0.05)


def _is_written(partial: Path) -> bool:
    """Whether another process of this machine is writing a run there."""
    manifest = read_manifest(partial) or {}
    pid: Any = manifest.get("pid")
    if manifest.get("status") != "running" or manifest.get("host") != socket.gethostname() or pid == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except (OSError, TypeError, ValueError):
        return False
    return True


def _is_strange(folder: Path) -> bool:
    """Whether something stands there that is no run."""
    if not folder.exists():
        return False
    return not folder.is_dir() or (read_manifest(folder) is None and any(folder.iterdir()))


def _about(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _damage(table: Path) -> str | None:
    """Why a Parquet file cannot be read; None when it can."""
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(table)
    except (OSError, ValueError) as error:  # pyarrow's errors are among these
        return (str(error).splitlines() or ["unreadable"])[0][:100]
    return None


def finished_test() -> Callable[[Path, ExperimentConfig], bool]:
    """Makes the test whether a folder holds the finished run of just this configuration, version and inputs.

    Each input file is read once.
    """
    inputs: dict[str, dict[str, Any]] = {}

    def described(config: ExperimentConfig) -> list[dict[str, Any]]:
        paths = [item.path for item in config.workload_items() if isinstance(item, TraceParams)]
        timing = getattr(config.timing, "path", None)
        for path in [*paths, *([timing] if timing else [])]:
            if path not in inputs:
                inputs[path] = describe_input(path)
        return [inputs[path] for path in [*paths, *([timing] if timing else [])]]

    def finished(folder: Path, config: ExperimentConfig) -> bool:
        manifest = read_manifest(folder)
        return (
            manifest is not None
            and manifest.get("format_version") == FORMAT_VERSION
            and manifest.get("status") == "complete"
            and manifest.get("config_hash") == config_hash(config)
            and manifest.get("kvsim_version") == version()
            and manifest.get("inputs") == described(config)
        )

    return finished
