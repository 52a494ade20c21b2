"""The folder of a run: built beside its place, moved there when it is whole.

``results/<experiment>/<run>.partial`` holds a run in the making; its manifest says `running`.  A
finished run is ``results/<experiment>/<run>``, whose manifest, written last, says `complete`.  So
nothing that was killed looks whole, and what stood there before stays until the new one is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import ResultsError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
IDENTITY = ("kvsim_version", "config_hash", "inputs")


class RunFolder:
    """Opens the partial folder of a run and, in the end, puts it in its place.

    Args:
        out: the results folder.
        name: the experiment's name.
        run: the run's name.
        manifest: what is known before the run; the keys of `IDENTITY` say what the run depends on.
        overwrite: replace a finished run that depends on something else.

    Raises:
        ResultsError: another run stands there (or is being written) that this one must not replace.
        OSError: the folder cannot be made.
    """

    def __init__(
        self, out: str | Path, name: str, run: str, manifest: Mapping[str, Any], *, overwrite: bool = False
    ) -> None:
        self.final = Path(out) / name / run
        self.path = self.final.with_name(run + ".partial")
        self.manifest: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "status": "running",
            **manifest,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        if not overwrite:
            self._refuse_to_replace()
        self._clear_partial()
        self.path.mkdir(parents=True)
        self._write_manifest()

    def _refuse_to_replace(self) -> None:
        if not self.final.exists():
            return
        there = read_manifest(self.final)
        if there is None:
            raise ResultsError(
                f"{self.final}: exists and is no run of kvsim; choose another --run-name or --out, or --overwrite it"
            )
        differing = [key for key in IDENTITY if there.get(key) != self.manifest.get(key)]
        if differing:
            shown = " and ".join(key.replace("_", " ").replace("kvsim version", "version") for key in differing)
            raise ResultsError(
                f"{self.final}: holds a run with another {shown}; choose another --run-name, or --overwrite it"
            )

    def _clear_partial(self) -> None:
        """Remove what a killed run has left, but neither a living run's nor a stranger's."""
        if not self.path.exists():
            return
        there = read_manifest(self.path)
        if there is None and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ResultsError(f"{self.path}: exists and is no run of kvsim; move it away")
        if there is not None and there.get("status") == "running" and _alive(there, self.manifest["host"]):
            raise ResultsError(f"{self.path}: process {there['pid']} is writing this run; wait for it or stop it")
        shutil.rmtree(self.path)

    def finish(self, summary: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
        """Write the summary and the last manifest, and put the folder in its place, which is returned."""
        write_json(self.path / "summary.json", summary)
        self.manifest |= facts
        self.manifest["status"] = "complete"
        del self.manifest["pid"], self.manifest["host"]
        self._write_manifest()
        if self.final.exists():
            old = self.final.with_name(self.final.name + ".old")
            if old.exists():
                shutil.rmtree(old)
            self.final.rename(old)
            self.path.rename(self.final)
            shutil.rmtree(old)
        else:
            self.path.rename(self.final)
        return self.final

    def fail(self, error: str, facts: Mapping[str, Any]) -> None:
        """Say in the partial folder that the run stopped, and why."""
        self.manifest |= facts
        self.manifest |= {"status": "failed", "error": error}
        del self.manifest["pid"], self.manifest["host"]
        # a folder that is gone or a full disk must not hide the error that is on its way
        with contextlib.suppress(OSError):
            self._write_manifest()

    def _write_manifest(self) -> None:
        write_json(self.path / MANIFEST, self.manifest)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a run folder; None when there is none that could be read."""
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON under a temporary name and rename it, so that it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json_text(data), encoding="utf-8")
    partial.replace(path)


def json_text(data: Mapping[str, Any]) -> str:
    """The JSON of a summary or manifest as it is written and printed."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def describe_input(path: str | Path) -> dict[str, Any]:
    """Path, size and SHA-256 of an input file (of a folder: of its files, by name)."""
    path = Path(path)
    digest = hashlib.sha256()
    size = 0
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(str(file.relative_to(path)).encode() + b"\0")
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    return {"path": str(path), "bytes": size, "sha256": digest.hexdigest()}


def _alive(manifest: Mapping[str, Any], host: str) -> bool:
    pid = manifest.get("pid")
    if manifest.get("host") != host or not isinstance(pid, int) or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
