# shellcheck shell=bash
# Sourced by the other scripts, from the root of the project. Provides
#   need <what>...      requires system packages: installs them as root on Debian, else fails and names them
#   use_environment     activates the virtual environment: the active one, else .venv, which it creates if needed
#   install <extras>    builds and installs the project there; further arguments go to pip
#   requirements <list>  prints what the build needs besides torch ("requires"), or what an extra needs
#   turn                prints the number of the day, for what is tested by turns
#   supports <version>  whether pyproject.toml allows a version of torch
# The system's own Python is only used to create .venv.

readonly build_dir=${build_dir:-build/wheel} # one build tree for the wheel and its C++ tests
readonly default_torch=2.13.0 # for an environment that has none: the oldest that is supported

say() { printf '\n== %s (%(%T)T)\n' "$*" -1; }
fail() {
  printf 'openreg: %s\n' "$*" >&2
  exit 1
}

# Whether something is installed, by the name of its Debian package.
have() {
  case $1 in
    g++) command -v "${CXX:-g++}" >/dev/null ;;
    clang) command -v clang++ >/dev/null ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ >/dev/null ;;
    qemu-user) command -v qemu-aarch64 >/dev/null ;;
    git | gdb | spin | valgrind | clang-tidy) command -v "$1" >/dev/null ;;
    libgtest-dev) has_header gtest/gtest.h ;;
    python3-venv | python3-dev) find_python ;;
    *) false ;;
  esac
}

has_header() { "${CXX:-g++}" -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1; }

is_debian_root() { [[ $(id -u) == 0 && -e /etc/debian_version ]] && command -v apt-get >/dev/null; }

need() {
  local missing=()
  local package
  for package in "$@"; do
    have "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  if is_debian_root; then
    say "Installing by apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null ||
      fail "apt could not install: ${missing[*]}"
  fi
  for package in "${missing[@]}"; do
    have "$package" || fail "missing ${missing[*]} (names of Debian packages); install them, as in: sudo apt-get install ${missing[*]}"
  done
}

# Sets `python` to an interpreter that can create virtual environments and has its headers. The first python3 on the PATH
# may be a version manager's, too old or without headers, while the system's is suitable.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python3.{11,12,13,10}; do
    if "$candidate" - <<'PYTHON' >/dev/null 2>&1; then
import ensurepip, os, sys, sysconfig, venv
assert (3, 10) <= sys.version_info < (3, 15)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
PYTHON
      python=$candidate
      return 0
    fi
  done
  return 1
}

use_environment() {
  if [[ -n ${VIRTUAL_ENV:-} ]]; then
    python=$VIRTUAL_ENV/bin/python
    "$python" -c 'import pip' 2>/dev/null || fail "the active environment $VIRTUAL_ENV has no pip; run: $python -m ensurepip"
  else
    if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
      say "Making .venv"
      need python3-venv python3-dev
      find_python
      "$python" -m venv --clear .venv
    fi
    export VIRTUAL_ENV=$PWD/.venv
    python=$VIRTUAL_ENV/bin/python
  fi
  export PATH="$VIRTUAL_ENV/bin:$PATH"
  unset PYTHONHOME PYTHONPATH
}

# A list of requirements of pyproject.toml, one a line: "requires" of the build, or one of the extras.
requirements() {
  "$python" - "$1" <<'PYTHON'
import ast, pathlib, re, sys
pyproject = pathlib.Path("pyproject.toml").read_text()
print(*ast.literal_eval(re.search(rf"^{sys.argv[1]} = (\[.*?\])", pyproject, re.M | re.S)[1]), sep="\n")
PYTHON
}

turn() { printf '%d' "$((10#$(date +%j)))"; }

# Needs `packaging`, which is one of the build requirements.
supports() {
  "$python" - "$1" <<'PYTHON'
import pathlib, re, sys
from packaging.specifiers import SpecifierSet
supported = re.search(r'^torch = "(.*)"', pathlib.Path("pyproject.toml").read_text(), re.M)[1]
sys.exit(sys.argv[1] not in SpecifierSet(supported))
PYTHON
}

# The build needs the torch that the package will run with, so there is no isolation: its requirements go into the
# environment. Options are spelled out: the pip of Debian 12 has no -C, and that of Ubuntu 22.04 has neither form, so it is
# upgraded first.
install() {
  local extras=$1
  shift
  [[ $("$python" -m pip install --help) == *--config-settings* ]] || "$python" -m pip install --quiet --upgrade pip
  say "Installing what the build needs (torch is by far the largest)"
  requirements requires | "$python" -m pip install --quiet -r /dev/stdin
  "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' ||
    "$python" -m pip install --quiet "torch==$default_torch"
  say "Building and installing torch_openreg"
  "$python" -m pip install --quiet --no-build-isolation --config-settings=build-dir="$build_dir" "$@" ".[$extras]"
}
