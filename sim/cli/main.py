"""The command `kvsim`: a group whose commands are imported only when they are called."""

from __future__ import annotations

import importlib
import os
import sys

import click

from sim.errors import KvsimError
from workloads.errors import WorkloadError

# name -> (module, one line of help); a command's module defines `command`
COMMANDS = {
    "run": ("sim.cli.run", "Run one experiment from YAML."),
    "report": ("sim.cli.report", "Write the report of a run or sweep as one HTML page."),
    "compare": ("sim.cli.compare", "Put runs side by side."),
    "sweep": ("sim.cli.sweep", "Run a grid of experiments in parallel."),
    "curve": ("sim.cli.curve", "Hit rate over cache capacity, for several policies."),
    "verify": ("sim.cli.verify", "Replay recordings of the reference and compare every field."),
    "workload": ("sim.cli.workload", "Inspect, convert and list workloads."),
    "plan": ("sim.cli.plan", "How many KV blocks a model, GPU and flags give."),
    "models": ("sim.cli.catalog:models", "List the models of the catalog."),
    "gpus": ("sim.cli.catalog:gpus", "List the GPUs of the catalog."),
    "fit": ("sim.cli.fit", "Fit step-time coefficients to measurements."),
    "schema": ("sim.cli.schema", "Write the JSON Schema of the configuration."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and help lines without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kvsim", prog_name="kvsim")
def cli() -> None:
    """What would my KV cache do?

    kvsim runs requests through the decisions of vLLM's block pool, prefix cache and scheduler
    under a simulated GPU memory budget.

    \b
    kvsim run configs/quickstart.yaml --report
    kvsim workload inspect trace.jsonl.gz
    kvsim verify tests/golden
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line.  A user's mistake prints its lines and exits with 2, never a traceback."""
    # nothing here multiplies large matrices: threads for that would only spin while numpy is imported; and looking
    # through all installed packages for plugins of pydantic takes time, too
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        cli.main(args=argv, prog_name="kvsim", standalone_mode=False)
    except click.exceptions.Abort:
        print("kvsim: stopped", file=sys.stderr)
        sys.exit(130)
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            print(error.ctx.get_usage(), file=sys.stderr)
        fail(error.format_message())
    except (KvsimError, WorkloadError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        print("kvsim: stopped", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        fail(f"{error.filename or 'file'}: {error.strerror or error}")


def fail(message: str) -> None:
    """Print each line of the message as an error and exit with status 2."""
    for line in message.splitlines():
        print(f"kvsim: error: {line}", file=sys.stderr)
    sys.exit(2)
