"""The package as a package: what is in it, what it is bound to, and that it comes and goes without a trace."""

from __future__ import annotations

import ast
import email
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
TORCH = Path(torch.__file__).parent
PYPROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = torch.__version__.partition("+")[0]
MINOR = ".".join(VERSION.split(".")[:2])
SUPPORTED = re.search(r'^torch = "(.*)"', PYPROJECT, re.M)[1]
LEAST, BELOW = re.fullmatch(r">=([0-9.]+),<([0-9.]+)", SUPPORTED).groups()
# The tools that pip has installed beside the interpreter come first, as builds find them.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

USE_DEVICE = "import torch; assert torch.ones(2, device='openreg').sum().item() == 2"


def run(*command: str | Path, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": PATH, **variables}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/")
    if check:
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


def rpaths(library: Path) -> list[str]:
    """The directories that a library looks into for others."""
    dynamic = run("readelf", "-d", library).stdout
    found = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    return [path for entry in found for path in entry.split(":")]


def assert_no_absolute_rpath(directory: Path, least: int = 2) -> None:
    libraries = [path for path in directory.rglob("*.so*") if path.is_file()]
    assert len(libraries) >= least
    for library in libraries:
        assert [path for path in rpaths(library) if not path.startswith("$ORIGIN")] == [], library


def partial_torch(site: Path, version: str, *, init: str = "") -> Path:
    """A directory for PYTHONPATH with a torch that has the real headers and libraries but no share/cmake."""
    package = site / "torch"
    package.mkdir(parents=True)
    for name in ("include", "lib"):
        (package / name).symlink_to(TORCH / name)
    (package / "version.py").write_text(f"__version__ = '{version}'\n")
    (package / "__init__.py").write_text(init)
    return site


def configure(build: Path, *options: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """CMake's configure step for the interpreter that runs the tests."""
    cmake = shutil.which("cmake", path=PATH)
    assert cmake is not None, "cmake is needed"
    command = [cmake, "-G", "Ninja", "-S", ROOT, "-B", build, f"-DPython_EXECUTABLE={sys.executable}", *options]
    return run(*command, check=check, **variables)


def one_line(text: str) -> str:
    """CMake wraps its messages."""
    return " ".join(text.split())


def test_version_is_the_packages() -> None:
    import torch_openreg

    version = importlib.metadata.version("torch_openreg")
    assert torch_openreg.__version__ == version
    assert f'version = "{version}"' in PYPROJECT


def test_the_package_requires_the_minor_version_that_it_was_compiled_against() -> None:
    assert importlib.metadata.requires("torch_openreg")[0] == f"torch=={MINOR}.*"


def test_the_page_on_installation_lists_what_the_build_needs() -> None:
    (requires,) = re.findall(r"^requires = (\[.*?^\])", PYPROJECT, re.M | re.S)
    needed = [Requirement(each).name for each in ast.literal_eval(requires)]
    assert f"uv pip install {' '.join(needed)}\n" in (ROOT / "docs/install.md").read_text()


def test_installed_libraries_have_no_absolute_rpath() -> None:
    files = importlib.metadata.files("torch_openreg")
    libraries = [Path(str(file.locate())) for file in files if ".so" in file.name]
    assert {library.name.partition(".")[0] for library in libraries} >= {"_C", "libtorch_openreg"}
    for library in libraries:
        assert [path for path in rpaths(library) if not path.startswith("$ORIGIN")] == [], library


def test_configures_without_torchs_own_cmake_package(tmp_path: Path) -> None:
    site = partial_torch(tmp_path / "site", VERSION)
    output = configure(tmp_path / "build", PYTHONPATH=str(site)).stdout
    assert f"Found torch {VERSION}: {site}/torch" in output


def test_another_torch_in_the_same_place_compiles_everything_again(tmp_path: Path) -> None:
    def commands(version: str) -> dict[str, str]:
        """By file; of the files that need torch."""
        shutil.rmtree(tmp_path / "site", ignore_errors=True)
        site = partial_torch(tmp_path / "site", version)
        configure(tmp_path / "build", PYTHONPATH=str(site))
        found = json.loads((tmp_path / "build/compile_commands.json").read_text())
        return {each["file"]: each["command"] for each in found if str(site) in each["command"]}

    one, other = commands(VERSION), commands(f"{VERSION}+cpu")
    assert len(one) == len(other) > 50
    assert not set(one.values()) & set(other.values())


def test_reads_nothing_of_torchs_own_cmake_package(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    configure(tmp_path / "build", "--trace", f"--trace-redirect={trace}")
    text = trace.read_text()
    assert "cmake/Torch.cmake" in text
    assert "share/cmake" not in re.sub(r"/share/cmake-\d", "", text)


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        pytest.param("2.1.0", "install one of those.", id="older"),
        pytest.param(f"{BELOW}.0", "or set OPENREG_ALLOW_NEWER_TORCH=1 to try this one.", id="newer"),
    ],
)
def test_configuring_against_another_torch_names_the_supported_ones(tmp_path: Path, version: str, hint: str) -> None:
    site = partial_torch(tmp_path / "site", f"{version}+cpu")
    result = configure(tmp_path / "build", check=False, PYTHONPATH=str(site))
    assert result.returncode != 0
    message = one_line(result.stderr)
    assert f"torch_openreg supports torch {SUPPORTED} (got {version} in {site}/torch): install one of those" in message
    assert hint in message


def test_a_newer_torch_configures_with_a_warning_if_asked_for(tmp_path: Path) -> None:
    site = partial_torch(tmp_path / "site", f"{BELOW}.1.dev20300101+cpu")
    result = configure(tmp_path / "build", PYTHONPATH=str(site), OPENREG_ALLOW_NEWER_TORCH="1")
    assert f"Found torch {BELOW}.1: {site}/torch" in result.stdout
    assert "this version has not been tested" in one_line(result.stderr)


@pytest.mark.parametrize(("system", "processor"), [("FreeBSD", "x86_64"), ("Linux", "riscv64")])
def test_an_unsupported_system_is_one_clear_error(tmp_path: Path, system: str, processor: str) -> None:
    options = [f"-DCMAKE_SYSTEM_NAME={system}", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
    result = configure(tmp_path / "build", *options, check=False)
    assert result.returncode != 0
    expected = f"torch_openreg supports Linux with glibc on x86-64 and aarch64 (got {system} on {processor})"
    assert expected in one_line(result.stderr)


@pytest.mark.parametrize(("torch", "warns"), [("ON", True), ("OFF", False)])
def test_on_aarch64_the_build_warns_that_it_was_only_emulated(tmp_path: Path, torch: str, warns: bool) -> None:
    options = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DOPENREG_BUILD_TORCH={torch}"]
    # With torch it may stop later: Debian's Python has headers for several processors, others do not.
    result = configure(tmp_path / "build", *options, check=torch == "OFF")
    assert ("tested in an emulator only" in one_line(result.stderr)) == warns


def test_another_torch_at_import_is_one_sentence_before_the_library_is_loaded(tmp_path: Path) -> None:
    site = partial_torch(tmp_path / "site", "9.8.7", init="from .version import __version__")
    code = """
try:
    import torch_openreg
except ImportError as error:
    print(error)
print("loaded" if "/libtorch_openreg.so\\n" in open("/proc/self/maps").read() else "not loaded")
"""
    output = run(sys.executable, "-c", code, PYTHONPATH=str(site)).stdout.splitlines()
    assert len(output) == 2, output
    sentence, library = output
    version = importlib.metadata.version("torch_openreg")
    for part in (
        f"torch_openreg {version}",
        f"torch {VERSION}",
        "torch 9.8.7",
        "build it again",
        "`pip uninstall torch_openreg`",
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
    ):
        assert part in sentence
    assert library == "not loaded"


class Environment:
    """A throw-away virtual environment with all that the current one has, but for torch_openreg and what is named."""

    def __init__(self, path: Path, *, without: tuple[str, ...] = (), with_pip: bool = True) -> None:
        venv.create(path, with_pip=with_pip)
        self.python = path / "bin/python"
        site = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        self.prefix = path
        self.site = Path(site)
        # Links and not a .pth file: a package that is linked is found, one that is not (ours) is absent.
        for source in {Path(entry) for entry in sys.path if entry.endswith("site-packages")}:
            for item in source.iterdir():
                absent = "openreg" in item.name or item.name.partition("-")[0] in without
                if not absent and not (self.site / item.name).exists() and item.suffix != ".pth":
                    (self.site / item.name).symlink_to(item)

    def pip(self, *arguments: str | Path) -> None:
        run(self.python, "-m", "pip", *arguments)

    def files(self) -> set[str]:
        """All of it, but for what Python has compiled of other packages."""
        found = (str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*"))
        return {path for path in found if "__pycache__" not in path or "openreg" in path}


# Which torch the package is compiled against: what tools/build_backend.py answers, without a build.


BACKEND = """
import json, sys
sys.path.insert(0, "tools")
import build_backend
metadata = build_backend.dynamic_metadata({"torch": str(build_backend.supported())}, {})
settings = build_backend._with_torch({"build-dir": "build"})
print(json.dumps([build_backend.get_requires_for_build_wheel(), metadata["dependencies"], settings]))
"""


class Answer:
    """What the build backend asks for in an environment, run as pip runs it."""

    def __init__(self, environment: Environment, *, build: Path | None = None, **variables: str) -> None:
        path = {} if build is None else {"PYTHONPATH": str(build), "PYTHONNOUSERSITE": "1"}
        result = run("env", "-C", ROOT, environment.python, "-c", BACKEND, **path, **variables)
        requirements, (self.dependency,), self.settings = json.loads(result.stdout.splitlines()[-1])
        self.requirements = [each for each in requirements if each.startswith("torch")]
        self.root = self.settings.get("cmake.define.OPENREG_TORCH_ROOT")
        self.errors = result.stderr


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("bare") / "environment", without=("torch",), with_pip=False)


@pytest.fixture
def with_torch(without_torch: Environment) -> Iterator[Callable[[str], Path]]:
    """Puts a torch into the environment that has none."""
    yield lambda version: partial_torch(without_torch.site, version) / "torch"
    shutil.rmtree(without_torch.site / "torch", ignore_errors=True)


def test_without_a_torch_the_build_requires_one_that_is_supported(without_torch: Environment) -> None:
    answer = Answer(without_torch)
    assert answer.requirements == [f"torch{SUPPORTED}"]
    assert answer.settings == {"build-dir": "build", "cmake.define.OPENREG_TORCH_ROOT": ""}


def test_the_rests_of_a_torch_are_not_one(without_torch: Environment, with_torch: Callable[[str], Path]) -> None:
    (with_torch(f"{LEAST}.0") / "__init__.py").unlink()
    answer = Answer(without_torch)
    assert answer.requirements == [f"torch{SUPPORTED}"]
    assert answer.root == ""


def test_the_source_distribution_requires_what_is_supported(
    without_torch: Environment, with_torch: Callable[[str], Path], tmp_path: Path
) -> None:
    with_torch(f"{LEAST}.0")
    code = (
        f"import sys; sys.path.insert(0, 'tools'); import build_backend; build_backend.build_sdist({str(tmp_path)!r})"
    )
    run("env", "-C", ROOT, without_torch.python, "-c", code)
    (archive,) = tmp_path.glob("torch_openreg-*.tar.gz")
    with tarfile.open(archive) as files:
        member = next(name for name in files.getnames() if name.endswith("/PKG-INFO"))
        metadata = email.message_from_bytes(files.extractfile(member).read())
    assert Requirement(metadata.get_all("Requires-Dist")[0]) == Requirement(f"torch{SUPPORTED}")
    assert metadata.get_all("Dynamic") == ["Requires-Dist"]


@pytest.mark.parametrize("version", [f"{LEAST}.0", f"{LEAST}.1+cpu"])
def test_a_supported_torch_of_the_environment_is_compiled_against(
    without_torch: Environment, with_torch: Callable[[str], Path], version: str
) -> None:
    root = with_torch(version)
    answer = Answer(without_torch)
    assert answer.requirements == []
    assert answer.root == str(root)
    assert answer.dependency == f"torch=={LEAST}.*"


@pytest.mark.parametrize("version", ["2.1.0", f"{BELOW}.0"])
def test_an_unsupported_torch_of_the_environment_is_named_and_not_used(
    without_torch: Environment, with_torch: Callable[[str], Path], version: str
) -> None:
    root = with_torch(version)
    answer = Answer(without_torch)
    assert answer.requirements == [f"torch{SUPPORTED}"]
    assert answer.root == ""
    assert f"torch_openreg supports torch {SUPPORTED} (got {version} in {root})" in one_line(answer.errors)


@pytest.mark.parametrize("version", [f"{BELOW}.0", f"{BELOW}.0.dev20300101+cpu"])
def test_a_newer_torch_is_compiled_against_if_asked_for(
    without_torch: Environment, with_torch: Callable[[str], Path], version: str
) -> None:
    root = with_torch(version)
    answer = Answer(without_torch, OPENREG_ALLOW_NEWER_TORCH="1")
    assert answer.root == str(root)
    assert answer.dependency == f"torch=={BELOW}.*"


def test_the_torch_that_the_build_required_comes_first(without_torch: Environment, tmp_path: Path) -> None:
    build = partial_torch(tmp_path / "build-environment", f"{LEAST}.7")
    answer = Answer(without_torch, build=build)
    assert answer.root == str(build / "torch")
    assert answer.dependency == f"torch=={LEAST}.*"


# The builds of the package. Each has an environment of its own, which sees the packages of the one that runs the tests.


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    yield Environment(tmp_path / "environment")
    shutil.rmtree(tmp_path, ignore_errors=True)  # an isolated build leaves gigabytes


@pytest.fixture(scope="session")
def build_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tree for all builds, as for a user: what the first compiled serves the next where the torch is the same."""
    return tmp_path_factory.mktemp("build")


ISOLATION = [pytest.param([], id="isolated"), pytest.param(["--no-build-isolation"], id="not-isolated")]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("how", ["install", "editable"])
def test_installs_works_and_uninstalls_without_a_trace(
    environment: Environment, build_tree: Path, isolation: list[str], how: str
) -> None:
    before = environment.files()
    source = [ROOT] if how == "install" else ["-e", ROOT]
    environment.pip("install", "--no-deps", *isolation, f"--config-settings=build-dir={build_tree}", *source)
    run(environment.python, "-c", USE_DEVICE)
    assert_no_absolute_rpath(environment.site / "torch_openreg")

    environment.pip("uninstall", "-y", "torch_openreg")
    assert environment.files() - before == set()
    assert before - environment.files() == set()
    left = run(environment.python, "-c", "import torch; print(hasattr(torch, 'openreg'))").stdout.strip()
    assert left == "False"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("isolation", ISOLATION)
def test_wheel_is_complete_and_relocatable(
    environment: Environment, build_tree: Path, tmp_path: Path, isolation: list[str]
) -> None:
    wheels = tmp_path / "wheels"
    environment.pip("wheel", "--no-deps", *isolation, f"--config-settings=build-dir={build_tree}", "-w", wheels, ROOT)
    (wheel,) = wheels.glob("torch_openreg-*.whl")
    environment.pip("install", "--no-deps", "--no-index", wheel)
    assert_no_absolute_rpath(environment.site / "torch_openreg")
    assert (environment.site / "torch_openreg/py.typed").exists()
    run(environment.python, "-c", USE_DEVICE)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_one_build_tree_serves_the_wheel_and_the_cpp_tests(environment: Environment, build_tree: Path) -> None:
    settings = [
        f"--config-settings={each}" for each in (f"build-dir={build_tree}", "cmake.define.OPENREG_BUILD_TESTS=ON")
    ]
    environment.pip("install", "--no-deps", "--no-build-isolation", *settings, ROOT)
    listing = run("ctest", "--test-dir", build_tree, "-N").stdout
    assert int(re.search(r"Total Tests: (\d+)", listing)[1]) > 0
    assert not list(environment.site.rglob("*_test")), "the tests must not be in the wheel"
