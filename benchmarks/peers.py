"""kvsim beside other simulators on one trace, process against process.

    python benchmarks/peers.py TRACE [--dynamo PYTHON] [--ourselves] [--rounds 5] [--blocks 262144]
                               [--set engine.KEY=VALUE …]

Installs nothing: `--dynamo` names a Python that has `ai-dynamo` (its offline replay is run), and without it
kvsim runs alone.  `--ourselves` adds kvsim without recording steps and evictions, and kvsim without its
compiled kernels.  Rounds alternate between the peers, in rotating order; medians count.  Wall time is what
counts on a quiet machine; processor time is shown beside it because it says more on a busy one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Cost(NamedTuple):
    """What one process took."""

    wall_s: float
    processor_s: float
    memory_mib: float


class Run(NamedTuple):
    """What to run, and what to add to the environment."""

    command: list[str]
    environment: dict[str, str]


def measure(run: Run, folder: Path) -> Cost:
    """Run a command to its end.  Raises `SystemExit` with the end of its output when it fails."""
    with (folder / "output.txt").open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            run.command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=os.environ | run.environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(run.command)}\n{(folder / 'output.txt').read_text()[-2000:]}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def kvsim_command(trace: Path, blocks: int, settings: list[str], folder: Path) -> list[str]:
    """The shipped configuration over a whole trace."""
    command = [str(Path(sys.executable).parent / "kvsim"), "run", str(ROOT / "configs" / "mooncake.yaml")]
    command += ["--trace", str(trace), "--out", str(folder / "results")]
    for setting in [f"memory.num_gpu_blocks={blocks}", *settings]:
        command += ["--set", setting]
    return command


def dynamo_command(python: str, trace: Path, blocks: int) -> list[str]:
    """Dynamo's offline replay of the same trace."""
    engine = json.dumps({"block_size": 16, "num_gpu_blocks": blocks})
    return [
        python, "-m", "dynamo.replay", str(trace), "--trace-block-size", "512", "--replay-mode", "offline",
        "--num-workers", "1", "--extra-engine-args", engine, "--report-json", "report.json",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--dynamo", metavar="PYTHON")
    parser.add_argument("--ourselves", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=262_144)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    trace = arguments.trace.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours = kvsim_command(trace, arguments.blocks, arguments.settings, folder)
        runs = {"kvsim": Run(ours, {})}
        if arguments.ourselves:
            plain_recording = ["--set", "recording.steps=false", "--set", "recording.evictions=false"]
            runs["requests only"] = Run(ours + plain_recording, {})
            runs["no kernels"] = Run(ours, {"KVSIM_KERNEL": "off"})
        if arguments.dynamo:
            plain = folder / "trace.jsonl"
            if trace.suffix == ".gz":
                with gzip.open(trace, "rb") as packed, plain.open("wb") as target:
                    shutil.copyfileobj(packed, target)
            else:
                shutil.copyfile(trace, plain)
            runs["dynamo"] = Run(dynamo_command(arguments.dynamo, plain, arguments.blocks), {})
        else:
            print("no --dynamo: kvsim runs alone", file=sys.stderr)
        costs: dict[str, list[Cost]] = {name: [] for name in runs}
        for number in range(arguments.rounds):
            order = deque(runs.items())
            order.rotate(-number)  # who comes first, or behind whom, must not matter
            for name, run in order:
                shutil.rmtree(folder / "results", ignore_errors=True)
                costs[name].append(measure(run, folder))
    print(f"{'':13} {'wall s':>8} {'processor s':>12} {'memory MiB':>11}   medians of {arguments.rounds}")
    medians = {
        name: Cost(*(statistics.median(column) for column in zip(*rows, strict=True))) for name, rows in costs.items()
    }
    for name, cost in medians.items():
        print(f"{name:13} {cost.wall_s:8.2f} {cost.processor_s:12.2f} {cost.memory_mib:11.0f}")
    for name in list(medians)[1:]:
        ratio = [other / own for other, own in zip(medians[name], medians["kvsim"], strict=True)]
        print(f"{name} / kvsim: {ratio[0]:.2f} by wall time, {ratio[1]:.2f} by processor time")


if __name__ == "__main__":
    main()
