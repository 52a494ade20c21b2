"""Recordings for tests: where they are, and copies with something changed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def read(name: str) -> dict:
    return json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))


def names(folder: str) -> list[str]:
    found = sorted(f"{folder}/{path.name.removesuffix('.json.gz')}" for path in (GOLDEN / folder).glob("*.json.gz"))
    assert found, f"no recordings in {folder}"
    return found


def write(path: Path, recording: object) -> Path:
    path.write_text(json.dumps(recording))
    return path


def places(value: object, at: tuple = ()):
    """Paths of all values inside; of a list's entries only the first two."""
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 2)):
            yield from places(value[index], (*at, index))
