"""ServeGen client models: each client's arrival rates and length distributions, from which requests are drawn.

A folder or .tgz with, per client, ``chunk-N-trace.csv`` (``start_s, rate, cv, Gamma|Weibull|"", p1, p2``,
a window a line) and ``chunk-N-dataset.json`` (``{"0": {field: "{value: probability, …}"}, …}`` by the
second from which it holds; lengths are tokens, ``image_tokens`` is per image).

In a window the intervals between a client's requests follow the named distribution with shape p1,
scaled so that their mean is ``1 / rate``; without a name, an exponential one.  Every prompt is
unique, and so is every image: the model says nothing of content.
"""

from __future__ import annotations

import ast
import csv
import heapq
import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.files import archive_members
from workloads.readers.rows import Fault, ReaderOptions, answer_stream, fault_text, file_stem
from workloads.spec import MultiModalItem, Piece, RequestSpec, Segment, mix64, stream_id

NAME = "servegen"
SUMMARY = "ServeGen client models, images too; generates (folder or .tgz)"
_TRACE = re.compile(r"(?:(.*)/)?chunk-(\d+)-trace\.csv$")
_KEY = re.compile(r"([{,]\s*)(\d+)\s*:")
_MEMBER = re.compile(r"(?:^|/)chunk-\d+-(?:trace\.csv|dataset\.json)$")
TEXT = ("text_tokens", "input_tokens")
MEDIA = ("image", "audio", "video")
LAST_WINDOW_S = 600.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Options(ReaderOptions):
    """Settings of the ServeGen reader."""

    seed: int = Field(0, ge=0, description="seed of all draws; the same seed gives the same requests")
    model: str | None = Field(
        None, description="only this client pool (the folder's name); default: all, as categories"
    )
    rate_scale: float = Field(1.0, gt=0, description="factor on every rate")
    start_s: float = Field(0.0, ge=0, description="leave out what is before this second of the day")
    duration_s: float | None = Field(None, gt=0, description="length of the part used; default: to the end")


class Window(NamedTuple):
    """One row of a client's trace."""

    start_s: float
    rate: float
    distribution: str
    shape: float


class Discrete(NamedTuple):
    """A distribution over whole numbers: ascending values and cumulative probabilities."""

    values: Ints
    cumulative: Floats

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """`count` independent values."""
        return self.values[np.searchsorted(self.cumulative, rng.random(count), side="right")]

    @property
    def empty(self) -> bool:
        """Whether it gives nothing but zeros, or has no values at all."""
        return not len(self.values) or int(self.values[-1]) == 0


class Client(NamedTuple):
    """A client: its pool, number, windows and length distributions by the second they hold from."""

    pool: str
    number: int
    windows: list[Window]
    datasets: list[tuple[float, dict[str, Discrete]]]


def sniff(head: str, filename: str) -> bool:
    """Whether the archive holds a client's trace."""
    return any(_TRACE.match(line) for line in head.splitlines() if len(line) < 1000)


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """Requests drawn from the model, in order of arrival, time 0 at `start_s`.

    Raises:
        WorkloadError: files of the model that cannot be used, all named at once.
    """
    clients = read_clients(path, log)
    pools = sorted({client.pool for client in clients})
    if options.model is not None and options.model not in pools:
        raise WorkloadError(f"{NAME}.model: no client pool {options.model!r} in {path}; it has {', '.join(pools)}")
    chosen = [client for client in clients if options.model in (None, client.pool)]
    log.note(f"{path}: {len(chosen)} clients of {', '.join(pools)}; requests are drawn with seed {options.seed}")
    log.note("the model says nothing of content: every prompt and image is unique, so no reuse can come out")
    stem = file_stem(path)
    streams = [_requests(client, stem, options, log) for client in chosen]
    return heapq.merge(*streams, key=lambda spec: spec.arrival_s)


def read_clients(path: str | Path, log: ReadLog) -> list[Client]:
    """All clients of a model, by pool and number.

    Raises:
        WorkloadError: as `read`.
    """
    members = archive_members(path, lambda name: bool(_MEMBER.search(name)))
    out: list[Client] = []
    wrong: list[str] = []
    for name, content in members.items():
        found = _TRACE.match(name)
        if not found:
            continue
        other = name.replace("-trace.csv", "-dataset.json")
        full, full_other = f"{path}/{name}", f"{path}/{other}"
        try:
            windows = _windows(full, content, log)
            if other not in members:
                raise WorkloadError(f"{full_other}: missing; each client has a trace and a dataset")
            datasets = _datasets(full_other, members[other])
        except WorkloadError as error:
            wrong.append(str(error))
            continue
        pool = Path(found[1] or "").name
        out.append(Client(pool, int(found[2]), windows, datasets))
    if wrong:
        if not log.skip_bad_lines:
            raise WorkloadError("\n".join(wrong))
        for text in wrong:
            log.skip("clients whose files cannot be used", 1, text.splitlines()[0])
    if not out:
        raise WorkloadError(f"{path}: no usable client; a client is chunk-N-trace.csv and chunk-N-dataset.json")
    return sorted(out, key=lambda client: (client.pool, client.number))


def _windows(name: str, content: bytes, log: ReadLog) -> list[Window]:
    out: list[Window] = []
    faults: list[tuple[int, Fault]] = []
    lines = content.decode("utf-8", errors="replace").splitlines()
    for number, row in enumerate(csv.reader(io.StringIO("\n".join(lines))), 1):
        if not row:
            continue
        try:
            if len(row) != 6:
                raise Fault(f"{len(row)} cells; a window is start_s, rate, cv, distribution, p1, p2")
            start_s, rate, shape = _number(row[0], "start_s"), _number(row[1], "rate"), _number(row[4] or "0", "p1")
            kind = row[3].strip()
            if kind not in ("", "Gamma", "Weibull"):
                raise Fault(f"the distribution is {kind!r}; it must be Gamma, Weibull or empty")
            if kind and rate > 0 and not shape > 0:
                raise Fault(f"the shape of {kind} is {row[4]}; it must be greater than 0")
            if out and start_s <= out[-1].start_s:
                raise Fault(f"the window starts at {start_s:g}, not after the one before ({out[-1].start_s:g})")
            out.append(Window(start_s, rate, kind, shape))
        except Fault as fault:
            if log.skip_bad_lines:
                log.skip("bad line", 1, f"{name}:{number}: {fault}")
            else:
                faults.append((number, fault))
    if faults:
        raise WorkloadError(fault_text(name, faults))
    if not out:
        raise WorkloadError(f"{name}: the file is empty; a client has at least one window")
    return out


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:
        raise Fault(f"{name} is {text[:40]!r}; it must be a number, 0 or more")
    return value


def _datasets(name: str, content: bytes) -> list[tuple[float, dict[str, Discrete]]]:
    try:
        table = json.loads(content)
    except ValueError as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise WorkloadError(f"{name}{where}: no valid JSON ({error})") from None
    if not isinstance(table, dict) or not table:
        raise WorkloadError(f'{name}: must be an object {{"0": {{field: "{{value: probability}}"}}, …}}')
    out = []
    for start, fields in table.items():
        if not isinstance(fields, dict):
            raise WorkloadError(f"{name}: {start!r} must hold an object of distributions")
        if not any(key in fields for key in TEXT) or "output_tokens" not in fields:
            raise WorkloadError(
                f"{name}: {start!r} needs {' or '.join(TEXT)}, and output_tokens; it has {', '.join(fields)}"
            )
        try:
            begin = _number(start, "a window's start")
            parsed = {
                key: _discrete(value, key) for key, value in fields.items() if key.endswith(("_tokens", "_count"))
            }
        except Fault as fault:
            raise WorkloadError(f"{name}: {start!r}: {fault}") from None
        out.append((begin, parsed))
    return sorted(out, key=lambda item: item[0])


def _discrete(value: Any, name: str) -> Discrete:
    try:
        table = _literal(value) if isinstance(value, str) else value
        pairs = sorted((int(key), float(share)) for key, share in table.items())
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        raise Fault(f"{name} is {str(value)[:40]!r}; it must be a text {{value: probability, …}}") from None
    values = np.array([key for key, _ in pairs], dtype=np.int64)
    shares = np.array([share for _, share in pairs], dtype=np.float64)
    if len(pairs) and (values[0] < 0 or values[-1] > 1e9 or not np.all(np.isfinite(shares)) or shares.min() < 0):
        raise Fault(f"{name} has a negative or absurd value or probability")
    keep = shares > 0
    values, shares = values[keep], shares[keep]
    if len(values):
        cumulative = np.cumsum(shares)
        cumulative /= cumulative[-1]
        cumulative[-1] = 1.0
    else:
        cumulative = shares
    return Discrete(values, cumulative)


def _literal(text: str) -> Any:
    """A Python literal; the usual form ``{1: 0.5, 2: 0.5}`` by the much faster JSON parser."""
    try:
        return json.loads(_KEY.sub(r'\1"\2":', text))
    except ValueError:
        return ast.literal_eval(text)


def _requests(client: Client, stem: str, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """One client's requests in order of time."""
    scope = stream_id(NAME, stem, options.seed, client.pool, client.number)
    rng = np.random.default_rng([options.seed, scope])
    begin = options.start_s
    end = begin + options.duration_s if options.duration_s is not None else math.inf
    made = 0
    for index, window in enumerate(client.windows):
        last = index + 1 == len(client.windows)
        window_end = window.start_s + LAST_WINDOW_S if last else client.windows[index + 1].start_s
        if window.rate <= 0:
            continue
        times = window.start_s + _arrivals(rng, window, window_end - window.start_s, options.rate_scale)
        data = next(
            (data for start, data in reversed(client.datasets) if start <= window.start_s), client.datasets[0][1]
        )
        drawn = _lengths(rng, data, len(times))
        if drawn is None:
            log.skip("requests drawn in windows whose length distributions are empty", len(times))
            continue
        text, output, media = drawn
        for row, time in enumerate(times.tolist()):
            if not begin <= time < end:
                continue
            unique = mix64(scope + made) >> 1
            yield _request(client, made, time - begin, unique, int(text[row]), int(output[row]), media[row], log)
            made += 1


def _arrivals(rng: np.random.Generator, window: Window, length_s: float, rate_scale: float) -> Floats:
    """Times within a window: a renewal process whose first interval began before it."""
    rate = window.rate * rate_scale
    expected = rate * length_s
    out: list[Floats] = []
    at = 0.0
    count = int(expected + 4 * math.sqrt(expected) + 16)
    while at < length_s:
        if window.distribution == "Gamma":
            gaps = rng.gamma(window.shape, 1.0 / (rate * window.shape), count)
        elif window.distribution == "Weibull":
            gaps = rng.weibull(window.shape, count) / (rate * math.gamma(1.0 + 1.0 / window.shape))
        else:
            gaps = rng.exponential(1.0 / rate, count)
        if not out:
            gaps[0] *= rng.random()
        times = at + np.cumsum(gaps)
        out.append(times)
        at = float(times[-1])
    times = np.concatenate(out)
    return times[times < length_s]


def _lengths(
    rng: np.random.Generator, data: dict[str, Discrete], count: int
) -> tuple[Ints, Ints, list[list[tuple[str, int]]]] | None:
    """Text tokens, output tokens and (kind, tokens) of each medium of `count` requests; None: nothing to draw from."""
    text = next(data[key] for key in TEXT if key in data)
    output = data["output_tokens"]
    media: list[list[tuple[str, int]]] = [[] for _ in range(count)]
    some = False
    for kind in MEDIA:
        number, size = data.get(f"{kind}_count"), data.get(f"{kind}_tokens")
        if number is None or size is None or number.empty or size.empty:
            continue
        some = True
        counts = number.draw(rng, count)
        sizes = iter(size.draw(rng, int(counts.sum())).tolist())
        for row, many in enumerate(counts.tolist()):
            media[row] = media[row] + [(kind, tokens) for _, tokens in zip(range(many), sizes, strict=False) if tokens]
    if (text.empty and not some) or output.empty:
        return None
    texts = text.draw(rng, count) if not text.empty else np.zeros(count, dtype=np.int64)
    return texts, output.draw(rng, count), media


def _request(
    client: Client,
    number: int,
    time: float,
    unique: int,
    text: int,
    output: int,
    media: list[tuple[str, int]],
    log: ReadLog,
) -> RequestSpec:
    """A request: its media first, then its text."""
    request_id = f"{client.pool}/{client.number}/{number}"
    items = []
    pieces: list[Piece] = []
    at = 0
    for index, (kind, tokens) in enumerate(media):
        items.append(MultiModalItem(f"{request_id}/{kind}{index}", at, tokens))
        at += tokens
    if at + text:
        pieces.append(Segment(unique, 0, at + text))
    else:
        log.count("empty prompts (0 input tokens)")
    if output == 0:
        log.count("empty answers (0 output tokens)")
    return RequestSpec(
        request_id=request_id,
        arrival_s=time,
        prompt=tuple(pieces),
        output_tokens=output,
        answer_stream=answer_stream(unique),
        category=client.pool,
        session=None,
        mm_items=tuple(items),
        source=f"{client.pool}/chunk-{client.number}",
    )
