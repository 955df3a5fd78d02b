"""`new NAME` writes a backend that builds, is loaded by `import torch`, and trains."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import kit_projects
import kit_runs
import pytest

from backend_conformance import new


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuda", "device type"),
        ("meta", "device type"),
        ("add", "torch.add"),
        ("backward", "torch.Tensor.backward"),
        ("children", "torch.nn.Module.children"),
        ("Npu", "lower-case"),
        ("npu2", "lower-case"),
        ("my-npu", "lower-case"),
        ("", "lower-case"),
    ],
)
def test_a_name_that_pytorch_cannot_use_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(new.BadName, match=reason):
        new.write(name, tmp_path / "project")
    assert not (tmp_path / "project").exists()


def test_all_files_have_the_new_name(tmp_path: Path) -> None:
    files = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in new.write("my_npu", tmp_path)}
    assert {"pyproject.toml", ".gitignore", ".github/workflows/ci.yml", "csrc/guard.cpp"} <= set(files)
    assert "python/torch_my_npu/my_npu/__init__.py" in files
    assert not [path for path, text in files.items() if "acme" in (path + text).lower()]
    assert "constexpr auto kMyNpu = c10::DeviceType::PrivateUse1;" in files["csrc/device.h"]
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)


def test_the_build_compiles_every_source(tmp_path: Path) -> None:
    files = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in new.write("npu", tmp_path)}
    sources = {path for path in files if path.endswith(".cpp")}
    assert sources == {word for word in files["CMakeLists.txt"].replace(")", " ").split() if word.endswith(".cpp")}


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("here")
    refused = kit_runs.command("new", "npu", "--folder", str(tmp_path))
    assert refused.returncode == 2
    assert "not empty" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    written = kit_runs.command("new", "npu", directory=tmp_path)
    assert written.returncode == 0, written.stderr
    assert "pip install --no-build-isolation torch_npu" in written.stdout
    assert (tmp_path / "torch_npu" / "pyproject.toml").exists()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_new_backend_is_installed_and_trains(tmp_path: Path) -> None:
    python = kit_projects.environment_without_backends(tmp_path / "environment")
    project = tmp_path / "torch_my_npu"
    new.write("my_npu", project)
    tools = os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": tools}
    for variable in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH"):
        environment.pop(variable, None)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-build-isolation", "--no-deps"]
    kit_projects.run(*install, project, env=environment)
    code = "import torch; print(torch.accelerator.current_accelerator(), (torch.ones(2, device='my_npu') + 1).tolist())"
    assert kit_projects.run(python, "-c", code, cwd=tmp_path, env=environment).strip() == "my_npu [2.0, 2.0]"
    report = kit_projects.run(python, "-m", "pytest", "-q", "-s", project, cwd=tmp_path, env=environment)
    assert "2 passed" in report, report


def test_a_name_is_checked_without_a_trace_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    new.check_name("acme")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ
