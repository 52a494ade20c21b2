"""What a configuration can say, as a table and as JSON Schema."""

from __future__ import annotations

from typing import Any, get_args

import pandas as pd
from pydantic import BaseModel

from sim.config.errors import suggestion
from sim.config.models import ExperimentConfig
from sim.errors import ConfigError


class SettingsTable(pd.DataFrame):
    """A row a key: default and meaning.  Shown whole, where pandas would cut long texts."""

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None, "display.max_rows", None):
            return str(self.to_html())

    def __repr__(self) -> str:
        return str(self.to_string(max_colwidth=None))


def settings(section: str = "") -> SettingsTable:
    """The keys of a section (``"engine"``, ``"memory"``, …; "" for all sections): default and meaning.

    Raises `ConfigError` for a section that there is not.
    """
    model: type[BaseModel] = ExperimentConfig
    for part in section.split(".") if section else []:
        field = model.model_fields.get(part)
        below = _models(field.annotation) if field is not None else []
        if len(below) != 1:
            known = [name for name, f in model.model_fields.items() if len(_models(f.annotation)) == 1]
            raise ConfigError(f"{section}: no section of the configuration; {suggestion(part, known)}")
        model = below[0]
    return model_table(model)


def model_table(model: type[BaseModel]) -> SettingsTable:
    """The fields of a settings model: key, default, meaning."""
    rows = [(name, _default(field), field.description or "") for name, field in model.model_fields.items()]
    return SettingsTable(pd.DataFrame(rows, columns=["key", "default", "meaning"]).set_index("key"))


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration."""
    from sim.config.markdown import json_schema

    return json_schema()


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models(argument)]


def _default(field: Any) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return str(value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value)
