"""`kvsim sweep`: a grid of experiments."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

MANY_POINTS = 1000


@click.command(epilog="Example: kvsim sweep configs/block_size_by_memory.yaml --jobs 2 --report")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--trace", metavar="FILE", help="Trace file of the workload of kind `trace`.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a setting of every point.")
@click.option("--sweep", "axes", multiple=True, metavar="PATH=V1,V2,…",
              help="Add an axis, such as engine.block_size=8,16,32.")  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--dask", metavar="ADDRESS", help="Run on a Dask cluster: tcp://HOST:PORT, or local.")
@click.option("--resume", is_flag=True, help="Leave finished points alone.")
@click.option("--continue-on-error", is_flag=True, help="Record a point's error and go on.")
@click.option("--dry-run", is_flag=True, help="Validate and list the points, run nothing.")
@click.option("--yes", is_flag=True, help=f"Run more than {MANY_POINTS:,} points.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
              help="Results folder; the sweep's own is OUT/NAME.")  # fmt: skip
@click.option("--report", is_flag=True, help="Write the report when all is done.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def command(
    config: Path,
    trace: str | None,
    overrides: tuple[str, ...],
    axes: tuple[str, ...],
    jobs: int,
    dask: str | None,
    resume: bool,
    continue_on_error: bool,
    dry_run: bool,
    yes: bool,
    out: Path,
    report: bool,
    as_json: bool,
) -> None:
    """Run every point of CONFIG's `sweep:` and write one table of them.

    All points are validated before the first one runs.  A point's folder is named by its
    configuration, so an interrupted sweep goes on with --resume, and a changed point runs again.
    """
    import json

    from sim.config.load import read_config
    from sim.errors import ConfigError
    from sim.sweeps.expand import count_points, expand, read_sweep

    loaded = read_config(config, overrides, trace=trace)
    count = count_points(read_sweep(loaded, axes)[1])
    if count > MANY_POINTS and not yes:
        raise ConfigError(
            f"{config}: the sweep has {count:,} points, about {_duration(count / jobs)} at a second each; "
            "give --yes to run them all, or fewer values"
        )
    sweep = expand(loaded, axes)
    left = f", {sweep.left_out} left out by conditions" if sweep.left_out else ""
    same = f", {sweep.same} that repeat another" if sweep.same else ""
    print(f"{sweep.name}: {len(sweep.points)} points{left}{same}", file=sys.stderr)
    if dry_run:
        for point in sweep.points:
            shown = "  ".join(f"{path}={value}" for path, value in point.parameters.items())
            click.echo(f"{point.number:>5}  {point.folder}  {shown}")
        return

    from tqdm import tqdm

    from sim.sweeps.run import run_sweep

    with tqdm(total=len(sweep.points), unit="point", disable=None, file=sys.stderr) as bar:

        def progress(done: int) -> None:
            if bar.n == 0 and done:
                bar.initial = done
            bar.update(done - bar.n)

        folder = run_sweep(
            sweep, out=out, jobs=jobs, resume=resume, continue_on_error=continue_on_error, dask=dask,
            progress=progress, command=shlex.join(sys.argv),
        )  # fmt: skip
    page = None
    if report:
        from sim.report.build import write_report

        page = write_report(folder)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "points": len(sweep.points), "report": page and str(page)}))
    print(f"points: {folder / 'points.parquet'} and points.csv", file=sys.stderr)
    print(f"report: {page}" if page else f"report: kvsim report {folder}", file=sys.stderr)


def _duration(seconds: float) -> str:
    """Seconds as the largest unit that fits."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
