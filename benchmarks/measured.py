"""Public measurements of real engines, one CSV row each, as what kvsim would need to predict them.

The file is not part of the project; its columns are source, gpu, num_gpus, model, dtype,
engine_and_version, kind, batch_or_concurrency, prompt_tokens, context_tokens, output_tokens, value,
unit and conditions, where `conditions` opens with a tier (A best, B good, P predicted by a peer).
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from sim.core.kv_cache_spec import PlanningError
from sim.timing.catalog import find_gpu, find_model
from sim.timing.gpus import GpuSpec
from sim.timing.models import ModelSpec, weight_format
from sim.timing.roofline import RooflineStepTime


@dataclass(frozen=True)
class Measured:
    """One measurement: what ran where, and how long it took.  Lengths are tokens, None where not stated."""

    kind: str
    model: ModelSpec
    gpu: GpuSpec
    tensor_parallel_size: int
    data_parallel_size: int
    dtype: str
    batch: float | None
    prompt: int | None
    context: float | None  # per request
    context_total: float | None  # over the batch
    output: int | None
    seconds: float
    ttft_s: float | None
    engine: str
    conditions: str

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model."""
        return self.gpu.name, self.model.name.split("/")[-1]

    def step_time(self) -> RooflineStepTime:
        """The roofline with default efficiencies for this row."""
        return RooflineStepTime(
            self.model,
            self.gpu,
            tensor_parallel_size=self.tensor_parallel_size,
            data_parallel_size=self.data_parallel_size,
            dtype=self.dtype,
        )


def read_measurements(path: Path) -> tuple[list[Measured], Counter[str]]:
    """The rows of tiers A and B that kvsim can predict, and how many are left out for which reason."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    ttft = {_situation(row): float(row["value"]) / 1e3 for row in rows if row["kind"] == "ttft"}
    left_out: Counter[str] = Counter()
    found = []
    for row in rows:
        if row["kind"] not in ("decode_step", "itl", "tpot", "kernel"):
            continue
        if not re.match(r"tier=[AB]", row["conditions"]):
            left_out["predicted by a peer, not measured"] += 1
        elif row["model"] == "-":
            left_out["not a whole model (one all-reduce)"] += 1
        else:
            try:
                found.append(_measured(row, ttft.get(_situation(row))))
            except PlanningError as error:
                left_out[str(error).split(":")[0]] += 1
    return _with_contexts(found, left_out), left_out


def _situation(row: dict[str, str]) -> tuple[str, ...]:
    names = ("source", "gpu", "num_gpus", "model", "dtype", "engine_and_version", "batch_or_concurrency")
    return (*(row[name] for name in names), row["prompt_tokens"], row["output_tokens"], row["conditions"])


def _measured(row: dict[str, str], ttft_s: float | None) -> Measured:
    model, gpu, conditions = find_model(row["model"]), find_gpu(row["gpu"]), row["conditions"]
    gpus = int(row["num_gpus"])
    tensor, data = gpus, 1
    if "DP2+EP" in conditions:
        tensor, data = gpus // 2, 2
    elif model.moe and (shards := re.search(r"moe_tp(\d+) moe_ep(\d+)", conditions)):
        data = max(int(shards[1]) * int(shards[2]) // tensor, 1)  # experts over more GPUs than attention
    dtype = weight_format(row["dtype"])
    if dtype == "fp4" and model.weights == "mxfp4":
        dtype = "mxfp4"
    batch = _number(row["batch_or_concurrency"])
    context, output = _number(row["context_tokens"]), _number(row["output_tokens"])
    stated = re.search(r"mean KV tokens in batch (\d+)", conditions)
    total = float(stated[1]) if stated else batch * context if batch and context else None
    return Measured(
        row["kind"],
        model,
        gpu,
        tensor,
        data,
        dtype,
        batch,
        None if (prompt := _number(row["prompt_tokens"])) is None else int(prompt),
        context,
        total,
        None if output is None else int(output),
        float(row["value"]) / 1e3,
        ttft_s,
        row["engine_and_version"],
        conditions,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _with_contexts(rows: list[Measured], left_out: Counter[str]) -> list[Measured]:
    """Decode rows that state no context get the median of the same GPU, model and workload's rows that do."""
    kept = []
    for row in rows:
        if row.kind in ("decode_step", "itl"):
            if row.batch is None:
                left_out["no batch stated"] += 1
                continue
            if row.context_total is None and "closed loop" not in row.conditions:
                known = [o.context for o in rows if o.pair == row.pair and o.kind == row.kind and o.context]
                if not known:
                    left_out["no context stated"] += 1
                    continue
                row = replace(row, context_total=row.batch * statistics.median(known))
        kept.append(row)
    return kept
