"""Modules in C, which are there if a C compiler was when kvsim was installed; arrays do the same without."""

from __future__ import annotations

import importlib
import os
from typing import Any

#: set to "off", this environment variable makes kvsim do without them
SWITCH = "KVSIM_KERNEL"


def load(name: str) -> Any:
    """The compiled module of this full name, or None."""
    if os.environ.get(SWITCH) == "off":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
