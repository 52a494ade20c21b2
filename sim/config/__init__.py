"""The configuration of an experiment: YAML in, validated models or all errors at once out.

>>> from sim.config import load_config
>>> load_config("configs/quickstart.yaml", ["engine.block_size=32"]).engine.block_size  # doctest: +SKIP
32
"""

from sim.config.load import LoadedConfig, config_from_mapping, load_config, read_config
from sim.config.models import EngineConfig, EvictionConfig, ExperimentConfig, KVGroup, RecordingConfig, Slo, Warmup

__all__ = [
    "EngineConfig",
    "EvictionConfig",
    "ExperimentConfig",
    "KVGroup",
    "LoadedConfig",
    "RecordingConfig",
    "Slo",
    "Warmup",
    "config_from_mapping",
    "load_config",
    "read_config",
]
