"""`kvsim sweep`: a grid of experiments."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sim.sweeps.expand import Sweep

MANY_POINTS = 1000


@click.command(epilog="Example: kvsim sweep configs/block_size_by_memory.yaml --jobs 2 --report")
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--trace", metavar="FILE", help="Trace file of the workload of kind `trace`.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting of every point.")
@click.option("--sweep", "axes", multiple=True, metavar="PATH=V1,V2,…",
              help="Add an axis, such as engine.block_size=8,16,32.")  # fmt: skip
@click.option("--serve", metavar="COMMAND", help='Take engine flags from a command line: "vllm serve MODEL …".')
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--dask", metavar="ADDRESS", help="Run on a Dask cluster: tcp://HOST:PORT, or local.")
@click.option("--resume", is_flag=True, help="Leave finished points alone.")
@click.option("--continue-on-error", is_flag=True, help="Record a point's error and go on.")
@click.option("--dry-run", is_flag=True, help="Validate and list the points, run nothing.")
@click.option("--yes", is_flag=True, help=f"Run more than {MANY_POINTS:,} points.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Results folder; the sweep's own is OUT/NAME.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace results of another version and damaged tables.")
@click.option("--report", is_flag=True, help="Write the report when all is done.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar and no words.")
def command(
    config: Path,
    trace: str | None,
    overrides: tuple[str, ...],
    axes: tuple[str, ...],
    serve: str | None,
    jobs: int,
    dask: str | None,
    resume: bool,
    continue_on_error: bool,
    dry_run: bool,
    yes: bool,
    out: Path,
    overwrite: bool,
    report: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run every point of CONFIG's `sweep:` and write one table of them.

    All points are validated before the first one runs.  A point's folder is named by its
    configuration, so an interrupted sweep goes on with --resume, and a changed point runs again.
    Exit status 1 when points failed and --continue-on-error went on.

    \b
    kvsim sweep configs/quickstart.yaml --sweep memory.num_gpu_blocks=3000,6000,12000 -j 2
    kvsim sweep configs/block_size_by_memory.yaml --resume
    kvsim sweep configs/block_size_by_memory.yaml --dask tcp://scheduler:8786
    """
    from sim.config.load import read_config
    from sim.sweeps.axes import count_points, read_sweep
    from sim.sweeps.expand import expand

    loaded = read_config(config, overrides, trace=trace, serve=serve)
    count = count_points(read_sweep(loaded, axes)[1])
    if count > MANY_POINTS and not yes and not dry_run:
        _ask_for_yes(config, loaded, axes, count, jobs)
    sweep = expand(loaded, axes)
    if not quiet:
        left = f", {sweep.left_out} left out by conditions" if sweep.left_out else ""
        same = f", {sweep.same} that repeat another" if sweep.same else ""
        click.echo(f"{sweep.name}: {_points(len(sweep.points))}{left}{same}", err=True)
    if dry_run:
        _list(sweep, as_json)
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        folder, failed = _run(sweep, out, jobs, resume, continue_on_error, overwrite, dask, quiet)
    finally:
        signal.signal(signal.SIGTERM, before)
    page = None
    if report:
        from sim.report.build import write_report

        page = write_report(folder)
    if as_json:
        import json

        done = {"folder": str(folder), "points": len(sweep.points), "failed": failed, "report": page and str(page)}
        click.echo(json.dumps(done))
    if not quiet:
        click.echo(f"points: {folder / 'points.parquet'} and points.csv", err=True)
        click.echo(f"report: {page}" if page else f"report: kvsim report {folder}", err=True)
    if failed:
        click.echo(f"kvsim: {_points(failed)} failed; the column error of the table says why", err=True)
        sys.exit(1)


def _run(
    sweep: Sweep,
    out: Path,
    jobs: int,
    resume: bool,
    continue_on_error: bool,
    overwrite: bool,
    dask: str | None,
    quiet: bool,
) -> tuple[Path, int]:
    """Run with a bar over all points; the folder, and how many failed."""
    from sim.sweeps.progress import SweepBar
    from sim.sweeps.run import run_sweep

    with SweepBar(len(sweep.points), shown=False if quiet else None) as bar:
        folder = run_sweep(
            sweep, out=out, jobs=jobs, resume=resume, continue_on_error=continue_on_error, overwrite=overwrite,
            dask=dask, progress=bar, command=shlex.join(["kvsim", *sys.argv[1:]]),
        )  # fmt: skip
    return folder, bar.failed


def _ask_for_yes(config: Path, loaded: object, axes: tuple[str, ...], count: int, jobs: int) -> None:
    """Refuse a sweep of very many points, with how long it would take."""
    from sim.config.load import LoadedConfig
    from sim.errors import ConfigError
    from sim.sweeps.estimate import duration, seconds_of_a_point
    from sim.sweeps.expand import first_point

    assert isinstance(loaded, LoadedConfig)
    one = seconds_of_a_point(first_point(loaded, axes))
    least = "at least" if one.at_least else "about"
    raise ConfigError(
        f"{config}: the sweep has {count:,} points, {least} {duration(one.seconds * count / jobs)} with {jobs} "
        f"{'job' if jobs == 1 else 'jobs'} ({one.how}); give --yes to run them all, or fewer values"
    )


def _list(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        import json

        rows = [{"point": p.number, "folder": p.folder, "parameters": p.parameters} for p in sweep.points]
        click.echo(json.dumps({"name": sweep.name, "points": rows}, indent=1))
        return
    for point in sweep.points:
        shown = "  ".join(f"{path}={value}" for path, value in point.parameters.items())
        click.echo(f"{point.number:>5}  {point.folder}  {shown}")


def _points(count: int) -> str:
    return f"{count:,} point" if count == 1 else f"{count:,} points"


def _stop(number: int, frame: FrameType | None) -> None:
    """A polite kill ends the sweep as Ctrl-C does: the table is written, --resume goes on."""
    raise KeyboardInterrupt
