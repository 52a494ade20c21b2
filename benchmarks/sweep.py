"""A sweep with two jobs against the same points run one by one in fresh processes.

    KVSIM_TRACES=… .venv/bin/python benchmarks/sweep.py [--requests 2000] [--jobs 2] [--out FILE]

4 block sizes × 6 budgets on the first requests of the Mooncake conversation trace.  Prints wall and
processor seconds of both, their ratio (the aim: at most 0.6), the most memory that a worker held (the
aim: under 2 GiB), and whether both ways came to the same figures; exit status 1 when they did not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACE = "mooncake_conversation_trace.jsonl.gz"
BLOCK_SIZES = (16, 32, 64, 128)
BUDGETS = ("20GiB", "40GiB", "60GiB", "80GiB", "120GiB", "160GiB")
KVSIM = [sys.executable, "-c", "from sim.cli.main import main; main()"]
RATIO, MEMORY_BYTES = 0.6, 2 << 30


def arguments(requests: int) -> list[str]:
    """What both ways are told."""
    folder = os.environ.get("KVSIM_TRACES")
    if not folder or not (Path(folder) / TRACE).is_file():
        sys.exit(f"set KVSIM_TRACES to the folder of {TRACE}")
    memory = "memory={model: llama-3.1-8b, kv_cache_memory: 20GiB}"
    return [str(ROOT / "configs" / "mooncake.yaml"), "--trace", str(Path(folder) / TRACE),
            "--set", f"workload.limit={requests}", "--set", memory, "-q"]  # fmt: skip


def timed(commands: list[list[str]]) -> tuple[float, float]:
    """Wall seconds and processor seconds (of all children) of commands run one after another."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, cwd=ROOT)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the figures as JSON here too")
    options = parser.parse_args()
    given = arguments(options.requests)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        axes = ["--sweep", f"engine.block_size={','.join(map(str, BLOCK_SIZES))}",
                "--sweep", f"memory.kv_cache_memory={','.join(BUDGETS)}"]  # fmt: skip
        singles = [
            [*KVSIM, "run", *given, "--set", f"engine.block_size={size}",
             "--set", f"memory.kv_cache_memory={budget}", "--out", f"{folder}/alone"]
            for size in BLOCK_SIZES
            for budget in BUDGETS
        ]  # fmt: skip
        # half of the single runs before and half after, so that a change in the machine's load tells less
        first, first_cpu = timed(singles[::2])
        swept, swept_cpu = timed(
            [[*KVSIM, "sweep", *given, *axes, "--jobs", str(options.jobs), "--out", f"{folder}/sweep"]]
        )
        second, second_cpu = timed(singles[1::2])
        alone, alone_cpu = first + second, first_cpu + second_cpu
        runs = sorted(Path(folder, "sweep", "mooncake").glob("*/manifest.json"))
        peak = max(json.loads(run.read_text())["peak_memory_bytes"] for run in runs)
        same = len(runs) == len(BLOCK_SIZES) * len(BUDGETS) and all(
            (run.parent / "summary.json").read_bytes()
            == Path(folder, "alone", "mooncake", run.parent.name, "summary.json").read_bytes()
            for run in runs
        )
    figures = {
        "points": len(runs),
        "requests": options.requests,
        "jobs": options.jobs,
        "cpus": os.cpu_count(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "sweep_wall_s": round(swept, 2),
        "alone_wall_s": round(alone, 2),
        "wall_ratio": round(swept / alone, 3),
        "sweep_processor_s": round(swept_cpu, 2),
        "alone_processor_s": round(alone_cpu, 2),
        "processor_ratio": round(swept_cpu / alone_cpu, 3),
        "worker_peak_memory_bytes": peak,
        "same_figures": same,
        "reached": swept / alone <= RATIO and peak < MEMORY_BYTES and same,
    }
    text = json.dumps(figures, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
