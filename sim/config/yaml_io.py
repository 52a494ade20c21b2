"""YAML in and out: the safe loader, with duplicate keys refused, plain numbers as people write them, and line numbers.

Numbers follow YAML 1.2: ``1e-3`` is a number, ``010`` and ``1:30`` are none (YAML 1.1 makes 8 and
90 of them); a date stays text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sim.errors import ConfigError

KeyPath = tuple[str | int, ...]


class Document(NamedTuple):
    """A parsed file: its mapping, and the line (from 1) on which each key path stands."""

    data: dict[str, Any]
    lines: dict[KeyPath, int]


class _Loader(yaml.SafeLoader):
    """The safe loader with its own, smaller table of plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (overrides a class table)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:yes|no|true|false|on|off)$", re.IGNORECASE), list("yYnNtTfFoO")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])


def read_yaml(path: str | Path) -> Document:
    """Read one YAML file that holds a mapping.

    Raises `ConfigError` for a file that is missing, no text, no YAML, no mapping, or has a key twice.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); a configuration is a YAML file") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; a configuration is a readable YAML file") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> Document:
    """Parse YAML text that holds a mapping; `name` stands before each error.  Raises `ConfigError`."""
    lines: dict[KeyPath, int] = {}
    faults: list[str] = []
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _walk(node, (), lines, faults, set())
        data = {} if node is None or faults else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    if faults:
        raise ConfigError("\n".join(f"{name}:{fault}" for fault in faults))
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: a configuration is a mapping of keys to values, not a {type(data).__name__}")
    return Document(data, lines)


def parse_value(text: str, name: str) -> Any:
    """Parse one value as it could stand behind a key in YAML (for ``--set``).  Raises `ConfigError`."""
    try:
        return parse_yaml("value: " + text, "value").data.get("value")
    except ConfigError as error:
        said = str(error).splitlines()[0].partition("not valid YAML: ")
        raise ConfigError(f"{name}: not valid YAML: {said[2] or said[0]}") from error


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], faults: list[str], above: set[int]) -> None:
    """Note the line of every key path and find duplicate and non-text keys."""
    if id(node) in above:
        faults.append(f"{node.start_mark.line + 1}: an alias that contains itself")
        return
    above = above | {id(node)}
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (
                "tag:yaml.org,2002:str",
                "tag:yaml.org,2002:merge",
            ):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                faults.append(f"{line}: the key {shown!r} must be text (quote it)")
                continue
            if key.value in seen:
                at = ".".join(str(part) for part in (*path, key.value))
                faults.append(f"{line}: {at}: the key stands twice (first on line {seen[key.value]}); keep one")
            seen[key.value] = line
            lines[(*path, key.value)] = line
            _walk(value, (*path, key.value), lines, faults, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*path, index)] = value.start_mark.line + 1
            _walk(value, (*path, index), lines, faults, above)


def dump_yaml(data: dict[str, Any]) -> str:
    """The mapping as YAML that `parse_yaml` reads back to equal values, keys in the given order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)


class _Dumper(yaml.SafeDumper):
    """Writes floats so that both this loader and a YAML 1.1 loader read numbers; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    if text in ("inf", "-inf", "nan"):
        text = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[text]
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _represent_str(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "'" if _reads_as_another_type(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _reads_as_another_type(value: str) -> bool:
    return any(pattern.match(value) for rules in _Loader.yaml_implicit_resolvers.values() for _, pattern in rules)


_Dumper.add_representer(float, _represent_float)
_Dumper.add_representer(str, _represent_str)
