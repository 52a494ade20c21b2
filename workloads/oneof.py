"""Bases of the settings: strict models, and mappings that name exactly one of several things."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import CoreSchema


def fault(text: str) -> PydanticCustomError:
    """A validation error whose message is exactly `text`."""
    return PydanticCustomError("kvsim", text)


def not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Validator of a list that needs an entry (a minimum length would count only the valid ones)."""
    if not value:
        raise fault("must have at least one entry")
    return value


class Strict(BaseModel):
    """Base of all settings here: unknown keys refused, types not converted, no NaN, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class OneOf(Strict):
    """A mapping with exactly one of the fields set, such as ``{poisson: {rate_per_s: 5}}``."""

    noun: ClassVar[str] = "choice"
    example: ClassVar[str] = "a mapping with one key"
    shorthands: ClassVar[tuple[dict[str, Any], ...]] = ()
    """JSON Schema of each bare value that `expand` understands."""

    @classmethod
    def expand(cls, value: object) -> object:
        """The mapping that a bare value stands for; `value` itself if it stands for none."""
        return value

    def short(self) -> object:
        """The bare value that says the same as this, or None."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _one_key(cls, value: object) -> object:
        value = cls.expand(value)
        if isinstance(value, cls):
            return value
        known = ", ".join(cls.model_fields)
        if not isinstance(value, dict):
            raise fault(f"must be {cls.example}, not {value!r}")
        unknown = [repr(key) for key in value if key not in cls.model_fields]
        if unknown:
            raise fault(f"unknown {cls.noun} {', '.join(unknown)}; known: {known}")
        given = [key for key in value if value[key] is not None]
        if len(given) != 1:
            found = f"not {len(given)} ({', '.join(given)})" if given else "none is given"
            raise fault(f"needs exactly one {cls.noun}, {found}; known: {known}")
        return value

    @property
    def name(self) -> str:
        """Which of the fields is set."""
        return next(key for key in type(self).model_fields if getattr(self, key) is not None)

    @property
    def chosen(self) -> Any:
        """The value of the field that is set."""
        return getattr(self, self.name)

    @model_serializer
    def _dump(self) -> object:
        bare = self.short()
        if bare is not None:
            return bare
        value = self.chosen
        return {self.name: _tidy(value.model_dump(exclude_none=True)) if isinstance(value, BaseModel) else value}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        target = handler.resolve_ref_schema(schema)
        properties = target.get("properties", {})
        for key, value in properties.items():
            kinds = [kind for kind in value.get("anyOf", []) if kind.get("type") != "null"]
            if len(kinds) == 1:
                properties[key] = {**kinds[0], "description": value.get("description", "")}
        mapping = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
        text = {"title": cls.__name__, "description": (cls.__doc__ or "").split("\n")[0]}
        target.clear()
        target.update(text | ({"anyOf": [*cls.shorthands, mapping]} if cls.shorthands else mapping))
        return schema


def _tidy(settings: dict[str, Any]) -> dict[str, Any]:
    """Whole numbers without a point, and bounds behind what they bound, as a person writes them."""
    ordered = sorted(settings.items(), key=lambda pair: pair[0] in ("min", "max") and len(settings) > 2)
    return {key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in ordered}
