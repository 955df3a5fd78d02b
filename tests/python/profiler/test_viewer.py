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
    x = torch.randn(64, 64, device="openreg", requires_grad=True)
    with profile() as prof:
        x.to("openreg:1").exp().sum().backward()
        (x @ x).softmax(-1)
        torch.openreg.synchronize()
        torch.openreg.synchronize(1)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    # speedscope reads numbers only: it gives up on the rows of the profiler itself, which all of PyTorch's traces have.
    trace["traceEvents"] = [event for event in trace["traceEvents"] if isinstance(event["pid"], int)]

    contents = base64.b64encode(json.dumps(trace).encode()).decode()
    script = tmp_path / "trace.js"
    script.write_text(f"speedscope.loadFileFromBase64('trace.json', '{contents}')")
    command = ["chromium", "--headless=new", "--no-sandbox", f"--user-data-dir={tmp_path}/chromium"]
    command += ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
    command += ["--virtual-time-budget=20000", "--dump-dom"]
    page = subprocess.run(
        [*command, f"file://{speedscope}#localProfilePath={script}"], capture_output=True, text=True, timeout=200
    ).stdout
    for track in ("openreg:0 (pid 0), stream 0 (default)", "openreg:1 (pid 1), stream 0 (default)", "(pt_autograd_"):
        assert track in page, page
