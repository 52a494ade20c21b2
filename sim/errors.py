"""Exceptions of the library.  Only the command line prints them or exits."""

from __future__ import annotations


class KvsimError(Exception):
    """Base of all errors that the user can mend: the message says what, where and what would be right."""


class ConfigError(KvsimError):
    """A configuration that cannot be run; the message holds one line per fault, each with its YAML path."""


class RecordingError(KvsimError):
    """A recording of the reference that is cut short, of an unknown version or with unknown fields."""


class ResultsError(KvsimError):
    """A results folder that is missing, damaged or from another version."""


class InvariantError(KvsimError):
    """A law of the simulator does not hold; the message names the law and shows the state."""
