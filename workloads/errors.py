"""Errors that a person's input can cause; the command line turns them into one line and exit status 2."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A trace, generator setting or request that cannot be used as given.

    The message is one readable text: what is wrong, where (file and line, if any), and what
    would be right.  Several faults of one file are joined by newlines, one fault a line.
    """
