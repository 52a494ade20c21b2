"""The notebooks are what their scripts make, without output, and run from their own folder on shipped configs."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
NAMES = ["01_first_look", "02_block_size_and_memory", "03_eviction_policies", "04_your_own_trace",
         "05_your_own_policy", "06_multimodal"]  # fmt: skip
EXECUTED = [name if name.startswith("01") else pytest.param(name, marks=pytest.mark.long) for name in NAMES]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_notebooks_are_there() -> None:
    assert [script.stem for script in SCRIPTS] == NAMES
    assert sorted(p.stem for p in (ROOT / "notebooks").glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_its_script_without_output(name: str, tool: ModuleType) -> None:
    notebook = ROOT / "notebooks" / f"{name}.ipynb"
    text = notebook.read_text(encoding="utf-8")
    assert text == tool.notebook_text(notebook.with_suffix(".py")), "run tools/notebooks.py"
    cells = json.loads(text)["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
    assert cells[0]["cell_type"] == "markdown"  # a story opens with what it is about
    assert sum(".plot" in "".join(cell["source"]) for cell in cells) >= 2


@pytest.mark.parametrize("name", EXECUTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2
    assert not [output for output in outputs if output.get("name") == "stderr"], "a warning on stderr"
    assert (tmp_path / "results").is_dir()
    assert not list(folder.iterdir())  # nothing is written beside the notebooks
