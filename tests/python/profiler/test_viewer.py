"""A trace of the device opens in a viewer: speedscope, in headless Chromium."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile

import pytest
import torch
from torch.profiler import profile

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def speedscope(tmp_path_factory):
    """The viewer's page."""
    for program in ("chromium", "npm"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("speedscope")
    fetched = subprocess.run(["npm", "pack", "--silent", "speedscope@1.25.0"], cwd=folder, check=False)
    if fetched.returncode != 0:
        pytest.skip("npm cannot fetch speedscope")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package/dist/release/index.html"


def test_a_viewer_shows_the_streams(speedscope, tmp_path):
    x = torch.randn(64, 64, device="openreg")
    with profile() as prof:
        with torch.openreg.stream(torch.openreg.Stream("openreg:1")):
            x.to("openreg:1").exp()
        (x @ x).softmax(-1)
        torch.openreg.synchronize()
        torch.openreg.synchronize(1)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"aten::mm", "Memcpy PtoP (Device -> Device)"} <= names

    contents = base64.b64encode((tmp_path / "trace.json").read_bytes()).decode()
    script = tmp_path / "trace.js"
    script.write_text(f"speedscope.loadFileFromBase64('trace.json', '{contents}')")
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"]
    command += [f"--user-data-dir={tmp_path}/chromium", "--virtual-time-budget=20000", "--dump-dom"]
    page = subprocess.run(
        [*command, f"file://{speedscope}#localProfilePath={script}"], capture_output=True, text=True, timeout=200
    ).stdout
    assert "openreg:" in page, page
