"""The page: one file without scripts and network, that a browser draws."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from torch_openreg.fits.charts import Line, curve_chart, grouped, treemap
from torch_openreg.fits.page import page
from torch_openreg.fits.report import Curve, DeviceReport, Ended, Moment, Report
from torch_openreg.fits.verdict import judge

GIB = 1 << 30
HOSTILE = "<script>alert('x')</script>&\""


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes


def report(name: str = "layers.0.mlp", line: str = "train.py:12 in step") -> Report:
    at = Moment(1, "forward", name, line)
    kinds = {"parameters": 2 * GIB, "activations": 4 * GIB}
    curve = Curve(
        {"parameters": [2 * GIB] * 4, "activations": [0, 4 * GIB, 0, 4 * GIB]}, [2 * GIB, *[7 * GIB] * 3], [1, 3]
    )
    modules = {name: {"parameters": GIB, "activations": 4 * GIB}, "layers.1": {"parameters": GIB}}
    device = DeviceReport(
        0, 80 * GIB, 6 * GIB, 7 * GIB, at, 6 * GIB, kinds, modules, {line: 5 * GIB, "": GIB}, curve, 100
    )
    values = [{"line": line, "op": "aten::item", "count": 3}]
    return Report(["train.py", name], Ended.STEPS, 2, 1.5, 0, GIB, [device], False, values)


def page_of(one: Report) -> str:
    return page([one], [judge(name, [one], 80 * GIB) for name in ("t4", "h100")])


def test_a_page_has_the_verdict_the_curve_the_treemap_and_the_tables():
    text = page_of(report())
    assert "fits on t4, h100" in text
    elements = Elements(text)
    assert elements.tags.count("svg") == 2
    assert elements.tags.count("polygon") == 2  # a kind each
    assert elements.tags.count("rect") == 2  # a module each
    for words in ("6.00 GiB in tensors, 7.00 GiB reserved", "step 1", "step 2", "layers.0.mlp", "train.py:12 in step"):
        assert words in text, words
    assert ">parameters: at most 2.00 GiB<" in text


def test_names_of_the_program_are_text():
    text = page_of(report(HOSTILE, HOSTILE))
    elements = Elements(text)
    assert "script" not in elements.tags
    assert "<script>" not in text
    assert not [name for name, _ in elements.attributes if name.startswith("on")]


def test_a_page_needs_no_network():
    elements = Elements(page_of(report()))
    assert not {"script", "link", "img", "iframe"} & set(elements.tags)
    assert not [name for name, _ in elements.attributes if name in ("src", "href")]
    assert "url(" not in page_of(report()) and "@import" not in page_of(report())


def test_areas_of_the_treemap_are_in_proportion():
    svg = treemap({"a": {"parameters": 3 * GIB}, "b": {"parameters": 2 * GIB}, "c": {"parameters": GIB}})
    boxes = re.findall(r'width="([\d.]+)" height="([\d.]+)"', svg)
    areas = [float(width) * float(height) for width, height in boxes]
    assert [area / areas[2] for area in areas] == pytest.approx([3, 2, 1], rel=0.01)
    assert sum(areas) == pytest.approx(960 * 320, rel=0.01)


def test_many_modules_are_grouped_by_those_above():
    modules = {f"layers.{layer}.{part}": {"parameters": 1} for layer in range(60) for part in ("attention", "mlp")}
    groups = grouped(modules)
    assert groups.keys() == {f"layers.{layer}" for layer in range(60)}
    assert groups["layers.7"] == {"parameters": 2}


def test_the_stack_reaches_what_tensors_hold():
    curve = Curve({"parameters": [GIB, GIB], "activations": [0, 3 * GIB]}, [4 * GIB, 4 * GIB], [])
    svg = curve_chart(curve, [Line("h100", 4 * GIB), Line("far", 400 * GIB)])
    reserved = re.search(r'class="reserved" points="([^"]*)"', svg)[1].split()[1].split(",")[1]
    above = re.findall(r'<polygon[^>]*points="([^"]*)"', svg)[1].split()[1].split(",")[1]
    assert above == reserved
    assert "h100" in svg and "far" not in svg


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_draws_the_page(tmp_path, scheme):
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    (tmp_path / "page.html").write_text(page_of(report()), encoding="utf-8")
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/chromium"]
    command += ["--window-size=1000,1600", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    command += [f"--screenshot={tmp_path}/page.png"]
    done = subprocess.run([*command, f"file://{tmp_path}/page.html"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    colours = _colours(tmp_path / "page.png")
    # The background, and the areas of both kinds in the curve and the treemap.
    expected = {"light": ["#ffffff", "#7aa6d8", "#84c28b"], "dark": ["#14171b", "#2f5d92", "#2d6b38"]}[scheme]
    for colour in expected:
        assert colours.get(colour, 0) > 2000, (colour, sorted(colours.items(), key=lambda item: -item[1])[:8])


def _colours(file) -> dict[str, int]:
    """How many pixels have a colour. PNG as Chromium writes it: 8 bits, no interlace."""
    import struct
    import zlib
    from collections import Counter

    data = file.read_bytes()
    at, parts, width, height, channels = 8, b"", 0, 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour]
        if kind == b"IDAT":
            parts += body
        at += 12 + length
    raw, stride = zlib.decompress(parts), width * channels
    before = bytearray(stride)
    counts: Counter[str] = Counter()
    for row in range(height):
        kind, line = raw[row * (stride + 1)], bytearray(raw[row * (stride + 1) + 1 : (row + 1) * (stride + 1)])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + up) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                nearest = min((left, up, corner), key=lambda each: abs(guess - each))
                line[i] = (line[i] + nearest) & 255
        counts.update(line[i : i + 3].hex() for i in range(0, stride, channels))
        before = line
    return {f"#{colour}": count for colour, count in counts.items()}
