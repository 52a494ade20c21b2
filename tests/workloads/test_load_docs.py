"""docs/workloads.md says what the models say, and every example in it is valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from workloads.arrivals import Arrivals
from workloads.distributions import Distribution
from workloads.load import TRACE, TraceParams, item_model, kinds, open_workload, validate_item
from workloads.registry import generator
from workloads.shaping import Shaping

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def flow(value: Any) -> str:
    """A default as it would stand in YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("\n...\n")
    return text.strip()


def table(model: type[BaseModel], names: list[str]) -> str:
    """The settings of a model as a Markdown table."""
    rows = ["| Key | Default | Meaning |", "|---|---|---|"]
    for name in names:
        field = model.model_fields[name]
        if field.is_required():
            default = "required"
        else:
            value = model.model_construct(**{name: field.default}).model_dump(mode="json", include={name})[name]
            default = f"`{flow(value)}`"
        text = (field.description or "").replace("|", "\\|").replace("``", "`").replace("\n", " ")
        rows.append(f"| `{name}` | {default} | {re.sub(' +', ' ', text)} |")
    return "\n".join(rows)


def parameter_table(kind: str) -> str:
    """The settings that are a kind's own."""
    params = TraceParams if kind == TRACE else generator(kind).Params
    return table(item_model(kind), list(params.model_fields))


def section(kind: str) -> str:
    """What the page says of a kind."""
    match = re.search(rf"^### `{kind}`\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert match, f"no section for {kind}"
    return match.group(1)


@pytest.mark.parametrize("kind", kinds())
def test_each_kind_has_its_table_and_an_example(kind: str) -> None:
    text = section(kind)
    assert parameter_table(kind) in text
    assert f"kind: {kind}\n" in text


def test_shaping_has_its_table() -> None:
    assert table(Shaping, list(Shaping.model_fields)) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_valid(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lengths.txt", "times.txt"):
        Path(name).write_text("1\n2\n")
    (key, value), *more = yaml.safe_load(example).items()
    assert not more
    if key == "lengths":
        assert {Distribution.model_validate(one).name for one in value} == set(Distribution.model_fields)
    elif key == "arrivals":
        assert {Arrivals.model_validate(one).name for one in value} == set(Arrivals.model_fields)
    else:
        items = [validate_item(one) for one in (value if key == "workloads" else [value])]
        if all(item.kind != TRACE for item in items):
            shortened = [item.model_copy(update={"limit": 5}) for item in items]
            assert sum(1 for _ in open_workload(shortened, 0, max_model_len=100_000).specs()) == 5 * len(items)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= len(kinds()) + 4
