"""Makes notebooks/*.ipynb from the percent scripts beside them, without output; ``--check`` only compares.

    .venv/bin/python tools/notebooks.py [--check]

The same script makes the same bytes: cells are numbered, and nothing of this machine is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook_text(script: Path) -> str:
    """The notebook of a percent script, as it is written to disk."""
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number:02}"
        cell["metadata"] = nbformat.from_dict({})
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def main(argv: list[str]) -> int:
    """Write, or compare; the exit status says whether all were in step."""
    stale = 0
    for script in sorted(FOLDER.glob("*.py")):
        target, text = script.with_suffix(".ipynb"), notebook_text(script)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" in argv:
            print(f"{target.name}: not what {script.name} makes; run tools/notebooks.py", file=sys.stderr)
        else:
            target.write_text(text, encoding="utf-8")
            print(f"{target.name}: written", file=sys.stderr)
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
