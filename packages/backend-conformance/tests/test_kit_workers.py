"""Worker processes: whatever a check does to its process, the others get their results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import kit_runs
import pytest

from backend_conformance import process
from backend_conformance.result import Result
from backend_conformance.runner import CannotStart
from backend_conformance.verdicts import Verdict


@pytest.fixture(scope="module")
def deadly() -> dict[str, Result]:
    return kit_runs.run("deadly")[1]


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("aborts", Verdict.CRASH, "the process died by signal 6 (SIGABRT) during the check"),
        ("exits", Verdict.CRASH, "the process exited with status 7 during the check"),
        ("raises_system_exit", Verdict.ERROR, "SystemExit: 3"),
        ("hangs", Verdict.HANG, "timed out after 1 seconds"),
        ("hangs_and_ignores_signals", Verdict.HANG, "timed out after 1 seconds"),
        ("prints_garbage", Verdict.PASS, ""),
        ("closes_all_descriptors", Verdict.PASS, ""),
        ("forks_a_child_that_stays", Verdict.PASS, ""),
        ("forks_a_child_that_comes_back", Verdict.PASS, ""),
        ("starts_a_program_that_stays", Verdict.PASS, ""),
        ("passes_after_all", Verdict.PASS, ""),
    ],
)
def test_the_end_of_a_process_concerns_one_check(
    deadly: dict[str, Result], name: str, verdict: Verdict, message: str
) -> None:
    result = deadly[f"deadly.{name}"]
    assert result.verdict is verdict, result
    assert result.message.startswith(message)


def test_a_crash_is_reported_with_its_last_output(deadly: dict[str, Result]) -> None:
    assert "last words" in deadly["deadly.aborts"].output
    assert "Fatal Python error: Aborted" in deadly["deadly.aborts"].output


def test_a_hang_is_reported_with_the_place(deadly: dict[str, Result]) -> None:
    assert "in hangs" in deadly["deadly.hangs"].output


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Result], str]:
    """The results, and what a setup has logged that is called before."""
    folder = tmp_path_factory.mktemp("setup")
    (folder / "setup.py").write_text(
        f"import os\n\n\ndef load():\n    open({str(folder / 'log')!r}, 'a').write('called ')\n"
    )
    results = kit_runs.run("endings", setup=f"{folder / 'setup.py'}:load")[1]
    return results, (folder / "log").read_text()


def test_a_death_at_the_end_of_the_process_belongs_to_the_last_check(endings: tuple[dict[str, Result], str]) -> None:
    results, _ = endings
    assert results["endings.passes_first"].verdict is Verdict.PASS
    last = results["endings.dies_at_exit"]
    assert last.verdict is Verdict.CRASH
    assert last.message == "passed, but the process died by signal 6 (SIGABRT) after it"
    assert results["endings.dies_alone"].message == "passed, but the process exited with status 5 after it"


def test_a_setup_is_called_in_each_process(endings: tuple[dict[str, Result], str]) -> None:
    assert endings[1].split() == ["called"] * 2


@pytest.mark.full
def test_several_workers_give_the_results_of_one() -> None:
    one, two = (kit_runs.run("behaved", "endings", workers=workers)[0] for workers in (1, 3))
    assert [(each.id, each.verdict) for each in one.results] == [(each.id, each.verdict) for each in two.results]


def test_several_processes_share_a_large_group(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(
        "import os\nfrom backend_conformance import Device, Level, check, wrong\n\n\n"
        "@check(level=Level.BOOTS, hook='nothing', cases=[str(each) for each in range(230)])\n"
        "def ends(device: Device, case: str) -> None:\n    'Says where it ran.'\n    wrong(f'process {os.getpid()}')\n"
    )
    _, results = kit_runs.run(folder=tmp_path, workers=2)
    assert len(results) == 230
    processes = Counter(each.message for each in results.values())
    assert sorted(processes.values()) == [30, 100, 100]


def test_children_of_a_worker_do_not_outlive_it(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(
        '"""Leaves a child."""\n'
        "import subprocess, sys\n"
        "from backend_conformance import Device, Level, check\n\n\n"
        '@check(level=Level.BOOTS, hook="")\n'
        "def child(device: Device) -> None:\n"
        '    """Leaves a child, and says which."""\n'
        '    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])\n'
        '    raise RuntimeError(f"child {child.pid} ")\n'
    )
    _, results = kit_runs.run(folder=tmp_path)
    child = int(results["leaves.child"].message.partition("child ")[2].split()[0])
    assert _becomes_true(lambda: not _runs(child))


def _runs(child: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_setup_that_raises_ends_the_run() -> None:
    with pytest.raises(CannotStart, match="No module named 'no_such_backend'"):
        kit_runs.run("behaved", setup="no_such_backend")


def test_a_setup_that_dies_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("import os\n\n\ndef load():\n    os.abort()\n")
    with pytest.raises(CannotStart, match="SIGABRT"):
        kit_runs.run("behaved", setup=f"{tmp_path / 'setup.py'}:load")


def test_a_backend_that_loads_only_once_is_an_error_of_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "import pathlib\n\n\ndef load():\n"
        f"    with pathlib.Path({str(tmp_path / 'log')!r}).open('a+') as log:\n"
        "        log.write('x')\n        log.seek(0)\n        assert log.read() == 'x', 'loaded before'\n"
    )
    _, results = kit_runs.run("endings", setup=f"{tmp_path / 'setup.py'}:load")
    assert results["endings.passes_first"].verdict is Verdict.PASS
    left = results["endings.dies_alone"]
    assert left.verdict is Verdict.ERROR
    assert left.message.startswith("the backend cannot be loaded again: ") and "loaded before" in left.message
    assert (tmp_path / "log").read_text() == "xxx"  # it was tried twice again


def test_a_worker_that_cannot_be_reached_any_more_is_reported() -> None:
    lines, ending = process.collect({"task": "run"})  # a job without its fields
    assert lines == []
    assert ending.startswith("the process exited with status 1; ") and "KeyError" in ending


def test_the_parent_does_not_import_torch(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from backend_conformance import commands\n"
        f"status = commands.main(['--device', 'cpu', '--folder', {str(kit_runs.CHECKS)!r}, 'behaved.passes',"
        f" '--json', {str(tmp_path / 'a.json')!r}, '--html', {str(tmp_path / 'a.html')!r},"
        f" '--badge', {str(tmp_path / 'a.svg')!r}])\n"
        "assert status == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "a.html", "a.svg"}


def test_an_interrupted_run_ends_its_processes(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(
        '"""Sleeps."""\n'
        "import os, pathlib, time\n"
        "from backend_conformance import Device, Level, check\n\n\n"
        '@check(level=Level.BOOTS, hook="", timeout=300.0)\n'
        "def long(device: Device) -> None:\n"
        '    """Sleeps for a long time, and says who."""\n'
        f"    pathlib.Path({str(tmp_path / 'unfinished')!r}).write_text(str(os.getpid()))\n"
        f"    pathlib.Path({str(tmp_path / 'unfinished')!r}).rename({str(tmp_path / 'process')!r})\n"
        "    time.sleep(300)\n"
    )
    command = [sys.executable, "-m", "backend_conformance", "--device", "cpu", "--folder", str(tmp_path)]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts)
    assert _becomes_true(lambda: (tmp_path / "process").exists())
    parent.send_signal(signal.SIGINT)
    _, printed = parent.communicate(timeout=60)
    assert parent.returncode == 130 and printed.startswith("interrupted"), printed
    assert _becomes_true(lambda: not _runs(int((tmp_path / "process").read_text())))


def _heed_interrupts() -> None:
    # Where a shell has started the tests in the background, SIGINT is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _becomes_true(condition: Callable[[], bool], seconds: float = 90.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True
