"""`kvsim fit`: coefficients of a step-time model from measured steps, with the error they leave."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("measurements", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(["linear", "roofline"]), default="linear", show_default=True)
@click.option("--model", help="For roofline: catalog name or path of a config.json.")
@click.option("--gpu", help="For roofline: catalog name.")
@click.option("-tp", "--tensor-parallel-size", type=int, default=1, show_default=True)
@click.option("--dtype", help="For roofline: weights as bf16, fp8, …  [default: as published]")
@click.option("--json", "as_json", is_flag=True, help="Print coefficients and errors as JSON.")
def command(
    measurements: Path,
    kind: str,
    model: str | None,
    gpu: str | None,
    tensor_parallel_size: int,
    dtype: str | None,
    as_json: bool,
) -> None:
    """Fit step-time coefficients to MEASUREMENTS.

    MEASUREMENTS is a CSV file with the columns prefill_tokens, decode_requests, context_tokens (or
    cached_tokens) and seconds, one measured step a row.  The result is a `timing:` block.
    """
    from sim.timing.catalog import find_gpu, find_model
    from sim.timing.fitting import fit_linear, fit_roofline
    from sim.timing.points import read_points

    if kind == "roofline" and (model is None or gpu is None):
        raise click.UsageError("a roofline needs --model and --gpu")
    points = read_points(measurements)
    if kind == "linear":
        found = fit_linear(points)
    else:
        found = fit_roofline(
            points,
            find_model(str(model)),
            find_gpu(str(gpu)),
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype,
        )
    summary = found.error_summary()
    if as_json:
        block = {"kind": kind, "coefficients": found.coefficients, "points": len(found.errors)} | summary
        click.echo(json.dumps(block, indent=2))
        return
    click.echo("timing:")
    click.echo(f"  kind: {kind}")
    indent = "  "
    if kind == "roofline":
        click.echo(f"  model: {model}\n  gpu: {gpu}\n  tensor_parallel_size: {tensor_parallel_size}")
        if dtype is not None:
            click.echo(f"  dtype: {dtype}")
        click.echo("  efficiencies:")
        indent = "    "
    for name, value in found.coefficients.items():
        click.echo(f"{indent}{name}: {value:.6g}")
    click.echo(
        f"# {len(found.errors)} points; absolute error: median {summary['median_abs_error']:.1%},"
        f" mean {summary['mean_abs_error']:.1%}, largest {summary['max_abs_error']:.1%}"
    )
