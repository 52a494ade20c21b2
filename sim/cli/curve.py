"""`kvsim curve`: hit rate over cache capacity."""

from __future__ import annotations

import csv
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.errors import KvsimError

if TYPE_CHECKING:
    from sim.analysis.accesses import Accesses
    from sim.analysis.curves import CurveSet
    from workloads.log import ReadLog

DEFAULT_POLICIES = "lru,lru_tail_first,fifo"
RATE_COLUMNS = (
    "hit_rate",
    "prefix_hit_rate",
    "token_hit_rate",
    "prefix_token_hit_rate",
    "full_block_hit_rate",
    "hit_blocks",
)


@click.command(epilog="Example: kvsim curve trace.jsonl.gz --policies lru,fifo,belady --blocks 1000,10000,100000")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--policies", default=DEFAULT_POLICIES, show_default=True, help="Names with commas; `list` lists them.")
@click.option("--blocks", help="Capacities in blocks: 1000,5000 or FROM:TO:HOW_MANY. [default: 12 up to all]")
@click.option("--memory", help="Capacities in bytes instead: 10GiB,80GiB or 1GiB:1TiB:20.")
@click.option("--block-bytes", type=int, help="Bytes of one block over all layers, for --memory.")
@click.option("--model", help="Model whose geometry gives the bytes of a block, for --memory (see kvsim models).")
@click.option("--kv-cache-dtype", default="auto", show_default=True, help="With --model.")
@click.option("--tensor-parallel-size", type=int, default=1, show_default=True,
              help="With --model: GPUs that share every layer; memory is per GPU.")  # fmt: skip
@click.option("--block-size", type=int, help="Tokens of a block. [default: the trace's own; the config's]")
@click.option("--full-blocks-only", is_flag=True, help="Leave a prompt's partial last block out altogether.")
@click.option("--format", "format_name", default="auto", show_default=True, help="Trace format.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="A setting of the trace's reader.")
@click.option("--skip-bad-lines", is_flag=True, help="Count lines that cannot be used and go on.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many requests.")
@click.option("--warmup", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True,
              help="Share of the requests that fill the cache and are not counted.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), help="Seed. [default: 0; the config's]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path), help="Write every point as CSV.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw the curves as PNG.")
def command(
    source: Path,
    policies: str,
    blocks: str | None,
    memory: str | None,
    block_bytes: int | None,
    model: str | None,
    kv_cache_dtype: str,
    tensor_parallel_size: int,
    block_size: int | None,
    full_blocks_only: bool,
    format_name: str,
    options: tuple[str, ...],
    skip_bad_lines: bool,
    limit: int | None,
    warmup: float,
    seed: int | None,
    as_json: bool,
    csv_path: Path | None,
    figure: Path | None,
) -> None:
    """Hit rate of a cache of blocks over its capacity, under several policies.

    SOURCE is a trace or the YAML of an experiment.  Cache only: requests are served one after
    another in the order of the trace, without a clock; a closed loop keeps the order in which its
    workload lists it.  The optimum and the infinite cache are always in the picture.
    """
    from sim.analysis.curves import capacity_curves
    from sim.analysis.curves_policies import find_policy, list_policies

    names = [name.strip() for name in policies.split(",") if name.strip()]
    if names == ["list"]:
        for name, summary in list_policies():
            click.echo(f"{name:16} {summary}")
        return
    if not names:
        raise KvsimError("--policies is empty; name at least one policy, such as lru")
    for name in names:
        find_policy(name)
    if blocks and memory:
        raise KvsimError("--blocks and --memory contradict each other; give one")
    if memory and (block_bytes is None) == (model is None):
        raise KvsimError("--memory needs the size of a block: give either --block-bytes or --model")
    asked = _ladder(blocks, "--blocks", _count) if blocks else None
    asked_bytes = _ladder(memory, "--memory", _size) if memory else None

    log = _log(skip_bad_lines)
    with _no_collection():
        accesses, seed = _read(source, log, format_name, options, block_size, full_blocks_only, limit, seed)
    if model is not None:
        block_bytes = _bytes_of_block(model, accesses.block_size, kv_cache_dtype, tensor_parallel_size)
    if block_bytes is not None and block_bytes < 1:
        raise KvsimError(f"--block-bytes {block_bytes}: a block has at least 1 byte")
    if asked_bytes is not None and block_bytes is not None:
        asked = [size // block_bytes for size in asked_bytes]
        if min(asked) < 1:
            raise KvsimError(f"--memory {min(asked_bytes):,} bytes hold no block: one takes {block_bytes:,} bytes")
    for line in log.summary():
        click.echo(f"kvsim: {line}", err=True)
    if asked is None:
        asked = _default_capacities(accesses)
    with _no_collection():
        curves = capacity_curves(
            accesses,
            names,
            asked,
            warmup_requests=int(warmup * accesses.num_requests),
            seed=seed,
            progress=_progress(len(set(asked)) * len(set(names) | {"optimum"})),
        )
    if csv_path is not None:
        _write_csv(curves, csv_path, block_bytes)
    if figure is not None:
        _draw(curves, figure)
    if as_json:
        click.echo(json.dumps(_as_json(curves, source, block_bytes), indent=1))
    else:
        _tell(curves, block_bytes)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No collection of cycles: all that is made here stays, and looking through it again and again costs a tenth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _log(skip_bad_lines: bool) -> ReadLog:
    from workloads.log import ReadLog

    return ReadLog(skip_bad_lines=skip_bad_lines)


def _read(
    source: Path,
    log: ReadLog,
    format_name: str,
    options: tuple[str, ...],
    block_size: int | None,
    full_blocks_only: bool,
    limit: int | None,
    seed: int | None,
) -> tuple[Accesses, int]:
    """The accesses of a trace or of an experiment's workload, and the seed."""
    from itertools import islice

    from sim.analysis.accesses import accesses_from_specs

    if source.suffix in (".yaml", ".yml"):
        from sim.config.load import load_config
        from workloads.load import open_workload

        config = load_config(source)
        seed = config.seed if seed is None else seed
        size = block_size or config.engine.block_size
        given: Any = config.workload if config.workload is not None else config.workloads
        specs = open_workload(given, seed, log).specs()
    else:
        from workloads.registry import detect, read_trace, reader

        name = detect(source) if format_name == "auto" else format_name
        values = dict(_key_value(option) for option in options)
        specs = read_trace(source, log, name, values)
        own = getattr(reader(name).Options(**values), "hash_block_size", None)
        size = block_size if block_size is not None else own or 16
        if block_size is None:
            what = "the trace's own size" if own else "the format names no size; --block-size sets it"
            log.note(f"blocks of {size} tokens ({what})")
    accesses, empty = accesses_from_specs(islice(specs, limit), size, full_blocks_only=full_blocks_only)
    if empty:
        log.count("requests without a block to look up (they hit and miss nothing)", empty)
    return accesses, seed or 0


def _key_value(text: str) -> tuple[str, Any]:
    import yaml

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise KvsimError(f"--option {text}: must be KEY=VALUE")
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        raise KvsimError(f"--option {text}: the value is not a YAML value") from None


def _ladder(text: str, option: str, parse: Any) -> list[int]:
    """Numbers with commas, or FROM:TO:HOW_MANY spaced by equal factors."""
    parts = text.split(":")
    if len(parts) == 1:
        return [parse(part, option) for part in text.split(",") if part.strip()]
    if len(parts) != 3:
        raise KvsimError(f"{option} {text}: must be a list with commas, or FROM:TO:HOW_MANY")
    low, high = parse(parts[0], option), parse(parts[1], option)
    count = _count(parts[2], option)
    if low >= high or not 2 <= count <= 10_000:
        raise KvsimError(f"{option} {text}: FROM must be below TO, and HOW_MANY from 2 to 10,000")
    factor = (high / low) ** (1 / (count - 1))
    return [*(round(low * factor**i) for i in range(count - 1)), high]


def _count(text: str, option: str) -> int:
    try:
        number = int(text.replace("_", "").strip())
    except ValueError:
        raise KvsimError(f"{option}: {text.strip()!r} is not a whole number") from None
    if number < 1:
        raise KvsimError(f"{option}: a capacity of {number} blocks holds nothing; it must be at least 1")
    return number


def _size(text: str, option: str) -> int:
    from sim.timing.memory import parse_size

    try:
        return parse_size(int(text) if text.strip().isdigit() else text)
    except ValueError as error:
        raise KvsimError(f"{option}: {error}") from None


def _bytes_of_block(model: str, block_size: int, kv_cache_dtype: str, tensor_parallel_size: int) -> int:
    """Bytes that one block keeps on one GPU, over all layers (those with a window as well)."""
    from sim.timing.catalog import find_model

    layers = find_model(model).kv_cache_spec(block_size, kv_cache_dtype, tensor_parallel_size)
    return sum(layer.page_size_bytes for layer in layers.values())


def _default_capacities(accesses: Accesses) -> list[int]:
    """Twelve capacities, each about twice the one before, the last one holding every block."""
    return sorted({max(1, accesses.num_keys >> power) for power in range(12)})


def _progress(total: int) -> Any:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda text: None
    from tqdm import tqdm

    bar = tqdm(total=total, leave=False, unit="point")

    def advance(text: str) -> None:
        bar.set_description(text)
        bar.update()
        if bar.n >= total:
            bar.close()

    return advance


def _as_json(curves: CurveSet, source: Path, block_bytes: int | None) -> dict[str, Any]:
    from sim.analysis.curves import DEFINITIONS

    def point(capacity: int, rates: Any) -> dict[str, Any]:
        place: dict[str, Any] = {"capacity_blocks": capacity, "capacity_tokens": capacity * curves.block_size}
        if block_bytes is not None:
            place["capacity_bytes"] = capacity * block_bytes
        place.update(rates._asdict())
        return place

    return {
        "source": str(source),
        "requests": curves.requests,
        "warmup_requests": curves.warmup_requests,
        "block_size": curves.block_size,
        "block_bytes": block_bytes,
        "accesses": curves.accesses,
        "unique_blocks": curves.unique_blocks,
        "prompt_tokens": curves.prompt_tokens,
        "largest_request_blocks": curves.largest_request_blocks,
        "definitions": DEFINITIONS,
        "infinite": curves.infinite._asdict(),
        "curves": {
            curve.policy: {
                "summary": curve.summary,
                "knee_blocks": curve.knee_blocks,
                "needs": [need._asdict() for need in curve.needs],
                "points": [point(p.capacity_blocks, p.rates) for p in curve.points],
            }
            for curve in curves.curves
        },
    }


def _write_csv(curves: CurveSet, path: Path, block_bytes: int | None) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["policy", "capacity_blocks", "capacity_tokens", "capacity_bytes", *RATE_COLUMNS])
        for curve in curves.curves:
            for capacity, rates in curve.points:
                size = "" if block_bytes is None else capacity * block_bytes
                values = [getattr(rates, column) for column in RATE_COLUMNS]
                writer.writerow([curve.policy, capacity, capacity * curves.block_size, size, *values])
        infinite = [getattr(curves.infinite, column) for column in RATE_COLUMNS]
        writer.writerow(["infinite", "", "", "", *infinite])


def _draw(curves: CurveSet, path: Path) -> None:
    from matplotlib.figure import Figure

    from sim.report.figures.curves import capacity_curves as draw
    from sim.report.style import save_png

    figure = draw(curves).get_figure(root=True)
    if isinstance(figure, Figure):
        save_png(figure, path)


def _tell(curves: CurveSet, block_bytes: int | None) -> None:
    """The table and the words, on standard output."""
    from sim.analysis.curves_text import curve_lines

    for line in curve_lines(curves, block_bytes):
        click.echo(line)
