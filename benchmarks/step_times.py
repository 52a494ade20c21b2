"""Compare the roofline's step times, with its default efficiencies, with public measurements.

    python benchmarks/step_times.py MEASUREMENTS.csv.gz [--closed-loop 60] [--figure docs/timing.png]

Decode steps and open-loop inter-token times are predicted directly, one step of the stated batch and
context each.  Sums of kernel times are compared with the roofline without the engine's own cost and
communication.  Closed-loop rows run through the whole simulator: that many clients, those lengths.
Nothing is fitted per row.  Prints Markdown; exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from measured import Measured, read_measurements

from sim.config import config_from_mapping
from sim.core.kv_cache_spec import PlanningError
from sim.experiment import simulate
from sim.timing.base import Batch
from sim.timing.memory import MemoryConfig, plan_memory

WAVES = 2  # requests that every client of a closed loop sends


class Compared(NamedTuple):
    """A row, what was predicted for it, and for closed loops the predicted time to first token."""

    row: Measured
    predicted_s: float
    predicted_ttft_s: float | None = None

    @property
    def error(self) -> float:
        """Predicted / measured − 1."""
        return self.predicted_s / self.row.seconds - 1

    @property
    def ttft_error(self) -> float | None:
        """The same of the time to first token, where both are known."""
        if self.predicted_ttft_s is None or not self.row.ttft_s:
            return None
        return self.predicted_ttft_s / self.row.ttft_s - 1


def decode_step(row: Measured) -> Compared:
    """One decode step; engines that share experts have an equal part of the batch each."""
    assert row.batch is not None
    assert row.context_total is not None
    share = row.data_parallel_size
    columns = dict.fromkeys(Batch._fields, 0.0)
    columns["decode_requests"], columns["context_tokens"] = row.batch / share, row.context_total / share
    return Compared(row, row.step_time().seconds(Batch(**columns)))


def kernel_sum(row: Measured) -> Compared:
    """Sums of kernel times: no engine, no communication; some leave out attention and the LM head."""
    model = row.step_time()
    left_out = {"engine", "communication"}
    batches: list[Batch] = []
    if tokens := re.search(r"num_tokens=(\d+)", row.conditions):
        left_out |= {"kv_reads", "prefill_attention", "lm_head"}
        batches = [Batch(prefill_tokens=int(tokens[1]))]
    elif "prefill" in row.conditions:
        chunk = 2048 if "chunks of 2048" in row.conditions else row.prompt or 1
        batches = [Batch.of([(min(chunk, (row.prompt or 1) - at), at)], []) for at in range(0, row.prompt or 1, chunk)]
    else:
        batches = [Batch(decode_requests=int(row.batch or 1), context_tokens=int(row.context_total or 0))]
    parts = [model.parts(batch) for batch in batches]
    return Compared(row, sum(seconds for part in parts for name, seconds in part.items() if name not in left_out))


def closed_loop(row: Measured) -> Compared:
    """Run the simulator: `batch` clients that each send `WAVES` requests of the stated lengths, one after another."""
    assert row.batch is not None
    assert row.prompt is not None
    assert row.output is not None
    clients = max(1, round(row.batch / row.data_parallel_size))
    memory: dict[str, object] = {
        "model": row.model.name,
        "gpu": row.gpu.name,
        "tensor_parallel_size": row.tensor_parallel_size,
        "dtype": row.dtype,
    }
    length = row.prompt + row.output + 1
    try:
        plan_memory(MemoryConfig.model_validate(memory), max_model_len=length)
    except PlanningError:
        # experts lie on more GPUs than the row counts: the weights don't fit one of them, but a cache does
        memory["kv_cache_memory"] = "30GiB"
    config = {
        "name": "closed-loop",
        "engine": {"max_model_len": length, "max_num_seqs": max(256, clients)},
        "memory": memory,
        "timing": {"kind": "roofline", "data_parallel_size": row.data_parallel_size},
        "recording": {"steps": False, "evictions": False},
        "workload": {
            "kind": "vllm_random",
            "input_tokens": row.prompt,
            "output_tokens": row.output,
            "requests": clients * WAVES,
            "arrivals": {"closed_loop": {"clients": clients}},
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        summary = simulate(config_from_mapping(config), Path(folder))
    figures = summary["benchmark"]
    return Compared(row, figures["mean_tpot_ms"] / 1e3, figures["mean_ttft_ms"] / 1e3)


def spread(rows: list[Measured], count: int) -> list[Measured]:
    """About `count` rows, an equal number of every (GPU, model) pair, evenly over its situations."""
    by_pair: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for row in rows:
        by_pair[row.pair].append(row)
    each = max(1, round(count / max(len(by_pair), 1)))
    chosen = []
    for pair in sorted(by_pair):
        group = sorted(
            by_pair[pair], key=lambda r: (r.tensor_parallel_size, r.batch or 0, r.prompt or 0, r.output or 0)
        )
        places = sorted({round(i * (len(group) - 1) / max(each - 1, 1)) for i in range(each)})
        chosen += [group[place] for place in places]
    return chosen


def median_error(compared: Iterable[Compared]) -> float:
    """Median absolute relative error."""
    return statistics.median(abs(item.error) for item in compared)


def table(title: str, compared: list[Compared], key: Callable[[Compared], tuple[str, ...]]) -> None:
    """Print one line per group: rows, median absolute error, median error, median error of TTFT."""
    groups: dict[tuple[str, ...], list[Compared]] = defaultdict(list)
    for item in compared:
        groups[key(item)].append(item)
    print(f"\n### {title}\n")
    ttft = any(item.ttft_error is not None for item in compared)
    print(f"| GPU | what | rows | median abs. error | median error |{' TTFT median error |' if ttft else ''}")
    print(f"|---|---|---:|---:|---:|{'---:|' if ttft else ''}")
    for name, items in sorted(groups.items()):
        line = f"| {name[0]} | {' '.join(name[1:])} | {len(items)} | {median_error(items):.1%} |"
        line += f" {statistics.median(item.error for item in items):+.1%} |"
        first = [item.ttft_error for item in items if item.ttft_error is not None]
        print(line + (f" {statistics.median(first):+.1%} |" if first else ""))


def figure(groups: dict[str, list[Compared]], path: Path) -> None:
    """Predicted against measured, both logarithmic, one panel per kind."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    drawn = {name: items for name, items in groups.items() if items}
    canvas = Figure(figsize=(4.6 * len(drawn), 4.8), layout="constrained")
    gpus = sorted({item.row.gpu.name for items in drawn.values() for item in items})
    for axes, (name, items) in zip(canvas.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True):
        for number, gpu in enumerate(gpus):
            points = [item for item in items if item.row.gpu.name == gpu]
            x, y = [p.row.seconds * 1e3 for p in points], [p.predicted_s * 1e3 for p in points]
            axes.plot(x, y, "o", markersize=3.5, alpha=0.6, color=f"C{number}", label=gpu if points else None)
        low = min(min(i.row.seconds, i.predicted_s) for i in items) * 0.8e3
        high = max(max(i.row.seconds, i.predicted_s) for i in items) * 1.25e3
        axes.plot([low, high], [low, high], color="0.3", linewidth=1)
        axes.fill_between([low, high], [low * 0.85, high * 0.85], [low * 1.15, high * 1.15], color="0.5", alpha=0.15)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="measured, ms")
        axes.set(ylabel="predicted, ms", title=f"{name} ({len(items)} rows, median {median_error(items):.0%} off)")
        axes.set_aspect("equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=7, loc="upper left")
    canvas.savefig(path, dpi=130, metadata={"Software": None})


def main() -> int:
    """Compare, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="?", default=os.environ.get("KVSIM_MEASUREMENTS"), help="CSV, may be .gz")
    parser.add_argument("--closed-loop", type=int, default=60, metavar="N", help="about this many simulated rows")
    parser.add_argument("--figure", type=Path, help="write a PNG")
    options = parser.parse_args()
    if options.measurements is None:
        parser.error("name the file of measurements, or set KVSIM_MEASUREMENTS")
    rows, left_out = read_measurements(Path(options.measurements))
    closed = [r for r in rows if re.search(r"closed[- ]loop", r.conditions) and r.kind == "tpot" and r.batch]
    # a wait longer than the whole answer: the engine ran fewer requests at once than there were clients
    queued = [r for r in closed if r.ttft_s and r.output and r.ttft_s > r.output * r.seconds]
    closed = [r for r in closed if r not in queued]
    left_out[
        "closed loop of an engine whose limit on running requests is not stated (TTFT above the answer's time)"
    ] = len(queued)
    open_steps = [r for r in rows if r.kind in ("decode_step", "itl") and "closed loop" not in r.conditions]
    decode = [decode_step(row) for row in open_steps]
    kernels = [kernel_sum(row) for row in rows if row.kind == "kernel"]
    prefill = [c for c in kernels if "prefill" in c.row.conditions or re.search(r"num_tokens=\d{3}", c.row.conditions)]
    loops = []
    for number, row in enumerate(chosen := spread(closed, options.closed_loop) if options.closed_loop else [], 1):
        print(f"closed loop {number}/{len(chosen)}: {' '.join(row.pair)}, {row.batch:g} clients", file=sys.stderr)
        loops.append(closed_loop(row))

    print(f"## Step times against measurements\n\n{len(rows)} rows can be predicted; left out:")
    for reason, count in left_out.most_common():
        print(f"- {count}: {reason}")
    table("Decode steps and open-loop inter-token times", decode, lambda c: (*c.row.pair, c.row.kind, _size(c.row)))
    table("Sums of kernel times", kernels, lambda c: (*c.row.pair, "prefill" if c in prefill else "decode"))
    if loops:
        table("Closed loops through the simulator (TPOT)", loops, lambda c: (*c.row.pair, c.row.dtype, c.row.engine))
    print("\n### Targets\n")
    met = [target("decode and inter-token times, all pairs", decode, 0.12)]
    for gpu in sorted({c.row.gpu.name for c in decode}):
        if len(group := [c for c in decode if c.row.gpu.name == gpu]) >= 10:
            met.append(target(f"the same on {gpu}", group, 0.25))
    if prefill:
        met.append(target("prefill kernel sums", prefill, 0.30))
        worst = max(prefill, key=lambda c: abs(c.error))
        print(f"  (the worst of them is {worst.error:+.1%} off)")
    if loops:
        met.append(target("closed-loop TPOT", loops, 0.15))
    if options.figure:
        figure({"decode steps": decode, "kernel sums": kernels, "closed-loop TPOT": loops}, options.figure)
    return 0 if all(met) else 1


def _size(row: Measured) -> str:
    return f"× {row.tensor_parallel_size * row.data_parallel_size}"


def target(name: str, compared: list[Compared], limit: float) -> bool:
    """Print one target and whether it is met."""
    error = median_error(compared)
    print(
        f"- {name}: {error:.1%} over {len(compared)} rows (target {limit:.0%}): {'met' if error <= limit else 'MISSED'}"
    )
    return error <= limit


if __name__ == "__main__":
    sys.exit(main())
