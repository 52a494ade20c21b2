"""The catalog of models and GPUs: one YAML file per entry under `sim/data`, found by any of its names.

Names are compared without case, organisation and punctuation, so `llama-3.1-8b`,
`meta-llama/Llama-3.1-8B-Instruct` and `Meta-Llama-3.1-8B` are the same model.  A path that exists
is read as a Hugging Face `config.json` instead.
"""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from sim.core.kv_cache_spec import PlanningError
from sim.timing.gpus import GpuSpec
from sim.timing.models import ModelSpec, weight_format

DATA = Path(__file__).resolve().parents[1] / "data"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Entry = TypeVar("Entry", bound=BaseModel)

# endings that say how a model was tuned or stored, not what its geometry is
_TUNING = re.compile(
    r"[-_](instruct|it|chat|hf|base|pt|fp8|fp8-dynamic|awq|gptq|nvfp4|w8a8|bf16|quantized.*|gptq-int4|2507)$"
)
# and those that say that this copy's weights are stored otherwise than the published ones
_STORED = re.compile(r"[-_](fp8|nvfp4|awq|gptq|w8a8)([-_]|$)")


def find_model(name: str, base: Path | None = None) -> ModelSpec:
    """The model of this catalog name, or of this `config.json` (or its folder), relative to `base`.

    Raises `PlanningError` with the nearest names, or with what the file lacks.
    """
    from sim.timing.hf_config import read_hf_config

    path = (base or Path()) / name
    if name.endswith(".json") or path.is_dir():
        return read_hf_config(path)
    slug = _index("models").get(_key(name)) or _index("models").get(_plain_key(name))
    if slug is None:
        raise PlanningError(_unknown("model", name, "models", "; or give the path of a config.json"))
    model = _model(slug)
    stored = _STORED.search(name.lower())
    return model.model_copy(update={"weights": weight_format(stored[1])}) if stored else model


def find_gpu(name: str) -> GpuSpec:
    """The GPU of this name.  Raises `PlanningError` with the nearest names."""
    slug = _index("gpus").get(_key(name))
    if slug is None:
        raise PlanningError(_unknown("GPU", name, "gpus", ""))
    return _gpu(slug)


def all_models() -> list[ModelSpec]:
    """Every model of the catalog, by name without organisation."""
    models = [_model(path.stem) for path in sorted((DATA / "models").glob("*.yaml"))]
    return sorted(models, key=lambda model: model.name.split("/")[-1].lower())


def all_gpus() -> list[GpuSpec]:
    """Every GPU of the catalog, by name."""
    return [_gpu(path.stem) for path in sorted((DATA / "gpus").glob("*.yaml"))]


def nearest(name: str, known: list[str], count: int = 3) -> list[str]:
    """The known names most like this one, best first, compared without case and organisation."""
    plain = {_key(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_key(name), list(plain), n=count, cutoff=0.4)
    return [plain[key] for key in found]


def _unknown(what: str, name: str, folder: str, alternative: str) -> str:
    likely = nearest(name, _names(folder))
    hint = f"the nearest are {', '.join(likely)}" if likely else f"`kvsim {folder}` lists the known ones"
    return f"unknown {what} {name!r}: {hint}{alternative}"


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower().split("/")[-1])


def _plain_key(name: str) -> str:
    plain = name.lower()
    while (shorter := _TUNING.sub("", plain)) != plain:
        plain = shorter
    return _key(plain)


@functools.cache
def _index(folder: str) -> dict[str, str]:
    """Key of every name and alias → file name without ending.  A full name wins over a shortened one."""
    exact: dict[str, str] = {}
    plain: dict[str, str] = {}
    for path in sorted((DATA / folder).glob("*.yaml")):
        for name in _names_in(path):
            exact.setdefault(_key(name), path.stem)
            plain.setdefault(_plain_key(name), path.stem)
    return plain | exact


@functools.cache
def _names(folder: str) -> list[str]:
    paths = sorted((DATA / folder).glob("*.yaml"))
    return list({_key(name): name.split("/")[-1] for path in paths for name in reversed(_names_in(path))}.values())


def _names_in(path: Path) -> list[str]:
    """Name and aliases without parsing the whole file: entries open with them, one a line."""
    names: list[str] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            field, _, value = line.partition(":")
            if field not in ("name", "aliases"):
                break
            parsed = yaml.load(value, Loader=_Loader)  # noqa: S506  a safe loader
            names += map(str, parsed if isinstance(parsed, list) else [parsed])
    return names


@functools.cache
def _model(slug: str) -> ModelSpec:
    return _load(slug, "models", ModelSpec)


@functools.cache
def _gpu(slug: str) -> GpuSpec:
    return _load(slug, "gpus", GpuSpec)


def _load(slug: str, folder: str, kind: type[Entry]) -> Entry:
    path = DATA / folder / f"{slug}.yaml"
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  a safe loader
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise PlanningError(f"{path}: {where}: {first['msg']}") from None
