#!/usr/bin/env python3
"""Lists the functions through which PyTorch calls a device, with their behaviour and their tests.

    python scripts/contract.py > docs/contract.md

The functions are those that the sources override. The behaviour and the first tests come from the conformance kit,
whose checks name the functions that they are about (`hook`); the other tests are C++ tests that call the function.
A test compares the page with the output.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = "packages/backend-conformance/src/backend_conformance/checks"
NAMESPACES = ("at", "c10", "libkineto", "torch")
MOST = 2  # C++ tests in each row: the most specific

INTRODUCTION = """\
# PyTorch's contract

PyTorch calls an accelerator through virtual functions of a few C++ classes. Each table lists the functions of one class
that this device implements, the behaviour that PyTorch expects, and the tests; the line above it names the page that
explains the class, the sources and the Python tests. [How PyTorch talks to a device](device/index.md) says where to
begin.

`scripts/contract.py` writes this page. *Behaviour* is the summary of the first check of the
[conformance kit](device/conformance.md) that names the function; without one, the tests' names describe it.
`group.check` is a check (`python -m backend_conformance explain group.check` describes it), `Suite.Name` a C++ test.
"""


@dataclass(frozen=True)
class Interface:
    """A class of PyTorch's, the page that explains it, the files that implement it, and the folder of Python tests."""

    title: str
    classes: tuple[str, ...]
    page: str
    sources: tuple[str, ...]
    python_tests: str
    inner: tuple[str, ...] = ()  # constructors, and what only the base class calls
    renamed: tuple[tuple[str, str], ...] = ()  # a name of ours that stands for one of PyTorch's

    @property
    def cpp_tests(self) -> list[str]:
        tests = [f"tests/{source.rpartition('.')[0]}_test.cpp" for source in self.sources]
        return [test for test in tests if (ROOT / test).exists()]


INTERFACES = (
    Interface(
        "Devices, streams and events: `c10::impl::DeviceGuardImplInterface`",
        ("DeviceGuardImplInterface",),
        "guard",
        ("cpp/backend/guard.cpp",),
        "tests/python/device",
    ),
    Interface(
        "Graphs: `at::GraphImplInterface`",
        ("GraphImplInterface",),
        "graphs",
        ("cpp/backend/graph.h",),
        "tests/python/graphs",
        inner=("CapturableGraph",),
    ),
    Interface(
        "Presence, pointers, generators: `at::PrivateUse1HooksInterface`",
        ("PrivateUse1HooksInterface",),
        "hooks",
        ("cpp/backend/hooks.cpp",),
        "tests/python/device",
        renamed=(("resize_bytes", "resizePrivateUse1Bytes"),),
    ),
    Interface(
        "Device memory: `c10::DeviceAllocator`",
        ("DeviceAllocator", "Allocator"),
        "allocators",
        ("cpp/backend/allocator.cpp",),
        "tests/python/memory",
    ),
    Interface(
        "Pinned host memory: `at::HostAllocator`",
        ("HostAllocator",),
        "allocators",
        ("cpp/backend/host_allocator.cpp",),
        "tests/python/memory",
        inner=(
            *("free", "free_block", "allocate_host_memory"),
            *("record_stream", "query_event", "get_current_stream", "stream_is_capturing"),
        ),
    ),
    Interface(
        "Random numbers: `c10::GeneratorImpl`",
        ("GeneratorImpl",),
        "generator",
        ("cpp/backend/generator.cpp",),
        "tests/python/device",
    ),
    Interface(
        "Process groups: `c10d::Backend`",
        ("Backend", "Work"),
        "process-group",
        ("cpp/distributed/process_group.h", "cpp/distributed/work.h"),
        "tests/python/distributed",
        inner=("ProcessGroupOccl",),
    ),
    Interface(
        "Profiling: `libkineto::IActivityProfiler`, `IActivityProfilerSession`, `torch::profiler::impl::ProfilerStubs`",
        ("IActivityProfiler", "IActivityProfilerSession", "ProfilerStubs"),
        "profiler",
        ("cpp/backend/profiler.cpp", "cpp/backend/event_profiler.cpp"),
        "tests/python/profiler",
        inner=("Session",),
    ),
)


@dataclass(frozen=True)
class Check:
    """A check of the kit."""

    id: str
    summary: str
    functions: tuple[tuple[str, str], ...]  # class and function; "" if the hook names no class


@dataclass(frozen=True)
class Row:
    """Functions that are specified by the same checks."""

    functions: tuple[str, ...]
    behaviour: str
    tests: tuple[str, ...]


def functions_of(hook: str) -> tuple[tuple[str, str], ...]:
    """The functions that a hook names: `Class::one, two; three` are two of a class and one without."""
    found = []
    for group in hook.partition(": ")[0].split(";"):
        of_class = ""
        for part in re.split(r",| and ", group):
            name = re.fullmatch(r"(?:\w+::)*?(?:(\w+)::)?(\w+)", part.strip()) or re.match(
                r"(\w+)::(\w+) ", part.strip()
            )
            if name:
                of_class = name[1] or of_class
                found.append(("" if of_class in NAMESPACES else of_class, name[2]))
    return tuple(each for each in found if each[0] or "module" not in hook)  # a module's functions are Python's


def checks(root: Path) -> list[Check]:
    """The checks of the kit, in its order. Their sources are read, not imported: that would need torch."""
    found = []
    for path in sorted((root / CHECKS).glob("*.py")):
        tree = ast.parse(path.read_text())
        constants: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                constants[node.targets[0].id] = node.value
            if not isinstance(node, ast.FunctionDef):
                continue
            keywords = [
                keyword for call in node.decorator_list if isinstance(call, ast.Call) for keyword in call.keywords
            ]
            for keyword in keywords:
                if keyword.arg == "hook":
                    hook = constants[keyword.value.id] if isinstance(keyword.value, ast.Name) else keyword.value
                    summary = (ast.get_docstring(node) or "").partition("\n")[0]
                    found.append(Check(f"{path.stem}.{node.name}", summary, functions_of(ast.literal_eval(hook))))
    return found


def functions(root: Path, interface: Interface) -> list[str]:
    """The functions of the interface that the sources override, in their order."""
    found = []
    for source in interface.sources:
        text = re.sub(r"//[^\n]*", "", (root / source).read_text())
        found += re.findall(r"\b(\w+)\((?:[^(){};]|\([^()]*\)|\{[^{}]*\})*\)[\w\s]*\boverride\b", text)
    renamed = dict(interface.renamed)
    return [renamed.get(name, name) for name in dict.fromkeys(found) if name not in interface.inner]


def cpp_tests(root: Path, interface: Interface) -> dict[str, str]:
    """The C++ tests of the interface: their names and bodies."""
    found = {}
    for path in interface.cpp_tests:
        _, *parts = re.split(r"^TEST(?:_F)?\((\w+), (\w+)\)", (root / path).read_text(), flags=re.M)
        for suite, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[f"{suite}.{name}"] = body
    return found


def rows(root: Path, interface: Interface, known: list[Check]) -> tuple[list[Row], list[str]]:
    """The rows of the interface, and the functions that no check and no C++ test names."""
    names = [*interface.classes, *functions(root, interface)]
    earlier = {name for other in INTERFACES[: INTERFACES.index(interface)] for name in functions(root, other)}
    bodies = cpp_tests(root, interface)
    calls = {test: [name for name in names if re.search(rf"(\.|->){name}\(", bodies[test])] for test in bodies}

    def names_it(check: Check, name: str) -> bool:
        classes = [of_class for of_class, called in check.functions if called == name]
        if name in interface.classes:
            return bool(classes)
        return any(each in interface.classes or (not each and name not in earlier) for each in classes)

    groups: dict[tuple[str, ...], list[str]] = {}
    summaries = {}
    for name in names:
        about = sorted((check for check in known if names_it(check, name)), key=lambda check: len(check.functions))
        calling = sorted((test for test in calls if name in calls[test]), key=lambda test: len(calls[test]))[:MOST]
        key = tuple(check.id for check in about) or tuple(calling)
        groups.setdefault(key, []).append(name)
        summaries[key] = about[0].summary if about else ""
    untested = [name for name in groups.pop((), []) if name not in interface.classes]
    found = []
    for key, of in groups.items():
        calling = [test for test in calls if set(of) & set(calls[test]) and test not in key]
        calling.sort(key=lambda test: (-len(set(of) & set(calls[test])), len(calls[test])))
        is_checked = any(check.id in key for check in known)
        found.append(Row(tuple(of), summaries[key], (*key, *(calling[:MOST] if is_checked else ()))))
    return found, untested


def code(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page(root: Path = ROOT) -> str:
    """The page."""
    known = checks(root)
    lines = [INTRODUCTION]
    for interface in INTERFACES:
        found, untested = rows(root, interface, known)
        lines += [f"## {interface.title}", ""]
        where = ", ".join(f"`{file}`" for file in (*interface.sources, interface.python_tests))
        page_name = interface.page.replace("-", " ").capitalize()
        lines += [f"[{page_name}](device/{interface.page}.md), {where}."]
        if untested:
            lines += ["", f"Covered by the Python tests alone, if at all: {code(untested)}."]
        lines += ["", "|function|behaviour|tests|", "|---|---|---|"]
        lines += [f"|{code(row.functions)}|{row.behaviour}|{code(row.tests)}|" for row in found]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
