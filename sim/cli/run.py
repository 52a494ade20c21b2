"""`kvsim run`: one experiment from YAML to a results folder."""

from __future__ import annotations

import shlex
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sim.recording.results import RunResult


@click.command("run")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--trace", metavar="FILE", help="The file of the configuration's workload of kind trace.")
@click.option(
    "--set", "overrides", metavar="PATH=VALUE", multiple=True, help="Change a value, e.g. engine.block_size=32."
)
@click.option("--serve", metavar="COMMAND", help='Take engine flags from a command line: "vllm serve MODEL …".')
@click.option("--out", metavar="DIR", default="results", show_default=True, help="Where results go.")
@click.option("--run-name", metavar="NAME", help="Name of the run's folder (default: from the configuration's hash).")
@click.option("--overwrite", is_flag=True, help="Replace a run of that name that came from something else.")
@click.option("--report", is_flag=True, help="Write report.html into the run's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print summary.json on stdout.")
@click.option("--check-invariants", is_flag=True, help="Check every law after every step (slow).")
@click.option("--validate", is_flag=True, help="Only check the configuration.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar and no summary.")
def command(
    config: str,
    trace: str | None,
    overrides: tuple[str, ...],
    serve: str | None,
    out: str,
    run_name: str | None,
    overwrite: bool,
    report: bool,
    as_json: bool,
    check_invariants: bool,
    validate: bool,
    quiet: bool,
) -> None:
    """Run the experiment that CONFIG describes.

    \b
    kvsim run configs/quickstart.yaml --report
    kvsim run configs/mooncake.yaml --trace trace.jsonl.gz --set memory.num_gpu_blocks=100000
    """
    from sim.config import load_config

    settings = load_config(config, overrides, trace=trace, serve=serve)
    if validate:
        click.echo(f"{config}: valid", err=True)
        return
    if settings.sweep is not None and not quiet:
        click.echo("note: the sweep in this configuration is left out; kvsim sweep runs it", err=True)
    from sim.experiment import run

    before = signal.signal(signal.SIGTERM, _stop)
    try:
        result = run(
            settings,
            progress=not quiet,
            out=out,
            run_name=_folder_name(run_name),
            overwrite=overwrite,
            check_invariants=check_invariants,
            command=shlex.join(["kvsim", *sys.argv[1:]]),
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    if not quiet:
        click.echo(human_summary(result), err=True)
    if report:
        from sim.report.build import write_report

        click.echo(f"report: {write_report(result.path)}", err=True)
    if as_json:
        from sim.recording.run_folder import json_text

        click.echo(json_text(result.summary), nl=False)


def _stop(number: int, frame: FrameType | None) -> None:
    """A polite kill ends the run as Ctrl-C does: what was written stays readable."""
    raise KeyboardInterrupt


def _folder_name(name: str | None) -> str | None:
    if name is None or (name not in ("", ".", "..") and "/" not in name and not name.endswith((".partial", ".old"))):
        return name
    raise click.BadParameter("must be the name of a folder, not a path", param_hint="--run-name")


def human_summary(result: RunResult) -> str:
    """The figures that matter, as aligned lines."""
    s = result.summary
    requests, rates, latency = s["requests"], s["hit_rate"], s["latency"]
    ends = [f"{requests['finished']:,} finished"]
    ends += [f"{requests[status]:,} {status}" for status in ("aborted", "rejected", "cancelled") if requests[status]]
    rows = [
        ("requests", f"{requests['total']:,}: {', '.join(ends)}"),
        ("simulated", f"{_seconds(s['simulated_s'])} in {s['steps']:,} steps"),
        (
            "hit rate",
            f"{_share(rates['tokens'])} of prompt tokens, {_share(rates['full_blocks'])} of full blocks"
            f" ({_share(rates['tokens_after_warmup'])} of tokens after warm-up)",
        ),
        ("evictions", f"{s['evictions']:,} blocks"),
        ("preemptions", f"{s['preemptions']:,}"),
    ]
    if s["phantom_hit_tokens"]:
        rows.append(("phantom hits", f"{s['phantom_hit_tokens']:,} tokens"))
    for label, name in (
        ("TTFT", "vllm:time_to_first_token_seconds"),
        ("TPOT", "vllm:request_time_per_output_token_seconds"),
        ("end to end", "vllm:e2e_request_latency_seconds"),
    ):
        figures = latency[name]
        shown = ", ".join(f"{figure} {_seconds(figures[figure])}" for figure in ("mean", "median", "p90", "p99"))
        rows.append((label, shown))
    if "goodput" in s:
        rows.append(("goodput", f"{_share(s['goodput']['share'])} of requests meet the service level"))
    rows.append(
        ("decided by", s["implementation"] + (f" ({s['implementation_reason']})" if s["implementation_reason"] else ""))
    )
    rows.append(("took", f"{result.manifest['wall_s']:.1f} s, {result.manifest['peak_memory_bytes'] / 2**20:,.0f} MiB"))
    rows.append(("results", str(result.path)))
    lines = [f"  {label:<12} {text}" for label, text in rows]
    lines += [f"  {count:,} × skipped: {reason}" for reason, count in s["skipped"].items()]
    for status, reasons in s["not_finished"].items():
        lines += [f"  {count:,} × {status}: {reason}" for reason, count in list(reasons.items())[:5]]
    lines += [f"  note: {text}" for text in s["notes"]]
    return "\n".join([s["name"], *lines])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def _seconds(value: Any) -> str:
    if value is None:
        return "–"
    if value < 1.0:
        return f"{1000 * value:.3g} ms"
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"
