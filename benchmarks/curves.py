"""Capacity curves beside the public `kvcache-simulator`, process against process.

    python benchmarks/curves.py TRACE [--peer PATH_OF_kvcache-simulator] [--rounds 5]

Runs 13 capacities × (fifo, lru, belady) with kvsim, and the same capacities × (fifo, lru, optimal) with the
peer's C++ back end where it is given; both read the trace themselves.  Rounds alternate; medians count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

# the capacities that the peer derives from 1 GiB, 2 GiB, … 4 TiB for its model cohere-command-a-03-2025
BUDGETS_GIB = [2**power for power in range(13)]
CAPACITIES = [15, 31, 63, 126, 253, 506, 1013, 2026, 4053, 8106, 16213, 32427, 64854]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    kvsim = [str(Path(sys.executable).with_name("kvsim")), "curve", arguments.trace, "--json"]
    blocks = ["--blocks", ",".join(map(str, CAPACITIES))]
    cases = {
        "kvsim: lru, every capacity": [*kvsim, "--policies", "lru", "--blocks", "182790"],
        "kvsim: 13 × fifo, leaf_lru, belady": [*kvsim, "--policies", "fifo,leaf_lru,belady", *blocks],
        "kvsim: 13 × fifo, lru, belady": [*kvsim, "--policies", "fifo,lru,belady", *blocks],
        # the optimum is always computed; it is what the peer calls optimal
        "kvsim: 13 × fifo, lru, optimum": [*kvsim, "--policies", "fifo,lru", *blocks],
    }
    if arguments.peer:
        budgets = ",".join(map(str, BUDGETS_GIB))
        cases["peer (C++): 13 × fifo, lru, optimal"] = [
            arguments.peer, "run", "--trace", arguments.trace, "--model", "cohere-command-a-03-2025",
            "--block-size", "512", "--budgets-gib", budgets, "--format", "json", "--no-progress",
        ]  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(arguments.rounds):
        for name, command in cases.items():
            times[name].append(seconds(command))
    medians = {name: round(statistics.median(taken), 2) for name, taken in times.items()}
    print(json.dumps({"seconds": medians, "rounds": arguments.rounds}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
