"""The page `docs/results.md`: what a run writes, every column and every figure, from the tables that define them."""

from __future__ import annotations

from collections.abc import Iterable

from sim.recording.definitions import definitions
from sim.recording.miss_summary import miss_definitions
from sim.recording.schema import MEANINGS, TABLES, Column

_INTRO = """# Results of a run

<!-- Made by `kvsim schema --results`; change the definitions in the code, not this page. -->

`kvsim run` writes one folder, `results/<experiment>/<run>/`. The run's name is, unless `--run-name` gives
one, the first 12 digits of the hash of its resolved configuration: the same configuration has the same
folder. A run replaces a finished one only when configuration, version and input files (by content) are the
same, so that nothing can change, or with `--overwrite`.

| File | What |
|---|---|
| `manifest.json` | status, versions, kernels, seed, command, inputs with SHA-256, cost in time and memory, rows |
| `config.yaml` | the configuration as resolved, every default written out; `kvsim run` takes it |
| `summary.json` | the figures below, with their definitions; the same to the byte for the same configuration |
| `requests`, `steps`, `evictions`, `stalls` `.parquet` | the tables below, in row groups of 262,144 rows |
| `kv_events.jsonl` or `.msgpack` | KV events in vLLM's shape, when `recording.kv_events` asks for them |

While a run goes on, its folder is `<run>.partial`. A run that stops with an error (or by Ctrl-C or SIGTERM)
leaves it there with `"status": "failed"`, the reason, and what it had written as `<table>.partial.parquet`,
readable up to the last row. One that is killed leaves `"status": "running"` and `<table>.parquet.partial`
files without a footer, which no reader takes for a table. The next run of the same name clears both away.

All times are simulated seconds from the start of the workload; the manifest alone knows the wall clock.
Same configuration and seed: the same bytes in every table and in `summary.json`. The tables are the same
whichever implementation (`fast` or `reference`) decided; the summary says which it was, and the manifest whether
it had compiled kernels.

```python
from sim.recording.results import RunResult

run = RunResult("results/quickstart/…")
run.summary["hit_rate"]["tokens"], run.requests, run.table("steps", ["start_s", "kv_usage"])
```

## How a request ends

Every request of a workload has one row, and ends in one way: `finished` (reason `length`: it reached
`max_tokens` or `max_model_len`; `stop`: its answer ended before), `aborted` (its client lost patience),
`rejected` (it could never have been served; the reason has the numbers) or `cancelled` (the request that
it follows did not finish, so it was never sent). `request_index` counts arrivals; rows stand in order of ending.
"""


def results_page() -> str:
    """The page as Markdown."""
    lines = [_INTRO]
    for name, columns in TABLES.items():
        lines += [f"## Table `{name}`", "", MEANINGS[name][0].upper() + MEANINGS[name][1:] + ".", ""]
        lines += [*_column_rows(columns), ""]
    lines += ["## Figures of `summary.json`", "", "| Figure | Definition |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in definitions().items()]
    lines += [
        "",
        "With `recording.misses: true` also, see [misses.md](misses.md):",
        "",
        "| Figure | Definition |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in miss_definitions().items()]
    lines += [
        "",
        "Each entry of `latency` has count, mean, std, median, p90, p99 and max, in seconds, under the name of vLLM's",
        "metric; `benchmark` repeats them under the names of the result file of vLLM's serving benchmark.",
    ]
    return "\n".join(lines) + "\n"


def _column_rows(columns: Iterable[Column]) -> list[str]:
    rows = ["| Column | Type | Unit | Meaning |", "|---|---|---|---|"]
    for column in columns:
        kind = column.kind + (", may be null" if column.nullable else "")
        rows.append(f"| `{column.name}` | {kind} | {column.unit} | {_cell(column.meaning)} |")
    return rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
