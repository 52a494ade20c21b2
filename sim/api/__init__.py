"""The Python interface: what the command line does, one call each.

>>> import sim  # doctest: +SKIP
>>> results = sim.run("configs/quickstart.yaml", progress=True)  # doctest: +SKIP
>>> results.summary["hit_rate"], results.requests.head(), results.plot.ttft()  # doctest: +SKIP

`import sim` offers these by name; the modules here are imported when a name is first used, and what
they need (pandas, matplotlib, the simulator) when a call needs it.
"""

# name -> module of this package
CALLS = {
    "load": "experiments",
    "run": "experiments",
    "sweep": "experiments",
    "open_results": "experiments",
    "write_report": "experiments",
    "compare": "experiments",
    "verify": "experiments",
    "inspect": "workload",
    "convert": "workload",
    "workloads": "workload",
    "curve": "workload",
    "plan": "hardware",
    "fit": "hardware",
    "models": "hardware",
    "gpus": "hardware",
    "settings": "settings",
    "schema": "settings",
    "RunResults": "results",
    "SweepResults": "results",
    "Comparison": "results",
    "Inspection": "workload",
    "Curves": "workload",
}

# sections of a configuration, to build one in Python: name -> module
SECTIONS = {
    "ExperimentConfig": "sim.config.models",
    "EngineConfig": "sim.config.models",
    "KVGroup": "sim.config.models",
    "EvictionConfig": "sim.config.models",
    "RecordingConfig": "sim.config.models",
    "Warmup": "sim.config.models",
    "Slo": "sim.config.models",
    "SweepConfig": "sim.config.sweep",
    "Variant": "sim.config.sweep",
    "MemoryConfig": "sim.timing.memory",
    "Geometry": "sim.timing.memory",
    "FixedTiming": "sim.timing.config",
    "LinearTiming": "sim.timing.config",
    "RooflineTiming": "sim.timing.config",
    "TableTiming": "sim.timing.config",
}


def module_of(name: str) -> str:
    """The module that defines a name of the interface.  Raises `KeyError`."""
    return SECTIONS[name] if name in SECTIONS else f"sim.api.{CALLS[name]}"
