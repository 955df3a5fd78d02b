"""The pictures of the documents are what their scripts draw, for light and dark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = ROOT / "docs"
PICTURES = sorted(str(picture.relative_to(DOCUMENTS)) for picture in DOCUMENTS.rglob("*.svg"))
MEASURED = {"speed.svg", "timeline.svg"}  # by benchmarks/compare.py and examples/profile_training.py


def test_the_drawings_are_what_the_script_draws(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools/pictures", tmp_path], check=True, timeout=60)
    drawn = {str(picture.relative_to(tmp_path)) for picture in tmp_path.rglob("*.svg")}
    assert drawn == set(PICTURES) - MEASURED
    for name in drawn:
        assert (DOCUMENTS / name).read_text() == (tmp_path / name).read_text(), "run: python tools/pictures"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_for_light_and_dark(name):
    picture = (DOCUMENTS / name).read_text()
    ElementTree.fromstring(picture)
    _, _, dark = picture.partition("@media (prefers-color-scheme: dark)")
    assert "text {" in dark and ".page {" in dark
    assert "fill=" not in picture.replace('fill="none"', "")  # colours come from the style alone
    pages = DOCUMENTS.rglob("*.md")
    assert (
        any(f"({name.split('/')[-1]})" in page.read_text() for page in pages)
        or f"docs/{name}" in (ROOT / "README.md").read_text()
    )
