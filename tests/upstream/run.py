"""Runs the device-generic tests of PyTorch's own suite on openreg, and sorts what fails.

    python tests/upstream/run.py PYTORCH/test [FILE ...] [--device cuda] [--gpu] [--vendor npu] [--share 0.3]
                                 [--minutes 30] [--seconds 120] [--json FILE] [--markdown FILE]

PYTORCH is a checkout of PyTorch with the tag of the installed torch; its folder `test` is enough:

    git clone --depth 1 --filter=blob:none --sparse --branch v2.13.0 https://github.com/pytorch/pytorch
    git -C pytorch sparse-checkout set test

Each file has a process of its own, which is replaced where a test kills it or takes too long. Each failure is run again
as the CPU's variant of the test, and with TORCH_OPENREG_LAUNCH_BLOCKING=1. What may fail, and why, is in `expected.py`.

`--device cuda` runs the tests on openreg-cuda, which has to be installed. The files are those that are for CUDA only,
unless some are named. What may fail there is in `expected_cuda.py`.

Tests of compiled code are for `--gpu`: they ask `torch.testing._internal.inductor_utils` for the name of the
GPU, and get this device, or the CPU as their variant for it:

    python tests/upstream/run.py PYTORCH/test --gpu inductor/test_torchinductor inductor/test_compiled_optimizers \\
        inductor/test_compiled_autograd dynamo/test_activation_checkpointing dynamo/test_streams

Vendors keep copies that name their own device (`torch.npu`): `--vendor npu` puts this device's name there, in a copy.
Each test of Inductor compiles C++ and takes seconds: `--share` and `--minutes` run a part of them: a random one, but
always the same one. INDUCTOR_TEST_DISABLE_FRESH_CACHE=1 keeps what one test has compiled for the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from directing import write_for
from targets import CPU, CUDA, OPENREG, Target

HERE = Path(__file__).resolve().parent
# Their tests look at what the first use of the device does in a process: each has its own.
APART = {"test_cuda_trace", "test_cuda_primary_ctx", "test_cuda_nvml_based_avail"}
NAMES_CUDA = re.compile(r"not compiled with CUDA|NVIDIA driver|Invalid device string|torch\.cuda|device(_type)?='?cuda")
NAMES_CODE = re.compile(r"[Tt]riton|Expected to find|FileCheck")
COUNTS_KERNELS = re.compile(r"^>\s.*assertEqual\((?:\n.*)?generated_kernel_count", re.MULTILINE)
KINDS = (
    "fails on the CPU too",
    "names a device",
    "names Triton's code",
    "counts Triton's kernels",
    "asynchronous",
    "ours",
)


@dataclass
class Result:
    file: str
    name: str
    outcome: str  # of pytest, "xfailed" (the test says that it fails, and it does), or "crashed"
    text: str = ""
    kind: str = ""  # of a failure


def run_file(file: Path, seconds: int, target: Target, only: list[str] | None = None, **variables: str) -> list[Result]:
    """The results of a file's tests; of all, or of some of them."""
    if plain_name(file.name) not in APART:
        return run_together(file, seconds, target, only, **variables)
    tests = collect(file, seconds, target, **variables) if only is None else only
    results = [run_together(file, seconds, target, [test], **variables) for test in tests]
    return [result for of_test in results for result in of_test]


def plain_name(file: str) -> str:
    """The name of a file, also of a vendor's copy: test_nn_xpu.py is test_nn."""
    return re.sub("(_xpu)?[.]py$", "", file)


def collect(file: Path, seconds: int, target: Target, **variables: str) -> list[str]:
    """The names of a file's tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        status, _ = run_process(file, seconds, target, report, "--collect-only", **variables)
        lines = report.read_text().splitlines() if report.exists() else []
        tests = [json.loads(line).get("collects", []) for line in lines]
    return tests[0] if tests and status == 0 else ["(the file)"]


def run_together(
    file: Path, seconds: int, target: Target, only: list[str] | None = None, **variables: str
) -> list[Result]:
    """The same in one process, and in a new one after a test that ends it."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as folder:
        report, skip, chosen = (Path(folder) / name for name in ("report", "skip", "only"))
        chosen.write_text(json.dumps(only))
        while True:
            report.write_text("")
            skip.write_text(json.dumps(list(results)))
            chosen_tests = {"UPSTREAM_SKIP": str(skip), "UPSTREAM_ONLY": str(chosen)}
            status, output = run_process(file, seconds, target, report, **chosen_tests, **variables)
            unfinished = read_report(report, file.name, results)
            if unfinished is None:
                if not results and status not in (0, 5):  # 5: no tests
                    text = f"exit status {status}\n{output[-4000:]}"
                    results["(the file)"] = Result(file.name, "(the file)", "crashed", text)
                return list(results.values())
            results[unfinished] = Result(file.name, unfinished, "crashed", f"exit status {status}")


def run_process(
    file: Path, seconds: int, target: Target, report: Path, *options: str, **variables: str
) -> tuple[int, str]:
    """The exit status, negative for a signal, and what pytest says."""
    paths = [str(HERE), str(file.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reporting", "-p", "no:cacheprovider", "--noconftest"]
    command += [f"--timeout={seconds}", "--timeout-method=thread", "-c", os.devnull, "--rootdir", str(file.parent)]
    command += options
    environment = {
        **os.environ,
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": target.name,
        "UPSTREAM_FILE": str(file),
        "UPSTREAM_REPORT": str(report),
        **target.variables,
        **variables,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    result = subprocess.run([*command, file], env=environment, cwd=file.parent, capture_output=True, text=True)
    return result.returncode, result.stdout


def read_report(report: Path, file: str, results: dict[str, Result]) -> str | None:
    """Adds to the results. Returns the test that began and did not end, if there is one."""
    begun = None
    for line in report.read_text().splitlines():
        entry = json.loads(line)
        begun = entry.get("begins", begun)
        if "outcome" not in entry:
            continue
        known = results.get(entry["name"])
        if known is None or entry["outcome"] == "failed":
            results[entry["name"]] = Result(file, entry["name"], entry["outcome"], entry["text"])
    return begun if begun not in results else None


def sort_failures(
    file: Path, seconds: int, target: Target, results: list[Result], cpu_file: Path, directed: bool
) -> None:
    """Why each fails: which of its two other runs fails as well, and what it says."""
    failures = [result for result in results if fails(result) and "::" in result.name]
    if not failures:
        return
    on_the_cpu = [target.on_cpu(failure.name) for failure in failures]
    if plain_name(file.name) in CUDA.files:  # which have nothing for the CPU
        on_the_cpu = []
    on_cpu_too = run_file(cpu_file, seconds, CPU, on_the_cpu, **direction(CPU, directed)) if on_the_cpu else []
    cpu = {result.name for result in on_cpu_too if fails(result) or result.outcome == "xfailed"}
    raised = [failure.name for failure in failures if failure.outcome == "failed"]
    variables = {"TORCH_OPENREG_LAUNCH_BLOCKING": "1", **direction(target, directed)}
    blocking = passed(run_file(file, seconds, target, raised, **variables))
    for failure in failures:
        if target.on_cpu(failure.name) in cpu:  # not where the CPU skips it, or has no such test
            failure.kind = "fails on the CPU too"
        elif failure.outcome == "crashed":
            failure.kind = "ours"
        elif target is not CUDA and NAMES_CUDA.search(failure.text):
            failure.kind = "names a device"
        elif directed and NAMES_CODE.search(failure.text):
            failure.kind = "names Triton's code"
        elif directed and COUNTS_KERNELS.search(failure.text):
            failure.kind = "counts Triton's kernels"
        elif failure.name in blocking:
            failure.kind = "asynchronous"
        else:
            failure.kind = "ours"


def direction(target: Target, directed: bool) -> dict[str, str]:
    """For the plugin, which tells a directed file of tests that this device is the GPU."""
    return {"UPSTREAM_GPU": target.name} if directed else {}


def fails(result: Result) -> bool:
    return result.outcome in ("failed", "crashed")


def passed(results: list[Result]) -> set[str]:
    return {result.name for result in results if result.outcome == "passed"}


def unexpected(target: Target, results: list[Result]) -> list[str]:
    """Failures that are ours or asynchronous and not listed, and what is listed in vain."""
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    for result in results:
        file = f"{plain_name(result.file)}.py"
        reasons = [test for test in target.expected.get(file, {}) if re.search(test, result.name)]
        failed = result.kind in ("ours", "asynchronous") or (result.outcome == "crashed" and not result.kind)
        if failed and not reasons:
            found.append(f"{result.file}::{result.name}: {result.kind or result.outcome}: {last_line(result.text)}")
        elif failed:
            used.update((file, test) for test in reasons)
    files = {f"{plain_name(result.file)}.py" for result in results}
    listed = {(file, test) for file in files for test in target.expected.get(file, {})}
    return found + [f"{file}: {test} is listed and does not fail" for file, test in sorted(listed - used)]


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def table(results: list[Result]) -> str:
    columns = ("passed", "skipped", "crashed", *KINDS)
    lines = [f"| file | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for file in dict.fromkeys(result.file for result in results):
        of_file = [result for result in results if result.file == file]
        outcomes = ("skipped" if result.outcome == "xfailed" else result.outcome for result in of_file)
        counts = Counter(outcomes) + Counter(result.kind for result in of_file)
        lines.append(f"| {file} | {' | '.join(str(counts[column]) for column in columns)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="PyTorch's folder of tests")
    parser.add_argument("files", nargs="*", help="without .py; by default those that `targets.py` lists")
    parser.add_argument("--device", choices=("openreg", "cuda"), default="openreg", help="cuda: that of openreg-cuda")
    parser.add_argument("--gpu", action="store_true", help="the files ask PyTorch's helpers for the name of the GPU")
    parser.add_argument("--vendor", help="the device that the files name instead")
    parser.add_argument("--share", type=float, default=1.0, help="of the tests of each file, chosen by their names")
    parser.add_argument("--minutes", type=float, help="for each file, the runs that sort its failures not included")
    parser.add_argument("--seconds", type=int, default=120, help="for a test")
    parser.add_argument("--json", type=Path, help="write all results there")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    options = parser.parse_args()
    results: list[Result] = []
    target = CUDA if options.device == "cuda" else OPENREG
    directed = options.gpu or bool(options.vendor)
    with tempfile.TemporaryDirectory() as copies:
        for name in options.files or target.files:
            file = cpu_file = (options.folder / f"{name}.py").resolve()
            if options.vendor:
                file, cpu_file = (
                    write_for(device, file, options.vendor, Path(copies)) for device in (target.name, CPU.name)
                )
            variables = {"UPSTREAM_SHARE": str(options.share), **direction(target, directed)}
            if options.minutes is not None:
                variables["UPSTREAM_UNTIL"] = str(time.time() + 60 * options.minutes)
            of_file = run_file(file, options.seconds, target, None, **variables)
            sort_failures(file, options.seconds, target, of_file, cpu_file, directed)
            results += of_file
            print(table(of_file).splitlines()[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    if options.markdown:
        options.markdown.write_text(table(results) + "\n")
    found = unexpected(target, results)
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
