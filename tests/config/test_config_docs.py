"""The page of the configuration is what the schema says."""

import json
from pathlib import Path

from sim.config.markdown import configuration_page, json_schema

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_docs_are_in_step():
    page = PAGE.read_text(encoding="utf-8")
    assert page == configuration_page(), "run: kvsim schema --markdown > docs/configuration.md"


def test_every_key_is_documented():
    schema = json.loads(json.dumps(json_schema()))
    assert schema["title"] == "kvsim experiment"
    undocumented = [
        f"{name}.{key}"
        for name, part in schema["$defs"].items()
        for key, value in part.get("properties", {}).items()
        if "description" not in value and "const" not in value
    ]
    assert undocumented == []
