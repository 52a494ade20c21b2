"""Workloads of an experiment: what the YAML says about them, and the requests that come of it.

A workload is one mapping, or a list of them that are merged by arrival::

    workload:
      kind: shared_prefix          # a generator, or `trace` for a file
      category: chat               # shaping, see `workloads.shaping.Shaping`
      limit: 2000
      prefixes: 20                 # the generator's own settings
      arrivals: {poisson: {rate_per_s: 5}}

Everything random in a workload comes from the run's seed and the workload's own name, so adding
another one changes nothing in it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError, create_model, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.oneof import Strict, fault
from workloads.registry import GENERATORS, READERS, detect, generator, read_trace, reader
from workloads.shaping import Shaping, merge, shape, silent
from workloads.spec import RequestSpec, stream_id

TRACE = "trace"


class WorkloadItem(Shaping):
    """One workload: its kind, how it is shaped, and (in the subclass of its kind) its own settings."""

    kind: str = Field(description="name of a generator, or `trace`")
    name: str | None = Field(
        default=None,
        min_length=1,
        description="tells workloads of one category apart and begins their request ids; null = category or kind",
    )
    category: str | None = Field(
        default=None,
        min_length=1,
        description="category of every request, in all tables; null = what a trace says, or the name or kind",
    )

    @property
    def label(self) -> str:
        """What tells this workload from the others of an experiment."""
        return self.name or self.category or self.kind

    def __reduce__(self) -> Any:
        # The class is made at run time, so another process makes it anew.
        return validate_item, (self.model_dump(mode="json"),)


class TraceParams(Strict):
    """Settings of a trace."""

    path: Annotated[str, Field(min_length=1)] = Field(
        description="file (plain or gzip), folder or .tgz; relative to the folder in which kvsim runs"
    )
    format: str = Field(default="auto", description="name of a reader; auto = told from the content")
    options: dict[str, Any] = Field(default={}, description="the reader's own settings")
    skip_bad_lines: bool = Field(default=False, description="count lines that cannot be used and go on")

    @model_validator(mode="after")
    def _known_format(self) -> TraceParams:
        if self.format != "auto" and self.format not in READERS:
            raise _error(("format",), self.format, _unknown("trace format", self.format, ["auto", *READERS]))
        if self.format != "auto":
            model = reader(self.format).Options
            try:
                model.model_validate(self.options)
            except ValidationError as error:
                raise _with_hints(error, model, "options") from None
        return self

    def expected_requests(self) -> int | None:
        """Unknown until the file is read."""
        return None


def kinds() -> list[str]:
    """Every kind of workload."""
    return [TRACE, *GENERATORS]


@cache
def item_model(kind: str) -> type[WorkloadItem]:
    """The model of a workload of one kind: shaping and the kind's own settings, side by side."""
    params: Any = TraceParams if kind == TRACE else generator(kind).Params
    one_kind: Any = Literal[kind]
    model: type[WorkloadItem] = create_model(
        f"{kind}_workload",
        __base__=(WorkloadItem, params),
        __doc__=params.__doc__,
        kind=(one_kind, Field(description=WorkloadItem.model_fields["kind"].description)),
    )
    return model


def validate_item(value: object) -> WorkloadItem:
    """A mapping as a workload.

    Raises:
        pydantic.ValidationError: with every fault, each at its path inside the mapping.
    """
    if isinstance(value, WorkloadItem):
        return value
    if not isinstance(value, Mapping):
        raise _error((), value, f"must be a mapping with a kind ({', '.join(kinds())}), not {value!r}")
    kind = value.get("kind")
    if kind is None:
        raise _error(("kind",), kind, f"is missing; there are {', '.join(kinds())}")
    if not isinstance(kind, str) or kind not in kinds():
        raise _error(("kind",), kind, _unknown("workload kind", kind, kinds()))
    model = item_model(kind)
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        raise _with_hints(error, model) from None


class _ByKind:
    """Makes pydantic validate a field by its `kind`; generators are imported when they are needed."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            validate_item,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda item: item.model_dump(mode="json")),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"title": "Workload", "oneOf": [handler(item_model(kind).__pydantic_core_schema__) for kind in kinds()]}


WorkloadField = Annotated[WorkloadItem, _ByKind()]
"""The type of a field that holds one workload, for models that embed it."""


def workload_json_schema() -> dict[str, Any]:
    """JSON Schema of one workload: one alternative for each kind."""
    return TypeAdapter(WorkloadField).json_schema()


class Workload:
    """The requests of an experiment, ready to be read (as often as needed)."""

    def __init__(self, items: Sequence[WorkloadItem], seed: int, log: ReadLog, max_model_len: int | None) -> None:
        self.items = tuple(items)
        self.seed = seed
        self.log = log
        self._max_model_len = max_model_len
        self._read = False

    @property
    def count(self) -> int | None:
        """How many requests there are, or None if only reading them tells."""
        counts = [_expected(item) for item in self.items]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def category(self) -> str:
        """The label of the workload, or of all of them joined by ``+``."""
        return "+".join(item.label for item in self.items)

    @property
    def notes(self) -> list[str]:
        """What reading or generating had to say so far."""
        return self.log.summary()

    def specs(self) -> Iterator[RequestSpec]:
        """All requests by arrival; those that follow another stand anywhere behind it.

        The first call tells `log` what is skipped, changed or odd; later ones are silent.

        Raises:
            WorkloadError, OSError: a trace cannot be used (also while iterating).
        """
        log = silent(self.log) if self._read else self.log
        self._read = True
        return merge([self._stream(item, log) for item in self.items])

    def _stream(self, item: WorkloadItem, log: ReadLog) -> Iterator[RequestSpec]:
        if isinstance(item, TraceParams) and item.skip_bad_lines and not log.skip_bad_lines:
            # The same tables, so that what is counted ends up in the caller's log.
            log = ReadLog(True, log.skipped, log.counts, log.examples, log.notes, log.warnings, log.lines)
        seed = np.random.SeedSequence(self.seed, spawn_key=(stream_id(item.label),))

        def source(log: ReadLog) -> Iterator[RequestSpec]:
            if isinstance(item, TraceParams):
                return _named(_read(item, seed, log), item.name)
            specs: Iterator[RequestSpec] = generator(item.kind).generate(item, seed, log, f"{item.label}-")
            return specs

        return shape(
            source,
            item,
            log,
            category=item.category,
            default_category=item.label,
            max_model_len=self._max_model_len,
        )


def open_workload(
    config: WorkloadItem | Mapping[str, Any] | Sequence[WorkloadItem | Mapping[str, Any]],
    seed: int,
    log: ReadLog | None = None,
    *,
    max_model_len: int | None = None,
) -> Workload:
    """Prepare the requests of one workload or several.

    Args:
        config: one workload or a list of them, as models or as plain mappings.
        seed: the run's seed, ≥ 0.
        log: receives what is skipped, changed or odd; a new one if None (`Workload.log`).
        max_model_len: the engine's, for `fit` where that names none.

    Raises:
        WorkloadError: a workload is not valid (one line per fault), two have the same name, or a trace is missing.
    """
    values = [config] if isinstance(config, WorkloadItem | Mapping) else list(config)
    items = []
    faults = []
    for number, value in enumerate(values):
        try:
            items.append(validate_item(value))
        except ValidationError as error:
            where = "workload" if len(values) == 1 else f"workloads.{number}"
            faults += [f"{'.'.join(map(str, (where, *e['loc'])))}: {e['msg']}" for e in error.errors()]
    faults = faults or ["workloads: the list is empty; give at least one"] * (not items) or check_labels(items)
    if faults:
        raise WorkloadError("\n".join(faults))
    for item in items:
        if isinstance(item, TraceParams) and not Path(item.path).exists():
            raise WorkloadError(f"{item.path}: no such file or folder (the path of workload {item.label!r})")
    return Workload(items, seed, log if log is not None else ReadLog(), max_model_len)


def check_labels(items: Sequence[WorkloadItem]) -> list[str]:
    """One line for each workload that cannot be told from an earlier one, because it has the same label."""
    seen: dict[str, int] = {}
    faults = []
    for number, item in enumerate(items):
        first = seen.setdefault(item.label, number)
        if first != number:
            faults.append(
                f"workloads.{number}: is called {item.label!r} like workloads.{first}; give it a name of its own"
            )
    return faults


def _expected(item: WorkloadItem) -> int | None:
    count: int | None = item.expected_requests()  # type: ignore[attr-defined]
    if count is None or item.changes_count():
        return None
    if item.limit is not None:
        count = min(count, item.limit)
    return count * (item.repeat.times if item.repeat else 1)


def _read(item: TraceParams, seed: np.random.SeedSequence, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests of a file; a reader that draws at random does so from the run's seed, unless an option names one."""
    name = item.format
    if name == "auto":
        name = detect(item.path)
        log.note(f"{Path(item.path).name} was recognised as {name}")
    options = item.options
    if "seed" in reader(name).Options.model_fields and "seed" not in options:
        options = {**options, "seed": int(seed.generate_state(1)[0])}
    return read_trace(item.path, log, name, options)


def _named(specs: Iterator[RequestSpec], name: str | None) -> Iterator[RequestSpec]:
    """Request ids, sessions and references of a trace that was given a name begin with it."""
    for spec in specs:
        yield (
            spec
            if name is None
            else replace(
                spec,
                request_id=f"{name}-{spec.request_id}",
                session=None if spec.session is None else f"{name}-{spec.session}",
                after=None if spec.after is None else f"{name}-{spec.after}",
            )
        )


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known)}" if len(known) > 1 else f"there is {known[0] if known else 'none'}"


def _unknown(what: str, name: object, known: Sequence[str]) -> str:
    return f"unknown {what} {name!r}; {_nearest(str(name), known)}"


def _error(loc: tuple[str | int, ...], value: object, text: str) -> ValidationError:
    return ValidationError.from_exception_data("workload", [InitErrorDetails(type=fault(text), loc=loc, input=value)])


def _with_hints(error: ValidationError, model: type[BaseModel], *where: str) -> ValidationError:
    """The same faults at `where`, but an unknown key comes with the nearest known ones."""
    details = []
    for one in error.errors():
        kind: str | PydanticCustomError = one["type"]
        if kind == "extra_forbidden" and one["msg"] == _EXTRA:
            near = _nearest(str(one["loc"][-1]), _keys(model, one["loc"][:-1]))
            kind = PydanticCustomError("extra_forbidden", f"unknown key; {near}")
        elif kind not in _BUILT_IN or kind == "extra_forbidden":
            kind = PydanticCustomError(one["type"], one["msg"])
        loc = (*where, *one["loc"])
        details.append(InitErrorDetails(type=kind, loc=loc, input=one["input"], ctx=one.get("ctx", {})))
    return ValidationError.from_exception_data("workload", details)


_EXTRA = "Extra inputs are not permitted"
_BUILT_IN = frozenset(get_args(core_schema.ErrorType))


def _keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that are known at a path inside a model."""
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The first model in a type such as ``tuple[Level, ...]`` or ``Window | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)
