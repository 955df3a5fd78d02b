"""The examples train, as on the CPU, and define operators and a backend."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from linking import links
from modules import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def reported(folder, example, *arguments):
    """Runs an example in a process of its own; returns the report that it prints last, and its stderr."""
    result = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1]), result.stderr


@pytest.fixture
def train_digits():
    pytest.importorskip("sklearn")
    pytest.importorskip("tqdm")
    return load("examples/train_digits.py")


@pytest.fixture
def resnet50():
    return load("examples/resnet50.py")


def test_the_loss_curve_is_the_cpus(train_digits):
    def curve(device):
        images, labels, _, _ = train_digits.load_data(seed=0)
        model = train_digits.make_model(seed=0).to(device)
        return train_digits.train(model, images, labels, epochs=1, seed=0, progress=False)[:20]

    assert curve("openreg") == pytest.approx(curve("cpu"), abs=1e-3)


@pytest.mark.usefixtures("train_digits")
@pytest.mark.parametrize("device", ["openreg", pytest.param("cpu", marks=pytest.mark.full)])
def test_it_learns_and_reports_as_json(tmp_path, device):
    log = tmp_path / "losses"
    report, output = reported(tmp_path, "train_digits.py", "--device", device, "--loss-log", log)
    assert set(report) == {"accuracy", "seconds", "peak_bytes", "device"}
    assert report["accuracy"] >= 0.98
    assert report["device"] == device
    assert (report["peak_bytes"] > 0) == (device == "openreg")
    assert "100%" in output  # the progress bar
    losses = [float(line) for line in log.read_text().splitlines()]
    assert losses[-1] < 0.1 * losses[0]


# Relative differences by norm. Outputs and loss differ by rounding. So do gradients, but there rounding also decides
# which of some million activations that are nearly zero a ReLU lets through: on the CPU alone, one thread and two
# differ by some thousandths in float32. A wrong formula differs by about 1. In float64 nothing comes so near to zero,
# and the gradients have to be the same.
@pytest.mark.parametrize(
    ("dtype", "size", "tolerance", "gradient_tolerance"),
    [
        pytest.param(torch.float32, 224, 1e-5, 0.05, id="float32", marks=pytest.mark.full),
        pytest.param(torch.float64, 64, 1e-12, 1e-9, id="float64", marks=pytest.mark.full),
    ],
)
def test_resnet50_evaluates_and_trains_as_on_the_cpu(resnet50, dtype, size, tolerance, gradient_tolerance):
    model = resnet50.make_model(seed=0).to(dtype)
    images, labels = resnet50.make_batch(8, size, seed=0)
    images = images.to(dtype)
    expected = resnet50.evaluate_and_train(copy.deepcopy(model), images, labels)
    got = resnet50.evaluate_and_train(model.to("openreg"), images, labels)

    assert len(expected["gradients"]) == 161  # 53 convolutions, two for each of their normalisations, two of the head
    assert all(gradient.count_nonzero() for gradient in expected["gradients"].values())
    differences = {kind: resnet50.largest_difference(got[kind], expected[kind])[0] for kind in expected}
    assert differences["outputs"] < tolerance, differences
    assert differences["loss"] < tolerance, differences
    assert differences["gradients"] < gradient_tolerance, differences
    assert differences["weights"] < gradient_tolerance, differences  # some start at zero: they are gradients


def test_resnet50_has_the_known_number_of_weights(resnet50):
    assert sum(p.numel() for p in resnet50.make_model(seed=0).parameters()) == 25_557_032


def test_resnet50_reports_as_json(resnet50, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["resnet50.py", "--batch", "2", "--size", "64"])
    resnet50.main()
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(report) == {"outputs", "loss", "gradients", "weights", "seconds", "device"}
    assert report["device"] == "openreg"
    assert report["outputs"] < 1e-5 and report["loss"] < 1e-5


OPERATOR_REPORT = {
    "opcheck": ["test_aot_dispatch_dynamic", "test_autograd_registration", "test_faketensor", "test_schema"],
    "gradcheck": True,
    "gradgradcheck": True,
    **dict.fromkeys(("forward", "vmap", "compile", "export"), pytest.approx(0, abs=1e-12)),
    "device": "openreg:0",
}


def test_the_operator_in_python_works_with_all_of_pytorch():
    example = load("examples/custom_operator.py")
    operator = example.define_in_python()
    assert example.check(operator, "openreg") == OPERATOR_REPORT
    with pytest.raises(RuntimeError, match="the shapes differ"):
        operator(torch.ones(2, device="openreg"), torch.ones(3, device="openreg"))


@links
@pytest.mark.full
def test_the_operator_in_cpp_builds_and_works_with_all_of_pytorch(tmp_path):
    report, _ = reported(tmp_path, "custom_operator.py", "--cpp", "--build-directory", tmp_path)
    assert report == OPERATOR_REPORT


def test_the_profile_of_a_training_step_is_drawn(tmp_path):
    profiled = load("examples/profile_training.py")
    events = profiled.profile_steps(1, tmp_path / "trace.json")
    rows = profiled.tracks(events)
    streams = [name for name in rows if name.startswith("openreg:0, stream") and ":" not in name.partition(",")[2]]
    assert len(streams) == 2
    assert "host" in rows
    assert any(event["name"].startswith("Memcpy HtoD (Pinned") for row in rows.values() for event in row)
    profiled.draw(events, tmp_path / "timeline.svg")
    picture = ElementTree.parse(tmp_path / "timeline.svg")
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == sum(len(row) for row in rows.values())
    assert any(title.startswith("aten::addmm: ") for title in titles)
