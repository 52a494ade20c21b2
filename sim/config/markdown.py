"""The configuration's JSON Schema, and the page `docs/configuration.md` made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.config.models import ExperimentConfig

_INTRO = """# Configuration

<!-- Made by `kvsim schema --markdown`; change the descriptions in the code, not this page. -->

An experiment is one YAML file. Every fault in it is reported at once, with its place, its path and what
would be right; unknown and duplicate keys are refused. `kvsim run CONFIG --validate` only checks it.

- On the command line, `--set a.b=value` changes a value; list entries count from 0: `--set workloads.0.limit=100`.
- Numbers may be written as `1e-3`; sizes as `40GiB` (2³⁰ bytes) or `40GB` (10⁹).
- A relative file is looked for in the current folder, then beside the configuration.
- `kvsim schema` writes a JSON Schema, with which editors complete and check as you type.
"""

_FIRST = ("EngineConfig", "MemoryConfig", "Geometry", "KVGroup")


def json_schema() -> dict[str, Any]:
    """JSON Schema of a whole configuration, every workload kind and its settings included."""
    schema = ExperimentConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": "kvsim experiment"}


def configuration_page() -> str:
    """The documentation of every key, as Markdown."""
    schema = json_schema()
    definitions: dict[str, Any] = dict(schema["$defs"])
    workloads = {name: part for name, part in definitions.items() if name.endswith("_workload")}
    workloads |= _inline_workloads(schema["properties"]["workload"])
    shared = _common_properties(workloads.values())
    lines = [_INTRO, *_section("The file", schema, 2)]
    order = [*_FIRST, *sorted(set(definitions) - set(_FIRST) - set(workloads))]
    for name in order:
        lines += _section(name, definitions[name], 2)
    lines += ["## Workloads", ""]
    lines += [
        "Each kind of workload has settings of its own, and all of these:",
        "",
        *_table(shared, ()),
    ]
    for name, part in sorted(workloads.items()):
        kind = name.removesuffix("_workload")
        own = {key: value for key, value in part["properties"].items() if key not in shared and key != "kind"}
        lines += [f"### kind: {kind}", "", part.get("description", ""), "", *_table(own, part.get("required", ()))]
    return "\n".join(lines).rstrip() + "\n"


def _inline_workloads(field: Mapping[str, Any]) -> dict[str, Any]:
    """Workload kinds that stand in the field itself and not among the definitions."""
    found = {}
    for choice in field.get("anyOf", [field]):
        for part in choice.get("oneOf", []):
            kind = part.get("properties", {}).get("kind", {}).get("const")
            if kind is not None:
                found[f"{kind}_workload"] = part
    return found


def _common_properties(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The properties that all parts have alike."""
    first, *others = [part["properties"] for part in parts]
    return {
        key: value for key, value in first.items() if key != "kind" and all(other.get(key) == value for other in others)
    }


def _section(name: str, part: Mapping[str, Any], level: int) -> list[str]:
    text = part.get("description", "").split("\n\n")[0].replace("\n", " ")
    lines = [f"{'#' * level} {name}", ""]
    if text:
        lines += [text, ""]
    if "properties" in part:
        lines += _table(part["properties"], part.get("required", ()))
    else:
        lines += [f"{_type_words(part)}", ""]
    return lines


def _table(properties: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    lines = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
    needed = set(required)
    for key, part in properties.items():
        default = "*must be given*" if key in needed else _default_words(part)
        meaning = " ".join(str(part.get("description", "")).split()).replace("|", "\\|")
        lines.append(f"| `{key}` | {_type_words(part)} | {default} | {meaning} |")
    return [*lines, ""]


def _default_words(part: Mapping[str, Any]) -> str:
    if "default" not in part:
        return ""
    value = part["default"]
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


_TYPES = {"integer": "integer", "number": "number", "boolean": "true or false", "string": "text", "object": "mapping"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _type_words(part: Mapping[str, Any]) -> str:
    """The type in words, with bounds and links to other sections."""
    for key in ("anyOf", "oneOf"):
        if key in part:
            if any("kind" in choice.get("properties", {}) for choice in part[key]):
                return "[workload](#workloads)"
            found = [_type_words(choice) for choice in part[key] if choice.get("type") != "null"]
            return " or ".join(word for word in dict.fromkeys(found) if word)
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[1]
        if name.endswith("_workload"):
            return "[workload](#workloads)"
        return f"[{name}](#{name.lower()})"
    if "const" in part:
        return f"`{part['const']}`"
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        items = part.get("items") or {"anyOf": part.get("prefixItems", [])}
        return f"list of {_type_words(items)}"
    words = _TYPES.get(str(part.get("type")), "")
    bounds = [f"{sign} {_bound(part[key])}" for key, sign in _BOUNDS.items() if key in part]
    return f"{words} {' and '.join(bounds)}".strip()


def _bound(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
