"""From pydantic's errors to lines that a person can act on: path, what is wrong, what would be right."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.config.yaml_io import KeyPath
from sim.errors import ConfigError

_MISSING = object()
_EXTRA = "Extra inputs are not permitted"


class ConfigFaults(ConfigError):
    """All that is wrong with one configuration; `lines` holds one line per fault."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


class Places:
    """Where each value of a configuration came from, to stand before an error.

    `file` is the name of the YAML file ("" for a config made in Python), `lines` the line of each
    key path, `overrides` the ``--set`` text by path.
    """

    def __init__(self, file: str = "", lines: Mapping[KeyPath, int] | None = None) -> None:
        self.file = file
        self.lines = dict(lines or {})
        self.overrides: dict[KeyPath, str] = {}

    def fault(self, path: KeyPath, text: str) -> str:
        """One line: place, dotted path and text."""
        shown = dotted(path)
        where = self._where(path)
        return ": ".join(part for part in (where, shown, text) if part)

    def _where(self, path: KeyPath) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return self.overrides[path[:length]]
            if path[:length] in self.lines:
                return f"{self.file}:{self.lines[path[:length]]}"
        return self.file


def dotted(path: Iterable[str | int]) -> str:
    """``workloads.0.rate`` of ``("workloads", 0, "rate")``."""
    return ".".join(str(part) for part in path)


def nearest(name: str, names: Iterable[str], most: int = 2) -> list[str]:
    """The names that a person probably meant, best first (maybe none)."""
    known = list(names)
    folded = {candidate.casefold().replace("-", "_"): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold().replace("-", "_"), list(folded), n=most, cutoff=0.6)
    return [folded[match] for match in matches]


def suggestion(name: str, names: Iterable[str]) -> str:
    """``did you mean block_size?``, or the whole choice when nothing is near."""
    known = list(names)
    close = nearest(name, known)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}" if known else "no key is allowed here"


def fault_lines(
    error: ValidationError, model: type[BaseModel], data: Any, places: Places, prefix: KeyPath = ()
) -> list[str]:
    """One line per fault of a validation, in the order of the model's fields.

    `data` is what was validated, `prefix` where it stands in the whole configuration.
    """
    lines = []
    for detail in error.errors(include_url=False):
        path = _path_in_data(detail["loc"], data, detail["type"])
        plain = detail["type"] == "extra_forbidden" and detail["msg"] == _EXTRA
        text = _unknown_key(detail["loc"], model, prefix) if plain else _wording(detail)
        line = places.fault(prefix + path, text)
        if line not in lines:
            lines.append(line)
    return lines


def _path_in_data(loc: tuple[int | str, ...], data: Any, kind: str) -> KeyPath:
    """The YAML path of an error (pydantic's has union tags in it too)."""
    path: list[str | int] = []
    at = data
    for index, part in enumerate(loc):
        below = _child(at, part)
        if below is not _MISSING:
            path.append(part)
            at = below
        elif index == len(loc) - 1 and (kind == "missing" or _is_absent_key(at, part)):
            path.append(part)
    return tuple(path)


def _is_absent_key(at: Any, part: int | str) -> bool:
    """Whether the end of an error's location is a key that should be there, and no union tag or validator's name."""
    return isinstance(at, Mapping) and isinstance(part, str) and part.isidentifier() and at.get("kind") != part


def _child(at: Any, part: int | str) -> Any:
    """What stands at `part` of a mapping or list, or `_MISSING`."""
    if isinstance(at, Mapping):
        return at.get(part, _MISSING)
    if isinstance(at, list | tuple) and isinstance(part, int) and part < len(at):
        return at[part]
    return _MISSING


def _unknown_key(loc: tuple[int | str, ...], model: type[BaseModel], prefix: KeyPath) -> str:
    name = str(loc[-1])
    names = _keys_at(model, loc[:-1])
    if not nearest(name, names):
        elsewhere = _sections_with(model, name) if not prefix else []
        if elsewhere:
            return f"unknown key here; it belongs under {' or '.join(elsewhere)}"
    return f"unknown key; {suggestion(name, names)}"


def _keys_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The keys that would be right at `loc`."""
    candidates = [model]
    for part in loc:
        below: list[type[BaseModel]] = []
        for candidate in candidates:
            field = candidate.model_fields.get(str(part))
            if field is not None:
                below += _models_in(field.annotation)
        if below:
            candidates = below
        else:
            tagged = [c for c in candidates if _tag_of(c) == part]
            candidates = tagged or candidates
    return list(dict.fromkeys(name for candidate in candidates for name in candidate.model_fields))


def _tag_of(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("kind")
    choices = typing.get_args(field.annotation) if field is not None else ()
    return choices[0] if choices else _MISSING


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in _models_in(argument)]


def _sections_with(model: type[BaseModel], name: str) -> list[str]:
    """Sections of the configuration that have a key of this name."""
    found = []
    for section, field in model.model_fields.items():
        if any(name in part.model_fields for part in _models_in(field.annotation)):
            found.append(f"{section}.{name}")
    return found


_WORDS = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _wording(detail: ErrorDetails) -> str:
    """What would be right, and what was given."""
    kind, context = detail["type"], detail.get("ctx", {})
    got = _shown(detail["input"])
    if kind == "missing":
        return "missing; this key must be given"
    if kind in _WORDS:
        return f"must be {_WORDS[kind]}, got {got}"
    if kind in _BOUNDS and _BOUNDS[kind][0] in context:
        key, words = _BOUNDS[kind]
        return f"must be {words} {context[key]}, got {got}"
    if kind == "literal_error" and "expected" in context:
        return _choice(str(context["expected"]), detail["input"])
    if kind == "union_tag_invalid":
        return f"{context['discriminator']}: ".replace("'", "") + _choice(str(context["expected_tags"]), context["tag"])
    if kind == "union_tag_not_found":
        return f"{str(context['discriminator']).strip(chr(39))} is missing; it must be given"
    if kind == "string_pattern_mismatch" and "pattern" in context:
        return f"must match {context['pattern']}, got {got}"
    if kind in ("too_short", "too_long") and "actual_length" in context:
        bound = context.get("min_length", context.get("max_length"))
        words = "at least" if kind == "too_short" else "at most"
        return f"must have {words} {bound} entries, got {context['actual_length']}"
    message = detail["msg"]
    for start in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(start)
    if message.startswith(("Input should be ", "String should ")):
        message = f"must {'be ' if message.startswith('Input') else ''}{message.split(' should ', 1)[1]}, got {got}"
    return " ".join(message.replace("must be be ", "must be ").split())


def _choice(expected: str, given: Any) -> str:
    names = [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",")]
    close = nearest(given, names, 1) if isinstance(given, str) else []
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"must be one of {', '.join(names)}, got {_shown(given)}{hint}"


def _shown(value: Any) -> str:
    """The value as YAML would show it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
