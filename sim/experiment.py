"""One experiment: configuration → workload, engine, clients, recorder → a results folder."""

from __future__ import annotations

import gc
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from sim.analysis.eviction_cost import costs_table, eviction_costs
from sim.clients import Clients
from sim.config import ExperimentConfig, config_from_mapping, load_config
from sim.config.load import config_hash, resolved_yaml
from sim.config.resolve import Resolved, resolve
from sim.core.cache_groups import hash_block_size
from sim.engine.choice import choose_decider
from sim.engine.clock import Clock
from sim.engine.requests import door
from sim.errors import InvariantError
from sim.fast.kernel import compiled
from sim.recording.kv_events import KVEventWriter
from sim.recording.miss_observer import watched_group
from sim.recording.miss_summary import miss_definitions, miss_figures
from sim.recording.miss_tracker import MissTracker
from sim.recording.recorder import Recorder
from sim.recording.results import RunResult
from sim.recording.run_folder import RunFolder, describe_input
from sim.recording.summary import Levels, WarmupRule, summarise
from sim.recording.tally import Tally
from sim.timing.serve_line import parse_serve_line
from workloads.fingerprint import sequence_fingerprints
from workloads.load import TraceParams, Workload, open_workload
from workloads.packed import PackedWorkload

Progress = Callable[[int, int | None, float], None]
_DEFAULT_WARMUP = 0.1


class _Done(NamedTuple):
    """What a finished simulation hands over."""

    summary: dict[str, Any]
    rows: dict[str, int]


def run(
    config: ExperimentConfig | Mapping[str, Any] | str | Path,
    *,
    progress: bool | Progress = False,
    out: str | Path | None = None,
    run_name: str | None = None,
    overwrite: bool = False,
    check_invariants: bool = False,
    command: str | None = None,
    workload: PackedWorkload | None = None,
) -> RunResult:
    """Run one experiment and write its results folder.

    Args:
        config: a configuration, a mapping as in YAML, or the path of a YAML file.
        progress: True for a bar on stderr; or a function of (requests ended, requests in all or None,
            simulated seconds), called at every end of a request.
        out: the results folder (default ``results``).
        run_name: the run's folder (default: 12 digits of the configuration's hash, so that the same
            configuration has the same folder).
        overwrite: replace a finished run of that name that came from something else.
        check_invariants: check every law after every step; slow.
        command: how the run was started, for the manifest.
        workload: the configuration's workload, packed before (a sweep shares it among its points).

    Returns:
        The finished run.

    Raises:
        ConfigError: the configuration has faults, one line each.
        WorkloadError: a trace or workload cannot be used.
        ResultsError: another run stands in the folder.
        InvariantError: a law of the simulator does not hold.
    """
    if isinstance(config, str | Path):
        config = load_config(config)
    elif not isinstance(config, ExperimentConfig):
        config = config_from_mapping(config)
    resolved = resolve(config)
    started = time.time()
    folder = RunFolder(
        out if out is not None else "results",
        config.name,
        run_name or config_hash(config)[:12],
        _manifest(config, command, started),
        overwrite=overwrite,
    )
    try:
        (folder.path / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
        done = _simulate(config, resolved, folder.path, progress, check_invariants=check_invariants, packed=workload)
    except BaseException as error:
        folder.fail(f"{type(error).__name__}: {error}".splitlines()[0], _cost(started))
        raise
    tables = {name: {"file": f"{name}.parquet", "rows": rows} for name, rows in done.rows.items()}
    return RunResult(folder.finish(done.summary, {"tables": tables} | _cost(started)))


def simulate(config: ExperimentConfig, folder: Path, *, check_invariants: bool = False) -> dict[str, Any]:
    """Run without a results folder around it: tables go to `folder`, the summary is returned."""
    return _simulate(config, resolve(config), folder, False, check_invariants=check_invariants).summary


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles of garbage a hundred times less often: a run makes many small objects and hardly any cycle."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 100_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _simulate(
    config: ExperimentConfig,
    resolved: Resolved,
    folder: Path,
    progress: bool | Progress,
    *,
    check_invariants: bool,
    packed: PackedWorkload | None = None,
) -> _Done:
    workload = packed or _open(config, resolved)
    tally = Tally()
    with (
        _rare_collections(),
        Recorder(folder, _tables(config), tally=tally) as recorder,
        _event_writer(config, folder) as events,
        _Bar(progress, workload) as bar,
    ):
        misses = _miss_tracker(config, resolved, recorder)
        clock = Clock()
        choice = choose_decider(
            config,
            resolved,
            recorder,
            lambda: (packed or _open(config, resolved)).specs(),
            check_invariants=check_invariants,
            events=events,
            fingerprints=sequence_fingerprints if packed is None else packed.fingerprints,
            misses=misses,
        )
        clients = Clients(clock, workload.specs(), choice.decider, recorder, door(resolved.scheduler), bar.update)
        clients.run()
        choice.decider.close()
        explained = {} if misses is None else _explain(misses, recorder)
    total = sum(clients.ended.values())
    if tally.rows["requests"] != total:
        raise InvariantError(f"law 5: {total} requests ended and {tally.rows['requests']} were recorded")
    figures = summarise(
        tally,
        total_requests=total,
        block_size=config.engine.block_size,
        warmup=_warmup(config),
        slo=Levels(config.slo.ttft_s, config.slo.tpot_s, config.slo.e2e_s) if config.slo is not None else None,
    )
    notes = list(workload.notes)
    if config.serve is not None:
        notes += [f"serve: {note}" for note in parse_serve_line(config.serve).notes()]
    clamped = getattr(choice.step_time, "clamped_steps", 0)
    if clamped:
        notes.append(f"{clamped} steps lie outside the measured points of the step times; the nearest point was taken")
    if clients.late_follow_ups:
        notes.append(
            f"{clients.late_follow_ups} follow-ups stand so far behind what they follow that they arrived late; "
            "put them next to it in the workload"
        )
    return _Done(
        {
            "name": config.name,
            "question": config.question,
            "kvsim_version": metadata.version("kvsim"),
            "config_hash": config_hash(config),
            "seed": config.seed,
            "implementation": choice.name,
            "implementation_reason": choice.reason,
            "timing": choice.step_time.describe(),
            "num_gpu_blocks": resolved.scheduler.num_gpu_blocks,
            "block_size": config.engine.block_size,
            "eviction_policy": config.eviction.policy,
            "memory": {key: value for key, value in resolved.account.as_dict().items() if value not in (None, [], ())},
            "skipped": dict(workload.log.skipped),
            "notes": notes,
            **figures,
            **explained,
            "definitions": figures["definitions"] | (miss_definitions() if explained else {}),
        },
        {name: recorder.rows[name] for name in _tables(config)},
    )


def _open(config: ExperimentConfig, resolved: Resolved) -> Workload:
    return open_workload(config.workload_items(), config.seed, max_model_len=resolved.scheduler.max_model_len)


def _event_writer(config: ExperimentConfig, folder: Path) -> AbstractContextManager[KVEventWriter | None]:
    form = config.recording.kv_events
    return nullcontext() if form == "none" else KVEventWriter(folder, form)


def _miss_tracker(config: ExperimentConfig, resolved: Resolved, recorder: Recorder) -> MissTracker | None:
    if not config.recording.misses:
        return None
    groups = resolved.scheduler.groups
    block_size = groups[watched_group(groups)].block_size
    return MissTracker(recorder, resolved.scheduler.num_gpu_blocks, block_size, hash_block_size(groups))


def _explain(misses: MissTracker, recorder: Recorder) -> dict[str, Any]:
    """Write what the evictions cost, and sum up."""
    history = misses.history()
    costs = eviction_costs(history)
    recorder.append("eviction_costs", costs_table(history, costs))
    return miss_figures(misses, costs)


def _tables(config: ExperimentConfig) -> list[str]:
    recording = config.recording
    wanted = {
        "requests": recording.requests,
        "steps": recording.steps,
        "evictions": recording.evictions,
        "stalls": recording.steps,
        "misses": recording.misses,
        "eviction_costs": recording.misses,
    }
    return [name for name, wants in wanted.items() if wants]


def _warmup(config: ExperimentConfig) -> WarmupRule:
    rule = config.warmup
    if rule.fraction is None and rule.requests is None and rule.time_s is None:
        return WarmupRule(fraction=_DEFAULT_WARMUP)
    return WarmupRule(rule.fraction, rule.requests, rule.time_s)


def _manifest(config: ExperimentConfig, command: str | None, started: float) -> dict[str, Any]:
    paths = [item.path for item in config.workload_items() if isinstance(item, TraceParams)]
    timing_path = getattr(config.timing, "path", None)
    return {
        "name": config.name,
        "seed": config.seed,
        "config_hash": config_hash(config),
        "inputs": [describe_input(path) for path in [*paths, *([timing_path] if timing_path else [])]],
        "kvsim_version": metadata.version("kvsim"),
        "command": command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "compiled_kernels": compiled(),
        "packages": {name: metadata.version(name) for name in ("numpy", "simpy", "pyarrow", "pydantic")},
    }


def _cost(started: float) -> dict[str, Any]:
    """Wall time and the most memory that the process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall_s": round(time.time() - started, 3),
        "peak_memory_bytes": peak * (1 if sys.platform == "darwin" else 1024),
    }


class _Bar:
    """A progress bar on stderr, or the caller's function, or nothing."""

    def __init__(self, progress: bool | Progress, workload: Workload | PackedWorkload) -> None:
        self._function = progress if callable(progress) else None
        self._total = workload.count
        self._bar: Any = None
        self._shown = 0.0
        if progress is True:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, unit=" requests", desc="simulating", leave=False, smoothing=0.1)

    def update(self, ended: int, now_s: float) -> None:
        """One more request has ended."""
        if self._function is not None:
            self._function(ended, self._total, now_s)
        if self._bar is not None:
            self._bar.update(1)
            if now_s - self._shown >= 1.0:
                self._shown = now_s
                self._bar.set_postfix_str(f"{now_s:,.0f} s simulated", refresh=False)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
