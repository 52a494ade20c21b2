"""Workloads: inspect, convert, list, and the curve of hit rate over capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.api.results import shown, table_html
from sim.config import ExperimentConfig

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sim.analysis import inspection
    from sim.analysis.curves import CurveSet
    from workloads.log import ReadLog
    from workloads.spec import RequestSpec

Source = str | Path | Mapping[str, Any] | ExperimentConfig
DEFAULT_BLOCK_SIZE = 16
DEFAULT_POLICIES = ("lru", "lru_tail_first", "fifo")


class _Workload(NamedTuple):
    """A workload that can be read as often as needed, and the block size that suits it."""

    name: str
    specs: Callable[[], Iterator[RequestSpec]]
    log: ReadLog
    block_size: int
    seed: int


class Inspection:
    """What is in a workload: `result` has all numbers (nested), `why` says in words what hits and why not more."""

    def __init__(self, name: str, found: inspection.Inspection, log: ReadLog) -> None:
        self.name = name
        self.found = found
        self.log = log

    @property
    def result(self) -> dict[str, Any]:
        """Every number, under the names of ``kvsim workload inspect --json``."""
        return self.found.result

    @property
    def why(self) -> str:
        """What an infinite cache would hit, and what keeps it from more."""
        why = self.result["why"]
        return "\n".join([str(why["answer"]), *(str(cause["text"]) for cause in why["causes"])])

    @cached_property
    def largest_prefixes(self) -> pd.DataFrame:
        """The stretches of prompts that many requests share, by the tokens that sharing saves."""
        import pandas as pd

        return pd.DataFrame(self.result["largest_prefixes"])

    def report(self, folder: str | Path) -> Path:
        """Write a page of figures and its PNGs to a folder and return the page's path."""
        from sim.report.workload_page import write_workload_page

        log = {"lines": self.log.lines, "skipped": self.log.skipped, "counts": self.log.counts,
               "examples": self.log.examples, "warnings": self.log.warnings, "notes": self.log.notes}  # fmt: skip
        result = {"source": self.name, "workload": self.name, **self.result, "log": log}
        return write_workload_page(self.found, result, self.log, Path(folder))

    def _rows(self) -> list[tuple[str, str]]:
        result = self.result
        share = result["reuse"]["cold"]["tokens"]["share"]
        rows = [
            ("requests", result["requests"]),
            ("prompt tokens, mean", result["prompt_tokens"]["mean"]),
            ("output tokens, mean", result["output_tokens"]["mean"]),
            ("requests per second", result["arrivals"]["rate_per_s"]),
            ("prompt tokens seen before", share),
        ]
        return [(label, shown(value)) for label, value in rows if value is not None]

    def _repr_html_(self) -> str:
        return table_html(self.name, self._rows())

    def __repr__(self) -> str:
        return f"Inspection({self.name}: {', '.join(f'{label} {value}' for label, value in self._rows())})"


class Curves:
    """Hit rate over capacity: `table` (a row a policy and capacity), `needs`, `infinite`, and `plot()`."""

    def __init__(self, found: CurveSet) -> None:
        self.found = found

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per policy and capacity, with all hit rates."""
        import pandas as pd

        rows = [
            {"policy": curve.policy, "capacity_blocks": point.capacity_blocks,
             "capacity_tokens": point.capacity_blocks * self.found.block_size, **point.rates._asdict()}
            for curve in self.found.curves
            for point in curve.points
        ]  # fmt: skip
        return pd.DataFrame(rows)

    @cached_property
    def needs(self) -> pd.DataFrame:
        """The capacity at which each policy reaches a share of what the infinite cache hits."""
        import pandas as pd

        rows = [{"policy": curve.policy, **need._asdict()} for curve in self.found.curves for need in curve.needs]
        return pd.DataFrame(rows)

    @property
    def infinite(self) -> dict[str, Any]:
        """The rates of a cache that never evicts."""
        return self.found.infinite._asdict()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curves."""
        from sim.report.figures.curves import capacity_curves

        return capacity_curves(self.found, ax)

    def _repr_html_(self) -> str:
        wide = self.table.pivot(index="capacity_blocks", columns="policy", values="hit_rate")
        return str(wide._repr_html_())  # type: ignore[operator]

    def __repr__(self) -> str:
        from sim.analysis.curves_text import curve_lines

        return "\n".join(curve_lines(self.found))


def inspect(
    source: Source,
    *,
    block_size: int | None = None,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    skip_bad_lines: bool = False,
    limit: int | None = None,
    seed: int | None = None,
) -> Inspection:
    """Look into a workload: rates, lengths, prefix reuse, oddities, and why little hits.

    Args:
        source: a trace (file, plain or gzip, folder or .tgz), a YAML configuration, a mapping of one, or
            an `ExperimentConfig`.
        block_size: tokens of a block (default: the trace's own, or the configuration's).
        format, options, skip_bad_lines: how to read a trace; see docs/workloads.md.
        limit: only so many requests.
        seed: of what is generated (default: the configuration's, or 0).

    Raises:
        WorkloadError, ConfigError: it cannot be read.
    """
    from sim.analysis.inspection import inspect_workload

    found = _open(source, format, options, skip_bad_lines, limit, seed)
    return Inspection(found.name, inspect_workload(found.specs, block_size or found.block_size), found.log)


def convert(source: Source, target: str | Path, **reading: Any) -> int:
    """Write a workload in the native format (``.gz``: compressed) and return how many requests it has.

    `reading` are the keywords of `inspect` but for the block size.
    Raises as `inspect`; `ValueError` when source and target are one file.
    """
    from workloads.native import write_native

    path = Path(target)
    if isinstance(source, str | Path) and path.exists() and Path(source).exists() and path.samefile(source):
        raise ValueError(f"{target}: source and target are the same file; give the target another name")
    settings = {"format": "auto", "options": None, "skip_bad_lines": False, "limit": None, "seed": None} | reading
    return write_native(_open(source, **settings).specs(), path)


def curve(
    source: Source,
    policies: Sequence[str] = DEFAULT_POLICIES,
    blocks: Sequence[int] | None = None,
    *,
    block_size: int | None = None,
    full_blocks_only: bool = False,
    warmup: float = 0.0,
    seed: int | None = None,
    **reading: Any,
) -> Curves:
    """Hit rate of a cache over its capacity, cache only: requests one after another, no clock.

    Args:
        source: as for `inspect`, with its keywords in `reading`.
        policies: names; ``kvsim curve - --policies list`` lists them.  The optimum is always there.
        blocks: capacities (default: twelve, each twice the one before, up to all blocks).
        block_size: tokens of a block (default: the trace's own, or the configuration's).
        full_blocks_only: leave a prompt's partial last block out.
        warmup: share of the requests that fill the cache and are not counted.
        seed: for what is drawn at random.

    Raises:
        KvsimError, WorkloadError: an unknown policy, a capacity below 1, a workload that cannot be read.
    """
    from sim.analysis.accesses import accesses_from_specs
    from sim.analysis.curves import capacity_curves

    settings = {"format": "auto", "options": None, "skip_bad_lines": False, "limit": None} | reading
    found = _open(source, seed=seed, **settings)
    size = block_size or found.block_size
    accesses, _ = accesses_from_specs(found.specs(), size, full_blocks_only=full_blocks_only)
    capacities = blocks or sorted({max(1, accesses.num_keys >> power) for power in range(12)})
    return Curves(
        capacity_curves(
            accesses, policies, capacities, warmup_requests=int(warmup * accesses.num_requests), seed=found.seed
        )
    )


def workloads(name: str | None = None) -> pd.DataFrame:
    """The readers and generators with one line each; with a name, the settings of one.

    Raises `WorkloadError` for an unknown name.
    """
    import pandas as pd

    from workloads.registry import GENERATORS, READERS, generator, reader

    if name is None:
        rows = [(kind, key, entry.summary) for kind, table in (("reader", READERS), ("generator", GENERATORS))
                for key, entry in table.items()]  # fmt: skip
        return pd.DataFrame(rows, columns=["kind", "name", "summary"])
    from sim.api.settings import model_table

    return model_table(reader(name).Options if name in READERS else generator(name).Params)


def _open(
    source: Source,
    format: str,
    options: Mapping[str, Any] | None,
    skip_bad_lines: bool,
    limit: int | None,
    seed: int | None,
) -> _Workload:
    from sim.config.load import config_from_mapping, load_config
    from workloads.load import open_workload
    from workloads.log import ReadLog

    log = ReadLog(skip_bad_lines=skip_bad_lines)
    config: ExperimentConfig | None = None
    if isinstance(source, ExperimentConfig):
        config = source
    elif isinstance(source, Mapping):
        config = config_from_mapping({key: value for key, value in source.items() if key != "sweep"})
    elif Path(source).suffix in (".yaml", ".yml"):
        config = load_config(source)
    if config is not None:
        items, drawn = config.workload_items(), config.seed if seed is None else seed
        most = config.engine.max_model_len
        logs = iter([log])  # what the first reading says is said once

        def made() -> Iterator[RequestSpec]:
            mine = next(logs, ReadLog(skip_bad_lines=skip_bad_lines))
            return islice(open_workload(items, drawn, mine, max_model_len=most).specs(), limit)

        return _Workload(config.name, made, log, config.engine.block_size, drawn)
    assert not isinstance(source, Mapping | ExperimentConfig)
    return _open_trace(source, log, format, options or {}, limit, seed)


def _open_trace(
    path: str | Path, log: ReadLog, format: str, options: Mapping[str, Any], limit: int | None, seed: int | None
) -> _Workload:
    from workloads.log import ReadLog
    from workloads.registry import detect, parse_options, read_trace, reader

    name = detect(path) if format == "auto" else format
    module = reader(name)
    chosen = parse_options(module.Options, options, name)
    own = getattr(chosen, "hash_block_size", getattr(module, "BLOCK_SIZE", None))
    size = own if isinstance(own, int) else DEFAULT_BLOCK_SIZE
    logs = iter([log])

    def read() -> Iterator[RequestSpec]:
        mine = next(logs, ReadLog(skip_bad_lines=log.skip_bad_lines))
        return islice(read_trace(path, mine, name, options, seed), limit)

    return _Workload(f"{Path(path).name} ({name})", read, log, size, seed or 0)
