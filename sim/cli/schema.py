"""`kvsim schema`: the configuration's JSON Schema, for editors, or its documentation."""

from __future__ import annotations

import click


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Write the documentation (docs/configuration.md) instead.")
@click.option("--results", is_flag=True, help="Write the documentation of results (docs/results.md) instead.")
def command(markdown: bool, results: bool) -> None:
    """Write the JSON Schema of the configuration.

    \b
    kvsim schema > kvsim.schema.json
    # and in a YAML file, for editors that know it:
    # yaml-language-server: $schema=kvsim.schema.json
    """
    if markdown:
        from sim.config.markdown import configuration_page

        click.echo(configuration_page(), nl=False)
        return
    if results:
        from sim.recording.page import results_page

        click.echo(results_page(), nl=False)
        return
    import json

    from sim.config.markdown import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
