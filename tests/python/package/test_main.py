"""``python -m torch_openreg``: the report, and the self-test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_openreg import __main__ as program

SETTINGS = Path(__file__).parents[3] / "docs/settings.md"
RUN = "import runpy, sys; sys.argv = ['torch_openreg', {}]; runpy.run_module('torch_openreg', run_name='__main__')"


def rows(text: str) -> dict[str, str]:
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def test_it_prints_versions_machine_and_settings_with_their_sources_and_tests_the_device(run_python):
    printed = run_python(RUN.format("'--check'"), TORCH_OPENREG_DEVICES="3", TORCH_OPENREG_MEMORY="64MiB").stdout
    report, _, checks = printed.partition("\n\n")
    found = rows(report)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*, built for torch \d+\.\d+\.\d+", found["torch_openreg"])
    assert found["import torch"] == "loads the device"
    assert found["TORCH_OPENREG_DEVICES"] == "3 (environment)"
    assert found["TORCH_OPENREG_MEMORY"] == "64MiB (environment)"
    assert re.fullmatch(r"\d+ \(default\)", found["TORCH_OPENREG_ENGINES"])
    assert {"torch", "Python", "system", "processor", "cores", "threads"} <= found.keys()
    assert [line.partition(": ok, ")[0] for line in checks.splitlines()] == list(program.CHECKS)


def test_it_prints_all_settings():
    documented = set(re.findall(r"^\| `(TORCH_OPENREG_\w+)`", SETTINGS.read_text(), re.MULTILINE))
    assert program.settings().keys() == documented


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("TORCH_OPENREG_AUTOLOAD", "off", "does not load the device: TORCH_OPENREG_AUTOLOAD=off"),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", "loads no backend: TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    ],
)
def test_it_prints_why_import_torch_does_not_load_the_device(monkeypatch, variable, value, expected):
    monkeypatch.setenv(variable, value)
    assert expected in [line.partition("import torch")[2].strip() for line in program.report()]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("default", "does not load the device because cuda is available; TORCH_OPENREG_AUTOLOAD=force loads it"),
        ("force", "loads the device in addition to cuda: TORCH_OPENREG_AUTOLOAD=force"),
    ],
)
def test_it_reports_another_accelerator(monkeypatch, choice, expected):
    monkeypatch.setenv("TORCH_OPENREG_AUTOLOAD", choice)
    monkeypatch.setattr(program._loading, "available_accelerator", lambda: "cuda")
    assert program._autoload() == expected


def test_a_failing_self_test_is_reported(monkeypatch, capsys):
    def wrong() -> None:
        raise AssertionError("3 is not 4")

    monkeypatch.setattr(program, "CHECKS", {"right": lambda: None, "wrong": wrong})
    assert program.run_checks() == 1
    printed = capsys.readouterr().out
    assert "right: ok" in printed and "wrong: FAILED" in printed and "3 is not 4" in printed


HANGS = """
import torch
first, second = torch.openreg.Stream(), torch.openreg.Stream()
with first:
    torch.openreg._sleep(10**12)
second.wait_stream(first)
with second:
    torch.empty(3, device="openreg").fill_(1)
print("hangs", flush=True)
second.synchronize()
"""


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
def test_it_dumps_what_the_streams_of_a_process_that_hangs_run_and_wait_for():
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "hangs\n"
            command = [sys.executable, "-m", "torch_openreg", "--dump", str(process.pid)]
            dumped = subprocess.run(command, capture_output=True, text=True, check=False)
            assert process.poll() is None
        finally:
            process.kill()
    if "ptrace" in dumped.stderr:
        pytest.skip("the system forbids to trace processes")
    sleeping = re.search(
        r"(openreg:0 stream \d+): [\w ]+, 0 of \d .*; next: openreg::sleep, event at (.*)\n", dumped.stdout
    )
    assert sleeping and sleeping[2] == f"command 2 of {sleeping[1]}"
    assert re.search(rf"; next: wait for {sleeping[2]}, aten::fill_\.Scalar", dumped.stdout)


def test_a_dump_needs_gdb(monkeypatch):
    monkeypatch.setattr("sys.argv", ["torch_openreg", "--dump", "0"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="--dump needs gdb, which is not installed"):
        program.main()


def test_bad_arguments_are_reported(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["torch_openreg", "--nonsense"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "--nonsense" in capsys.readouterr().err


# Legal values of each setting beside its default, and malformed ones.
LEGAL = {
    "TORCH_OPENREG_DEVICES": ("1", "64"),
    "TORCH_OPENREG_MEMORY": ("2MiB", "512MiB", "1%"),
    "TORCH_OPENREG_ENGINES": ("1", "1024"),
    "TORCH_OPENREG_LAUNCH_BLOCKING": ("1",),
    "TORCH_OPENREG_CPU_FALLBACK": ("0",),
    "TORCH_OPENREG_DEBUG_MEMORY": ("1",),
    "TORCH_OPENREG_DETECT_RACES": ("1", "warn"),
    "TORCH_OPENREG_STACKS": ("1",),
    "TORCH_OPENREG_TRACE_RECORDS": ("1",),
    "TORCH_OPENREG_SCHEDULE": ("latest", "random:4"),
    "TORCH_OPENREG_FAULTS": ("oom@allocation:1", "error@launch:*; lost@copy:2"),
    "TORCH_OPENREG_STICKY_ERRORS": ("1",),
    "TORCH_OPENREG_EXECUTOR": ("process",),
    "TORCH_OPENREG_FAULT_MESSAGE": ("0",),
    "TORCH_OPENREG_COMPUTE": ("0",),
    "TORCH_OPENREG_FAKE_WORLD": ("8",),
    "TORCH_OPENREG_FITS": (),  # only the command makes such a folder
    "TORCH_OPENREG_AUTOLOAD": ("force", "off"),
    "PYTORCH_ALLOC_CONF": ("max_split_size_mb:21", "garbage_collection_threshold:0.5"),
    "TORCH_DEVICE_BACKEND_AUTOLOAD": ("0",),
    "TORCH_LOGS": ("openreg",),
}
MALFORMED = {
    **{name: ("nonsense",) for name in LEGAL if name.startswith("TORCH_OPENREG_")},
    "TORCH_OPENREG_DEVICES": ("0", "65", "bad"),
    "TORCH_OPENREG_MEMORY": ("1MiB", "101%", ""),
    "TORCH_OPENREG_SCHEDULE": ("random:", "earliest"),
    "PYTORCH_ALLOC_CONF": ("max_split_size_mb:x",),
}


def some(values: dict[str, tuple[str, ...]], always: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(name, value, marks=() if name in always and not index else pytest.mark.full)
        for name, values_of_one in values.items()
        for index, value in enumerate(values_of_one)
    ]


def test_the_sweeps_have_all_settings():
    documented = set(re.findall(r"^\| `(\w+)[`=]", SETTINGS.read_text(), re.MULTILINE))
    assert LEGAL.keys() == {name for name in documented if name.isupper()}


@pytest.mark.parametrize(
    ("name", "value"),
    some(LEGAL, ("TORCH_OPENREG_FAULTS", "TORCH_OPENREG_MEMORY")),
)
def test_a_healthy_device_passes_under_every_setting(run_python, name, value):
    """Each takes as long as the checks, about four seconds."""
    printed = run_python(RUN.format("'--check'"), **{name: value}).stdout
    assert "FAILED" not in printed
    checks = printed.partition("\n\n")[2].splitlines()
    if name in program._FOR_DEBUGGING:
        assert checks.pop(0) == f"without {name}, because the checks expect the defaults:"
        assert f"{value} (environment)" in rows(printed.partition("\n\n")[0])[name]
    assert [line.partition(":")[0] for line in checks] == list(program.CHECKS)
    skipped = {line.partition(": skipped, because ")[2] for line in checks} - {""}
    assert skipped <= {f"it needs more than {name}={value}"}


@pytest.mark.parametrize(("name", "value"), some(MALFORMED, ("TORCH_OPENREG_DEVICES", "PYTORCH_ALLOC_CONF")))
@pytest.mark.parametrize("option", ["'--check'", pytest.param("", marks=pytest.mark.full)])
def test_a_malformed_setting_leaves_the_report_and_one_line(run_python, name, value, option):
    result = run_python(RUN.format(option), check=False, **{name: value})
    report, _, line = result.stdout.partition("\n\n")
    assert result.returncode == 1, result.stderr
    assert {"torch_openreg", "torch", "Python", "processor", *program._FOR_DEBUGGING} <= rows(report).keys()
    assert re.fullmatch(r"The device cannot be used with these settings: .+\n", line)
    assert (value or name) in line
    assert "Traceback" not in result.stderr and "FAILED" not in result.stdout
