"""From a YAML file, a mapping and ``--set`` to one validated configuration, or to every fault at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.config.checks import cross_faults
from sim.config.errors import ConfigFaults, Places, fault_lines
from sim.config.models import ExperimentConfig
from sim.config.overrides import apply_overrides, parse_override
from sim.config.serve import with_serve_line
from sim.config.yaml_io import KeyPath, dump_yaml, read_yaml
from sim.errors import ConfigError, KvsimError


class LoadedConfig(NamedTuple):
    """A raw configuration: its mapping, and where each value came from."""

    data: dict[str, Any]
    places: Places


def read_config(
    path: str | Path, overrides: Iterable[str] = (), *, trace: str | None = None, serve: str | None = None
) -> LoadedConfig:
    """Read a YAML file and apply ``a.b=value`` overrides, without validating it yet.

    Args:
        path: the YAML file.
        overrides: texts as after ``--set``, later ones win.
        trace: file of the (only) workload of kind `trace`.
        serve: a ``vllm serve …`` command line.

    Raises:
        ConfigError: the file or an override cannot be read; for overrides all of them at once.
    """
    document = read_yaml(path)
    data, places = dict(document.data), Places(str(path), document.lines)
    data.setdefault("name", _name_of(path))
    faults, parsed = [], []
    for text in overrides:
        try:
            parsed.append(parse_override(text))
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigFaults(faults)
    if serve is not None:
        data = with_serve_line(data, serve, force=True)
        places.overrides[("serve",)] = "--serve"
    data = apply_overrides(data, parsed)
    for override in parsed:
        places.overrides[override.path] = f"--set {override.text}"
    if trace is not None:
        data = _with_trace(data, trace, places)
    _find_files(data, Path(path).parent)
    return LoadedConfig(data, places)


def load_config(
    path: str | Path, overrides: Iterable[str] = (), *, trace: str | None = None, serve: str | None = None
) -> ExperimentConfig:
    """Read and validate a YAML file.  Raises `ConfigError` with one line for every fault."""
    data, places = read_config(path, overrides, trace=trace, serve=serve)
    return config_from_mapping(data, places)


def config_from_mapping(data: Mapping[str, Any], places: Places | None = None) -> ExperimentConfig:
    """Validate a configuration given as a mapping, as in YAML.

    Raises `ConfigFaults` (a `ConfigError`) with one line for every fault.
    """
    places = places or Places()
    lines: list[str] = []
    config: ExperimentConfig | None = None
    if isinstance(data.get("serve"), str):
        try:
            data = with_serve_line(data, data["serve"], force=False)
        except KvsimError as error:
            lines = [places.fault(("serve",), text.removeprefix("--serve: ")) for text in str(error).splitlines()]
    try:
        config = ExperimentConfig.model_validate(dict(data))
    except ValidationError as error:
        lines += fault_lines(error, ExperimentConfig, data, places)
    if config is not None and not lines:
        lines = cross_faults(config, places)
    if lines or config is None:
        raise ConfigFaults(lines)
    return config


def config_hash(config: ExperimentConfig) -> str:
    """16 hex digits that name the resolved configuration: equal ones have equal hashes."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resolved_yaml(config: ExperimentConfig) -> str:
    """The resolved configuration as YAML, every default written out; `load_config` reads it back."""
    data = config.model_dump(mode="json")
    # what it leaves out is no default but left to be planned
    data["memory"] = config.memory.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for alternative in ("workload", "workloads", "question", "serve", "sweep", "slo"):
        if data[alternative] is None:
            del data[alternative]
    return dump_yaml(data)


def _name_of(path: str | Path) -> str:
    """A valid experiment name from a file's name."""
    stem = Path(path).name.split(".")[0]
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in stem).lstrip("-_")
    return name[:100] or "experiment"


def _with_trace(data: dict[str, Any], trace: str, places: Places) -> dict[str, Any]:
    """The mapping with the file of ``--trace`` in its workload of kind `trace`."""
    found: list[tuple[KeyPath, dict[str, Any]]] = []
    if isinstance(data.get("workload"), dict):
        found.append((("workload",), data["workload"]))
    for index, part in enumerate(data["workloads"] if isinstance(data.get("workloads"), list) else []):
        if isinstance(part, dict):
            found.append((("workloads", index), part))
    traces = [(path, part) for path, part in found if part.get("kind") == "trace"]
    if len(traces) != 1:
        raise ConfigFaults(
            [
                f"--trace {trace}: needs exactly one workload of kind: trace in the configuration, "
                f"{places.file or 'which'} has {len(traces)}"
            ]
        )
    path, part = traces[0]
    part["path"] = trace
    places.overrides[(*path, "path")] = f"--trace {trace}"
    return data


def _find_files(data: dict[str, Any], folder: Path) -> None:
    """A relative file that is not in the current folder is looked for beside the configuration."""
    parts = [data.get("workload"), data.get("timing"), data.get("memory")]
    parts += data["workloads"] if isinstance(data.get("workloads"), list) else []
    for part in parts:
        if not isinstance(part, dict):
            continue
        for key in ("path", "model"):
            value = part.get(key)
            if isinstance(value, str) and value and not Path(value).is_absolute() and not Path(value).exists():
                beside = folder / value
                if beside.exists():
                    part[key] = str(beside)
