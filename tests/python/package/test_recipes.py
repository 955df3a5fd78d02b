"""docs/recipes.md: the code on the page runs, where the libraries are installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from documents import DOCUMENTS, code_of
from packaging.specifiers import SpecifierSet

ROOT = DOCUMENTS.parent


def run_program(
    folder: Path, heading: str, python: str | Path = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the program of a section in `folder`."""
    (program,) = code_of("recipes.md", heading)
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [python, "program.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **variables},
    )


def need(*packages: str) -> None:
    """Skips the test where a package is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def test_what_counts_launches_sees_the_device(tmp_path):
    result = run_program(tmp_path, "Was it the device?")
    assert result.returncode == 0, result.stderr
    (program,) = code_of("recipes.md", "Was it the device?")
    on_cpu = program.replace('.to("openreg")', "").replace(', device="openreg"', "")
    assert on_cpu != program
    with pytest.raises(AssertionError, match="nothing was launched on the device"):
        exec(on_cpu, {})


def test_safetensors(tmp_path):
    need("safetensors")
    result = run_program(tmp_path, "safetensors")
    assert result.returncode == 0, result.stderr


def test_safetensors_refuses_the_name(tmp_path):
    need("safetensors")
    import torch
    from safetensors.torch import load_file, save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "file")
    with pytest.raises(Exception, match="device openreg is invalid"):  # if it does not, page and patch are out of date
        load_file(tmp_path / "file", device="openreg")


@pytest.mark.full
def test_accelerate_and_transformers_train_on_the_device_if_configured(tmp_path):
    need("accelerate", "transformers")
    result = run_program(tmp_path, "accelerate and transformers", ACCELERATE_TORCH_DEVICE="openreg")
    assert result.returncode == 0, result.stderr
    unset = run_program(tmp_path, "accelerate and transformers")
    assert "AssertionError: set ACCELERATE_TORCH_DEVICE=openreg" in unset.stderr


@pytest.mark.full
def test_ignite(tmp_path):
    need("ignite")
    result = run_program(tmp_path, "ignite")
    assert result.returncode == 0, result.stderr
    assert float(result.stdout.splitlines()[-1]) > 0.9


@pytest.mark.full
def test_torchao(tmp_path):
    need("torchao")
    result = run_program(tmp_path, "torchao")
    assert result.returncode == 0, result.stderr
    *_, error, is_less = result.stdout.splitlines()
    assert 0 < float(error) < 0.05
    assert is_less == "True"


# What each recipe needs, and the bounds of the last number that its program prints: what says that it has learned.
OF_LIBRARIES = {
    "Keras 3": (["keras>=3"], 0, 0.5),
    "DeepXDE": (["deepxde"], 0, 0.05),
    "Ray Train": (["ray[train]"], None, None),
    "fastai": (["fastai"], 0.9, 1),
    "Stable-Baselines3": (["stable-baselines3"], None, None),
    "TabNet": (["pytorch-tabnet", "pandas"], 0.8, 1),
    "Darts": (["u8darts[torch]"], 0, 0.3),
    "NeuralForecast": (["neuralforecast"], 0, 0.3),
}


@pytest.fixture
def environment(tmp_path):
    """Makes an environment with packages, which sees what is installed in ours, too; returns its Python."""

    def make(*packages: str) -> Path:
        python = tmp_path / "environment/bin/python"
        venv.create(python.parents[1], with_pip=True)
        ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        own = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        lines = [f"import site; site.addsitedir({path!r})\n" for path in sys.path if path.endswith("site-packages")]
        Path(own, "ours.pth").write_text("".join(lines))
        constraints = tmp_path / "constraints.txt"  # otherwise pip may replace torch
        constraints.write_text(f"torch=={metadata.version('torch').partition('+')[0]}\n")
        install = [python, "-m", "pip", "install", "--quiet", "-c", constraints]
        for arguments in (packages, ["--no-deps", ROOT / "packages/lightning-openreg"]):
            result = subprocess.run([*install, *arguments], capture_output=True, text=True)
            if result.returncode:
                pytest.skip(f"pip cannot install {arguments}: {result.stderr[-300:]}")
        return python

    yield make
    shutil.rmtree(tmp_path / "environment", ignore_errors=True)  # may be large


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("heading", OF_LIBRARIES)
def test_libraries_with_an_environment_of_their_own(tmp_path, environment, heading):
    packages, lower, upper = OF_LIBRARIES[heading]
    result = run_program(tmp_path, heading, environment(*packages), HOME=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    if lower is not None:
        assert lower <= float(result.stdout.splitlines()[-1]) <= upper


@pytest.mark.full
def test_pytest(tmp_path):
    need("pytest_openreg")
    (program,) = code_of("recipes.md", "pytest")
    (tmp_path / "test_program.py").write_text(program)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--openreg"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


@pytest.fixture
def workflow():
    (text,) = code_of("recipes.md", "GitHub Actions", "yaml")
    return yaml.safe_load(text)


def test_the_workflow_is_one_of_github_for_a_torch_that_is_supported(workflow):
    assert workflow[True] == ["push", "pull_request"]  # `on` is true in YAML
    steps = workflow["jobs"]["test"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    torch_version = re.search(r"pip install torch==(\S+)", steps[2]["run"])[1]
    supported = re.search(r'^torch = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert torch_version in SpecifierSet(supported)
    assert f"torch-{torch_version}-" in next(step for step in steps if step.get("id") == "wheels")["with"]["key"]
    for step in steps:
        subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True)


@pytest.mark.full
def test_the_last_steps_of_the_workflow_pass(workflow, tmp_path):
    need("pytest_openreg")
    (tmp_path / "test_one.py").write_text("def test_one(openreg): assert openreg.type == 'openreg'\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in workflow["jobs"]["test"]["steps"][-2:]:
        command = ["bash", "-e", "-c", step["run"].replace("pytest ", "python -m pytest ")]
        result = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=240, env={**os.environ, "PATH": path}
        )
        assert result.returncode == 0, result.stdout + result.stderr
