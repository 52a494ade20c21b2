"""Pages as one self-contained HTML file: style and pictures inside, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import os
import re
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.report.blocks import Page

if TYPE_CHECKING:
    import jinja2


NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|min|h|days|[KMGT]?i?B|/s|×)(?![\w]))")


def _keep_units_with_numbers(value: Any) -> Any:
    """No line break between a number and its unit, in any text of a page."""
    if type(value) is not str or value.startswith("data:"):
        return value
    return NUMBER_AND_UNIT.sub("\u00a0", value)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("sim.report", "templates"),
        autoescape=True,
        finalize=_keep_units_with_numbers,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def to_html(page: Page) -> str:
    """The page as HTML; every text in it is escaped."""
    from markupsafe import Markup

    environment = _environment()
    source = environment.loader.get_source(environment, "style.css")[0] if environment.loader else ""
    return environment.get_template("page.html.j2").render(
        version=metadata.version("kvsim"),
        css=Markup(source),  # noqa: S704 our own file
        kind=page.kind,
        title=page.title,
        question=page.question,
        facts=page.facts,
        sections=page.sections,
        footer=page.footer,
    )


def write_page(page: Page, path: Path) -> Path:
    """Write the page to `path`, whole or not at all.  Raises OSError when the place cannot be written."""
    text = to_html(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".report-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
