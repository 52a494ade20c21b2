"""How the cost of the fast path grows: twice the requests, ten times the blocks in the pool.

    python benchmarks/growth.py [--rounds 9]

The three sizes take turns, because a machine's speed drifts; medians of the ratios within a round count.
"""

from __future__ import annotations

import argparse
import statistics
import time

from test_fast_speed import Counting, chats, serve

from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig

SIZES = {"base": (4000, 20_000), "twice the requests": (8000, 20_000), "ten times the blocks": (4000, 200_000)}


def seconds(requests: int, blocks: int) -> float:
    """How long it takes to serve so many chats with so many blocks."""
    config = SchedulerConfig(num_gpu_blocks=blocks, groups=(KVCacheGroup("full", 16),))
    specs = chats(requests)
    start = time.perf_counter()
    assert serve(config, specs, 0.04, Counting()) == requests
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = [[seconds(*size) for size in SIZES.values()] for _ in range(parser.parse_args().rounds)]
    for name, column in zip(SIZES, zip(*rounds, strict=True), strict=True):
        ratio = statistics.median(own / row[0] for own, row in zip(column, rounds, strict=True))
        print(f"{name:21} {statistics.median(column):6.2f} s, {ratio:.2f} times the base")


if __name__ == "__main__":
    main()
