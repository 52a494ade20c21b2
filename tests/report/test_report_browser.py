"""Pages in a real browser: no error, no missing picture, no text that runs, nothing wider than the screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CONFIG, write_run, write_sweep

from sim.report.build import write_report
from sim.report.compare_page import write_comparison
from sim.report.comparison import compare

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PROBE = """
<script>
const errors = [];
addEventListener("error", e => errors.push(e.message || e.target.tagName), true);
addEventListener("load", () => {
  const images = [...document.images];
  const out = document.createElement("output");
  out.id = "probe";
  out.textContent = JSON.stringify({
    errors,
    images: images.length,
    missing: images.filter(i => !i.complete || i.naturalWidth === 0).length,
    hidden: images.filter(i => i.getBoundingClientRect().width < 100).length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    darkImages: images.filter(i => i.currentSrc !== i.src).length,
    width: document.documentElement.clientWidth,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    resources: performance.getEntriesByType("resource").map(e => e.name.slice(0, 60))
      .filter(name => !name.startsWith("data:")),
    attacked: typeof window.attacked !== "undefined",
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  });
  document.body.append(out);
});
</script>
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: install the system's package 'chromium'"),
]
ATTACK = "<script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>"


def look(page: Path, tmp_path: Path, width: int = 1280, dark: bool = False) -> dict[str, object]:
    """Load the page with a probe in front and return what the probe saw."""
    probed = tmp_path / f"probed-{width}-{dark}.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("<head>", "<head>" + PROBE, 1), encoding="utf-8")
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [str(BROWSER), *FLAGS, profile, f"--window-size={width},2000", *theme, "--virtual-time-budget=5000"]
    done = subprocess.run(
        [*command, "--dump-dom", probed.as_uri()], capture_output=True, text=True, timeout=90, check=False
    )
    found = re.search(r'<output id="probe">(.*?)</output>', done.stdout, re.DOTALL)
    assert found is not None, f"the browser gave no page: {done.stderr[-500:]}"
    seen: dict[str, object] = json.loads(html.unescape(found[1]))
    return seen


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("pages")
    config = {**CONFIG, "name": ATTACK, "question": ATTACK}
    first, second = write_run(base / "a", config=config), write_run(base / "b", seed=1)
    return {
        "run": write_report(first),
        "sweep": write_report(write_sweep(base / "s", name=ATTACK, held_fixed={ATTACK: ATTACK})),
        "compare": write_comparison(compare([first, second]), base / "c" / "compare.html"),
    }


@pytest.mark.parametrize(("kind", "width"), [("run", 1280), ("run", 500), ("sweep", 500), ("compare", 500)])
def test_page_in_a_browser(kind: str, width: int, pages: dict[str, Path], tmp_path: Path):
    seen = look(pages[kind], tmp_path, width)
    assert seen["errors"] == []
    assert seen["images"]
    assert seen["missing"] == 0
    assert seen["hidden"] == 0
    assert seen["resources"] == [], "nothing is loaded from elsewhere"
    assert seen["attacked"] is False
    assert seen["overflow"] == 0, "nothing is wider than the screen"


def test_dark_is_dark_with_its_own_pictures(pages: dict[str, Path], tmp_path: Path):
    light, dark = look(pages["run"], tmp_path), look(pages["run"], tmp_path, dark=True)
    assert (light["dark"], dark["dark"]) == (False, True)
    assert light["darkImages"] == 0
    assert dark["darkImages"] == dark["images"]
    assert dark["missing"] == 0
    assert dark["background"] != light["background"]
    assert dark["ink"] != light["ink"]


def test_phone_wide_page_does_not_scroll_sideways(pages: dict[str, Path], tmp_path: Path):
    """Headless windows are at least 500 pixels wide, so the page is put in a frame as wide as a phone."""
    frame = tmp_path / "frame.html"
    inner = (tmp_path / "inner.html").resolve()
    measure = (
        "<script>addEventListener('load', () => parent.postMessage("
        "document.documentElement.scrollWidth - document.documentElement.clientWidth, '*'))</script>"
    )
    inner.write_text(pages["run"].read_text(encoding="utf-8").replace("<head>", "<head>" + measure), encoding="utf-8")
    frame.write_text(
        "<!DOCTYPE html><script>addEventListener('message', e => { const o = document.createElement('output');"
        "o.id = 'probe'; o.textContent = JSON.stringify({overflow: e.data}); document.body.append(o); })</script>"
        f"<body><iframe src='{inner.as_uri()}' style='width: 390px; height: 800px; border: 0'></iframe>",
        encoding="utf-8",
    )
    assert look(frame, tmp_path)["overflow"] == 0
