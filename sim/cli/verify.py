"""`kvsim verify`: is every decision the reference's own?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sim.core.scheduler_config import SchedulerConfig
    from sim.parity.replay import MakePlayer


@click.command(epilog="Example: kvsim verify tests/golden")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--engine", type=click.Choice(["reference", "fast"]), default="reference", show_default=True,
              help="Which code path replays the steps.")  # fmt: skip
@click.option("--check-invariants/--no-check-invariants", default=True, show_default=True,
              help="Check every law after every step (checkpoint recordings: slow).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(paths: tuple[Path, ...], engine: str, check_invariants: bool, as_json: bool) -> None:
    """Replay recordings of vLLM and compare every field of every step.

    PATHS are files or folders of recordings (*.json, *.json.gz): steps, checkpoints, hashes, plans
    or windows of metrics, told apart by their content.  Exit status 1 when anything differs, 2 when
    a recording cannot be read (the others still run).
    """
    from sim.errors import InvariantError, RecordingError
    from sim.parity.players import ReferencePlayer
    from sim.parity.verify import everything, find_recordings, verify_file

    make_player: MakePlayer = ReferencePlayer
    supports: Callable[[SchedulerConfig], str | None] = everything
    if engine == "fast":
        from sim.fast.player import FastPlayer
        from sim.fast.support import supports as make_sure

        make_player, supports = FastPlayer, make_sure
    steps = differences = not_covered = 0
    unreadable: list[str] = []
    rows = []
    files = find_recordings(list(paths))
    for path in files:
        row: dict[str, object] = {"path": str(path)}
        rows.append(row)
        try:
            outcome = verify_file(path, make_player, check=check_invariants, supports=supports)
        except RecordingError as error:
            unreadable.append(str(error))
            row["error"] = str(error)
            continue
        except InvariantError as error:
            differences += 1
            row["difference"] = str(error)
            click.echo(f"{error}", err=as_json)
            continue
        if outcome.not_covered is not None:
            not_covered += 1
            row["not_covered"] = outcome.not_covered
            click.echo(f"{path}: not covered: {outcome.not_covered}", err=as_json)
            continue
        steps += outcome.compared
        row |= {"kind": outcome.kind, "compared": outcome.compared, "difference": None}
        if outcome.difference is None:
            click.echo(f"{path}: {outcome.compared} {outcome.kind}, equal", err=as_json)
        else:
            differences += 1
            row["difference"] = str(outcome.difference)
            click.echo(f"{path}: {outcome.difference}", err=as_json)
    if as_json:
        summary = {"recordings": len(files), "steps": steps, "differences": differences, "unreadable": len(unreadable)}
        summary |= {"not_covered": not_covered} if engine == "fast" else {}
        click.echo(json.dumps(summary | {"files": rows}, indent=1))
    else:
        if not_covered:
            click.echo(f"{not_covered} of them need the reference engine and were not compared")
        click.echo(f"{len(files) - not_covered} recordings, {steps} steps, {differences} differences")
    for error_text in unreadable:
        click.echo(f"kvsim: error: {error_text}", err=True)
    if unreadable:
        sys.exit(2)
    if differences:
        sys.exit(1)
