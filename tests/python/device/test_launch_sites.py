"""``TORCH_OPENREG_STACKS=1``: an error of a command names the line of the program that launched it."""

from __future__ import annotations

import json
import os
import py_compile
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from devices import DEVICE

PROGRAM = Path(__file__).with_name("launch_sites.py")


@pytest.fixture(scope="module")
def child():
    environment = {**os.environ, "TORCH_OPENREG_STACKS": "1"}
    return subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, timeout=120, check=True
    )


@pytest.fixture(scope="module")
def results(child):
    return json.loads(child.stdout.splitlines()[-1])


def line_of(text):
    """`FILE:LINE` of the one line of the program with this text."""
    (number,) = [i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line]
    return f"{PROGRAM}:{number}"


LINE_OF_FAIL = line_of("the line of most errors")


def test_an_asynchronous_error_names_its_line(results):
    assert results["of_a_call"] == (
        f"openreg: aten::index.Tensor failed on openreg:0, stream 0, launched by {LINE_OF_FAIL} in fail: "
        "index 99 is out of bounds for dimension 0 with size 4. Later work on that stream was skipped; "
        "set TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call"
    )


def test_the_line_is_the_programs_and_not_pytorchs(results):
    assert f"launched by {line_of('own lines launch')} in forward" in results["of_a_module"]


@pytest.mark.parametrize("where", ["of_a_backward_pass", "of_a_thread"])
def test_launches_of_other_threads_have_their_lines(results, where):
    assert f"launched by {LINE_OF_FAIL} in fail" in results[where]


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("of_a_callback", "the standard library calls PyTorch"),
        ("of_a_frozen_module", "a part of it that the interpreter contains"),
        ("of_pytorchs_generated_code", "runs other code"),
        ("of_pytorch_compiled_elsewhere", "runs other code"),
        ("of_functorch", "runs other code"),
    ],
)
def test_lines_of_libraries_are_not_the_programs(results, where, line):
    assert f"launched by {line_of(line)} in " in results[where]


def test_code_without_a_file_is_the_programs(results):
    assert "launched by <string>:1 in <module>" in results["of_own_generated_code"]


# Fails on a thread, in whose frames Python's own lines are the outer ones.
FAILS = """\
import threading, torch
def fail():
    x = torch.zeros(4, device="openreg")
    return x[torch.tensor([99], device="openreg")]
thread = threading.Thread(target=fail)
thread.start()
thread.join()
"""
# Fails itself, and runs the files.
RUNNER = f"""\
{FAILS}
import json, re, runpy, sys
def line():
    try:
        torch.openreg.synchronize()
    except torch.AcceleratorError as error:
        return re.search("launched by (.*): index 99", str(error))[1]
lines = [line()]
for file in sys.argv[1:]:
    runpy.run_path(file)
    lines.append(line())
print(json.dumps(lines))
"""
FILES = [
    "plain/train.py",
    "torch/train.py",
    "torch_openreg/train.py",
    "torch_openreg/tests/python/threading.py",
    "my torch/torch/torch.py",
    "torch/nn/functional.py",
    "functorch/train.py",
    "lib/python3.11/threading.py",
    "site-packages/torchlike/train.py",
    "site-packages/train.py",
    "_pytest/pluggy/train.py",
    "Übung torch/训练.py",
    os.fsdecode(b"torch \xe4/train.py"),
]


def test_a_program_may_lie_in_a_folder_of_any_name(tmp_path):
    def write(name, text=FAILS):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    def escaped(file):
        return file.encode(errors="backslashreplace").decode()

    expected = {write(name): escaped(f"{tmp_path / name}:4 in fail") for name in FILES}
    # By a link; by a relative name; in an archive; compiled elsewhere.
    (tmp_path / "linked").symlink_to("torch")
    expected[str(tmp_path / "linked/train.py")] = f"{tmp_path}/linked/train.py:4 in fail"
    expected["torch/train.py"] = "torch/train.py:4 in fail"
    with zipfile.ZipFile(tmp_path / "torch.zip", "w") as archive:
        archive.writestr("__main__.py", FAILS)
    expected[str(tmp_path / "torch.zip")] = f"{tmp_path}/torch.zip/__main__.py:4 in fail"
    compiled = str(tmp_path / "train.pyc")
    py_compile.compile(write("train.py"), compiled, dfile="/build/torch/train.py")
    expected[compiled] = "/build/torch/train.py:4 in fail"

    environment = {**os.environ, "TORCH_OPENREG_STACKS": "1"}
    command = [sys.executable, "-", *expected]
    result = subprocess.run(
        command, input=RUNNER, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == ["<stdin>:4 in fail", *expected.values()]


def test_no_source_recognises_libraries_by_parts_of_a_path():
    root = PROGRAM.parents[3]
    guess = re.compile(r"""["'(]/\(?(torch|torch_openreg|_pytest|pluggy|site-packages|dist-packages|lib/python)\b""")
    sources = [
        path
        for kind in ("cpp/**/*.h", "cpp/**/*.cpp", "python/**/*.py", "packages/*/src/**/*.py", "tools/**/*.py")
        for path in root.glob(kind)
    ]
    assert len(sources) > 300
    assert [path for path in sources if guess.search(path.read_text())] == []


def test_a_trace_names_the_line_of_each_command(results):
    line = line_of("(x.exp() @ X).backward()")
    lines = results["lines_of_a_trace"]
    assert lines["aten::exp"] == lines["aten::dot"] == f"{line} in lines_of_a_trace"
    assert lines["aten::mul.Tensor"] == f"the backward pass of ExpBackward0, called by {line} in lines_of_a_trace"
    assert re.fullmatch(rf"{re.escape(str(PROGRAM))}:\d+ in compiled", lines["aten::mm"])  # and not Inductor's code


def test_an_uncollected_error_names_its_line(child):
    assert f"launched by {LINE_OF_FAIL} in fail" in child.stderr
    assert "no later call collected this error" in child.stderr


@pytest.mark.no_race_detection("the message names the launching line")
def test_without_the_setting_errors_say_how_to_get_the_line():
    torch.ones(4, device=DEVICE)[torch.tensor([99], device=DEVICE)]
    with pytest.raises(torch.AcceleratorError, match="set TORCH_OPENREG_STACKS=1 to report the line of the call, or "):
        torch.accelerator.synchronize()


CHECKPOINT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3)).to("DEVICE")
x = torch.ones(4, 8, device="DEVICE", requires_grad=True)
checkpoint(net, x, use_reentrant=False).sum().backward()
print(x.grad.shape)
"""


def test_an_exception_goes_on_although_lines_are_found(run_python):
    # The recomputation ends by an exception, in autograd's thread. What is freed on its way accesses memory, by a line.
    run = run_python(CHECKPOINT.replace("DEVICE", DEVICE), TORCH_OPENREG_DETECT_RACES="1")
    assert run.stdout == "torch.Size([4, 8])\n"
