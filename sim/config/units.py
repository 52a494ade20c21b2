"""Sizes in bytes as people write them: ``40GiB``, ``10.5 GB``, ``1048576``."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

_FACTORS: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgtp", start=1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)\s*([a-zA-Z]*)\s*$")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``40GiB`` (2³⁰) or ``40GB`` (10⁹); a bare number is bytes.

    Raises `ValueError` for anything else.
    """
    match = _SIZE.match(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"must be a size such as 40GiB, 10.5GB or a number of bytes, got {text!r}")
    return int(float(match.group(1)) * factor + 0.5)


def _to_bytes(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except ValueError as error:
            raise PydanticCustomError("byte_size", "{text}", {"text": str(error)}) from error
    return value


ByteSize = Annotated[int, BeforeValidator(_to_bytes, json_schema_input_type=int | str), Field(gt=0, le=1 << 60)]
