"""`kvsim workload`: look into traces and generated traffic, convert them, list what can be read and made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from workloads.errors import WorkloadError
from workloads.log import ReadLog

if TYPE_CHECKING:
    from workloads.spec import RequestSpec

DEFAULT_BLOCK_SIZE = 16

_INPUT = (
    click.argument("source", type=click.Path(path_type=Path)),
    click.option("--format", "format_", default="auto", show_default=True, help="Reader of the trace (workload list)."),
    click.option("--hash-block-size", type=int, help="Tokens that one hash id of the trace stands for."),
    click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json, for text."),
    click.option("--option", "options", metavar="KEY=VALUE", multiple=True, help="Any other setting of the reader."),
    click.option("--skip-bad-lines", is_flag=True, help="Count lines that cannot be used and go on."),
    click.option("--seed", type=click.IntRange(min=0), help="Seed of what is generated (default: the config's, or 0)."),
    click.option("--trace", type=click.Path(path_type=Path), help="Of a config: the file of its trace."),
    click.option("--set", "overrides", metavar="A.B=VALUE", multiple=True, help="Of a config: another value."),
    click.option("--limit", type=click.IntRange(min=1), help="Only the first requests."),
    click.option("--no-progress", is_flag=True, help="No progress bar."),
)


def _input_options(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in reversed(_INPUT):
        function = decorate(function)
    return function


class Source(NamedTuple):
    """A workload that can be read as often as needed.

    `block_size` is the one that suits it: the trace's own, or the config's.
    """

    name: str
    specs: Callable[[], Iterator[RequestSpec]]
    log: ReadLog
    block_size: int


@click.group("workload", no_args_is_help=True)
def command() -> None:
    """Inspect, convert and list workloads.

    \b
    kvsim workload inspect trace.jsonl.gz
    kvsim workload inspect configs/mooncake.yaml --figures out/
    kvsim workload convert trace.jsonl.gz trace.native.jsonl.gz
    kvsim workload list
    """


@command.command("inspect")
@_input_options
@click.option("--block-size", type=click.IntRange(min=1), help="Tokens of a block (default: the trace's or config's).")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--figures", type=click.Path(path_type=Path), metavar="DIR", help="Write a page of figures and its PNGs.")
def inspect(block_size: int | None, as_json: bool, figures: Path | None, **given: Any) -> None:
    """Say what is in a workload: rates, lengths, prefix reuse, oddities, and why little hits.

    SOURCE is a trace (a file, plain or gzip, a folder or .tgz) or a YAML config with a workload.

    \b
    kvsim workload inspect mooncake_trace.jsonl.gz
    kvsim workload inspect qwen_trace.jsonl --format bailian --block-size 32
    kvsim workload inspect other.jsonl --format mooncake --hash-block-size 256 --skip-bad-lines
    kvsim workload inspect chats.jsonl --format chat_text --tokenizer tokenizer.json
    kvsim workload inspect configs/quickstart.yaml --json
    kvsim workload inspect configs/mooncake.yaml --trace mooncake_trace.jsonl.gz
    kvsim workload inspect trace.csv --figures out/trace
    """
    from sim.analysis.inspection import inspect_workload

    quiet = given.pop("no_progress")
    source = open_source(**given)
    size = block_size or source.block_size
    found = inspect_workload(source.specs, size, lambda stream: _progress(stream, quiet))
    if not found.result["requests"]:
        raise WorkloadError("\n".join([f"{given['source']}: no request in this workload", *source.log.summary()]))
    result = {"source": str(given["source"]), "workload": source.name, **found.result, "log": log_as_json(source.log)}
    if as_json:
        print(json.dumps(result, indent=2, allow_nan=False))
    else:
        from sim.cli.workload_text import inspection_text

        print(inspection_text(result, source.log))
    if figures is not None:
        from sim.report.workload_page import write_workload_page

        print(f"page: {write_workload_page(found, result, source.log, figures)}", file=sys.stderr)


@command.command("convert")
@_input_options
@click.argument("target", type=click.Path(path_type=Path))
def convert(target: Path, **given: Any) -> None:
    """Write a workload in kvsim's native format (docs/native_format.md).

    SOURCE is a trace or a YAML config with a workload, TARGET the JSONL file to write; a name that
    ends in .gz is compressed.  Reading the target gives the same requests.

    \b
    kvsim workload convert weka.jsonl.gz weka.native.jsonl.gz
    kvsim workload convert configs/agents.yaml agents.jsonl --seed 7
    """
    from workloads.native import write_native

    quiet = given.pop("no_progress")
    if target.exists() and given["source"].exists() and target.samefile(given["source"]):
        raise click.UsageError(f"{target}: source and target are the same file; give the target another name")
    source = open_source(**given)
    count = write_native(_progress(source.specs(), quiet), target)
    for line in source.log.summary():
        print(line, file=sys.stderr)
    print(f"{target}: {count:,} requests", file=sys.stderr)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print names, summaries and settings as JSON.")
@click.argument("name", required=False)
def list_(as_json: bool, name: str | None) -> None:
    """List readers and generators with one line each; with NAME, all settings of one.

    \b
    kvsim workload list
    kvsim workload list mooncake
    """
    from workloads.registry import GENERATORS, READERS, generator, reader

    if name is not None:
        if name not in READERS and name not in GENERATORS:
            import difflib

            known = [*READERS, *GENERATORS]
            near = difflib.get_close_matches(name, known, n=3)
            raise WorkloadError(
                f"unknown reader or generator {name!r}; "
                + (f"did you mean {' or '.join(near)}?" if near else "see list")
            )
        model = reader(name).Options if name in READERS else generator(name).Params
        summary = (READERS.get(name) or GENERATORS[name]).summary
        settings = [
            {"name": key, "default": _default(field), "description": field.description or ""}
            for key, field in model.model_fields.items()
        ]
        if as_json:
            print(json.dumps({"name": name, "summary": summary, "settings": settings}, indent=2, default=str))
            return
        print(f"{name}: {summary}")
        for row in settings:
            print(f"  {row['name']:<24} {row['description']} [{row['default']}]")
        return
    if as_json:
        tables = {"readers": READERS, "generators": GENERATORS}
        print(json.dumps({kind: {n: e.summary for n, e in table.items()} for kind, table in tables.items()}, indent=2))
        return
    width = max(map(len, [*READERS, *GENERATORS]))
    print("Readers (kind: trace, format: …)")
    for key, entry in READERS.items():
        print(f"  {key:<{width}}  {entry.summary}")
    print("Generators (kind: …)")
    for key, entry in GENERATORS.items():
        print(f"  {key:<{width}}  {entry.summary}")


def open_source(
    source: Path,
    format_: str,
    hash_block_size: int | None,
    tokenizer: Path | None,
    options: tuple[str, ...],
    skip_bad_lines: bool,
    seed: int | None,
    limit: int | None,
    trace: Path | None = None,
    overrides: tuple[str, ...] = (),
) -> Source:
    """A trace or config as a workload that can be read.

    Raises:
        WorkloadError, ConfigError: the file or a setting cannot be used.
        OSError: the file cannot be read.
    """
    settings: dict[str, Any] = dict(_setting(text) for text in options)
    if hash_block_size is not None:
        settings["hash_block_size"] = hash_block_size
    if tokenizer is not None:
        settings["tokenizer"] = str(tokenizer)
    log = ReadLog(skip_bad_lines=skip_bad_lines)
    if source.suffix in (".yaml", ".yml"):
        if settings or format_ != "auto":
            raise click.UsageError("a config names its formats and settings itself; drop --format and --option")
        return _config_source(source, log, seed, limit, trace, overrides)
    if trace is not None or overrides:
        raise click.UsageError(f"--trace and --set are for configs (.yaml); {source} is read as a trace itself")
    return _trace_source(source, log, format_, settings, seed, limit)


def _trace_source(
    source: Path, log: ReadLog, format_: str, settings: dict[str, Any], seed: int | None, limit: int | None
) -> Source:
    from workloads.registry import detect, parse_options, read_trace, reader

    name = detect(source) if format_ == "auto" else format_
    if format_ == "auto":
        log.note(f"recognised as {name} by its content")
    module = reader(name)
    chosen = parse_options(module.Options, settings, name)
    source.stat()
    block_size = getattr(chosen, "hash_block_size", getattr(module, "BLOCK_SIZE", DEFAULT_BLOCK_SIZE))
    first = True

    def specs() -> Iterator[RequestSpec]:
        nonlocal first
        mine = log if first else ReadLog(skip_bad_lines=log.skip_bad_lines)
        first = False
        return _limited(read_trace(source, mine, name, settings, seed), limit)

    return Source(name, specs, log, block_size)


def _config_source(
    source: Path, log: ReadLog, seed: int | None, limit: int | None, trace: Path | None, overrides: tuple[str, ...]
) -> Source:
    from sim.config.load import read_config
    from workloads.load import open_workload

    data = read_config(source, overrides, trace=str(trace) if trace else None).data
    described = data.get("workload", data.get("workloads"))
    if described is None:
        raise WorkloadError(f"{source}: no workload; a config has `workload:` or a list `workloads:`")
    engine = data.get("engine") if isinstance(data.get("engine"), dict) else {}
    block_size = engine.get("block_size", DEFAULT_BLOCK_SIZE) if isinstance(engine, dict) else DEFAULT_BLOCK_SIZE
    if type(block_size) is not int or block_size < 1:
        raise WorkloadError(f"{source}: engine.block_size: must be a whole number of tokens, 1 or more")
    seed = data.get("seed", 0) if seed is None else seed
    if type(seed) is not int or seed < 0:
        raise WorkloadError(f"{source}: seed: must be a whole number, 0 or more")
    most = engine.get("max_model_len") if isinstance(engine, dict) else None
    first = True

    def specs() -> Iterator[RequestSpec]:
        nonlocal first
        mine = log if first else ReadLog(skip_bad_lines=log.skip_bad_lines)
        first = False
        return _limited(
            open_workload(described, seed, mine, max_model_len=most if type(most) is int else None).specs(), limit
        )

    name = open_workload(described, seed, ReadLog()).category
    return Source(name, specs, log, block_size)


def _limited(specs: Iterator[RequestSpec], limit: int | None) -> Iterator[RequestSpec]:
    import itertools

    return specs if limit is None else itertools.islice(specs, limit)


def log_as_json(log: ReadLog) -> dict[str, Any]:
    """The log as plain objects."""
    return {
        "lines": log.lines,
        "skipped": log.skipped,
        "counts": log.counts,
        "examples": log.examples,
        "warnings": log.warnings,
        "notes": log.notes,
    }


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--option {text!r}: must be KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _default(field: Any) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return value.model_dump() if hasattr(value, "model_dump") else value


def _progress(stream: Iterable[RequestSpec], quiet: bool) -> Iterable[RequestSpec]:
    if quiet or not sys.stderr.isatty():
        return stream
    from tqdm import tqdm

    bar: Iterable[RequestSpec] = tqdm(stream, unit=" requests", file=sys.stderr, leave=False)
    return bar
