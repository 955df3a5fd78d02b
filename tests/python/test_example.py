"""The example trains, and trains as on the CPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/train_digits.py"


@pytest.fixture
def example():
    """The script as a module."""
    pytest.importorskip("sklearn")
    pytest.importorskip("tqdm")
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loss_curve_is_the_cpus(example):
    def curve(device):
        images, labels, _, _ = example.load_data(seed=0)
        model = example.make_model(seed=0).to(device)
        return example.train(model, images, labels, epochs=1, seed=0, progress=False)[:20]

    assert curve("openreg") == pytest.approx(curve("cpu"), abs=1e-3)


@pytest.mark.parametrize("device", ["openreg", "cpu"])
def test_it_learns_and_reports_as_json(example, tmp_path, device):
    log = tmp_path / "losses"
    result = subprocess.run(
        [sys.executable, SCRIPT, "--device", device, "--loss-log", log],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert set(report) == {"accuracy", "seconds", "peak_bytes", "device"}
    assert report["accuracy"] >= 0.98
    assert report["device"] == device
    assert (report["peak_bytes"] > 0) == (device == "openreg")
    assert "100%" in result.stderr  # the progress bar
    losses = [float(line) for line in log.read_text().splitlines()]
    assert losses[-1] < 0.1 * losses[0]
