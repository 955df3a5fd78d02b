"""Compiles stand-ins for PyTorch's libraries of CUDA: `python generate.py FOLDER`, by a Python whose torch has CUDA.

With them such a torch loads as one that was built without CUDA (`sitecustomize.py`), which openreg-cuda needs: each
function that libtorch_cuda, libc10_cuda and libtorch_nvshmem export raises an error, and so do the virtual functions
behind the tables of classes that they export. A third library is that of CUPTI, by which torch.profiler would measure
kernels of a GPU: each function fails.
"""

from __future__ import annotations

import importlib.util
import mmap
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_REPLACED = ("torch_cuda", "c10_cuda", "torch_nvshmem")
_KEPT = ("torch_cpu", "c10", "shm")
_SHT_DYNSYM, _FUNCTION, _GLOBAL = 11, 2, 1
_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"

# What runs while libraries are loaded and bindings are made, by hand: its result, parameters and body.
_WRITTEN = {
    # A static object registers a pointer here.
    "_ZN4c10d15get_gil_checkerEv": ("void*&", "", "static void* checker = nullptr; return checker;"),
    # Default arguments of bindings.
    "_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb": ("void", "void* at, bool", "make_options(at);"),
    "_ZN4c10d16ProcessGroupNCCL7OptionsC2Eb": ("void", "void* at, bool", "make_options(at);"),
    # What programs ask for: a build without CUDA says no.
    **dict.fromkeys(
        (
            "_ZN3sdp23can_use_flash_attentionERKNS_10sdp_paramsEb",
            "_ZN3sdp23can_use_cudnn_attentionERKNS_10sdp_paramsEb",
            "_ZN3sdp31can_use_mem_efficient_attentionERKNS_10sdp_paramsEb",
            "_ZN3sdp28is_flash_attention_availableEv",
            "_ZN3sdp34is_cudnn_attention_decode_disabledEv",
        ),
        ("bool", "", "return false;"),
    ),
}

_HEAD = """\
#include <cxxabi.h>
#include <malloc.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#define WEAK __attribute__((weak))
#define TABLE {{nullptr, nullptr, {entries}}}

[[noreturn]] static void refuse(const char* symbol) {{
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  name.erase(std::min(name.find('('), name.size()));
  throw std::runtime_error("openreg: " + name + " needs a GPU");
}}
static void refuse_virtual() {{ refuse("a virtual function of a class of CUDA's"); }}

// All bytes are zero but those of the base class.
static void make_options(void* at) {{
  std::memset(at, 0, ::malloc_usable_size(at));
  new (at) c10d::Backend::Options("nccl");
}}

extern "C" void* class_type_info[] __asm__("_ZTVN10__cxxabiv117__class_type_infoE");
static void* allocator_table[] = TABLE;
static void* allocator[64] = {{allocator_table + 2}};
"""


class Symbol(NamedTuple):
    name: str
    kind: int
    binding: int
    is_defined: bool


def symbols(library: Path) -> Iterator[Symbol]:
    """The dynamic symbols of a 64-bit ELF file."""
    with library.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    table = next(section for section in sections if section[1] == _SHT_DYNSYM)
    strings = sections[table[6]][4]
    for at in range(table[4] + 24, table[4] + table[5], 24):
        name, info, _, section = struct.unpack_from("<IBBH", data, at)
        first = strings + name
        yield Symbol(data[first : data.find(b"\0", first)].decode(), info & 15, info >> 4, section != 0)


def source_of_cuda(lib: Path) -> str:
    """Raises ValueError if libtorch_python needs data for which there is no stand-in."""

    def of(name: str) -> list[Symbol]:
        return list(symbols(lib / f"lib{name}.so"))

    done = {each.name for name in _KEPT for each in of(name) if each.is_defined} | {"_init", "_fini"}
    python = of("torch_python")
    needed = {each.name for each in python if not each.is_defined}
    own = {each.name for each in python if each.is_defined}
    lines = [_HEAD.format(entries=", ".join(["(void*)&refuse_virtual"] * 128))]
    for each in (symbol for name in _REPLACED for symbol in of(name)):
        name = each.name
        is_table, is_type = name.startswith("_ZTV"), name.startswith("_ZTI")
        if not each.is_defined or name in done:
            continue
        if name not in needed and (name in own or not (each.binding == _GLOBAL or is_table or is_type)):
            continue
        done.add(name)
        label, symbol = f"s{len(lines)}", f'__asm__("{name}")'
        if name in _WRITTEN:
            result, parameters, body = _WRITTEN[name]
            function = f"{result} {label}({parameters})"
            lines.append(f'extern "C" {function} {symbol}; {function} {{ {body} }}')
        elif each.kind == _FUNCTION:
            lines.append(f'extern "C" void {label}() {symbol}; void {label}() {{ refuse("{name}"); }}')
        elif is_type:
            value = f'{{(void*)(class_type_info + 2), (void*)"{name[4:]}"}}'
            lines.append(f'extern "C" WEAK void* {label}[2] {symbol}; void* {label}[2] = {value};')
        elif is_table:
            lines.append(f'extern "C" WEAK void* {label}[130] {symbol}; void* {label}[130] = TABLE;')
        elif name == _ALLOCATOR:
            lines.append(f'extern "C" void* {label} {symbol}; void* {label} = &allocator;')
        elif name in needed:
            raise ValueError(f"libtorch_python needs {name}, which is data without a stand-in")
    return "\n".join(lines) + "\n"


def source_of_cupti(lib: Path) -> str:
    names = {each.name for name in ("torch_cpu", "torch_python") for each in symbols(lib / f"lib{name}.so")}
    lines = []
    for name in sorted(each for each in names if each.startswith("cupti")):
        parameters, body = "", "return 15;"  # CUPTI_ERROR_NOT_INITIALIZED
        if name == "cuptiGetResultString":
            parameters, body = "int, const char** text", '*text = "there is no GPU"; return 0;'
        lines.append(f'extern "C" int {name}({parameters}) {{ {body} }}')
    return "\n".join(lines) + "\n"


def name_of_cupti(lib: Path) -> str:
    """By which name libtorch_cpu needs CUPTI: libcupti.so.13."""
    with (lib / "libtorch_cpu.so").open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    first = data.find(b"\0libcupti.so.") + 1
    return data[first : data.find(b"\0", first)].decode()


def link(library: Path, source: str, *arguments: str) -> None:
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *arguments]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)


def main(folder: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    lib, include = root / "lib", root / "include"
    folder.mkdir(parents=True, exist_ok=True)
    headers = [f"-I{each}" for each in (include, include / "torch/csrc/api/include")]
    libraries = [f"-L{lib}", "-ltorch_cpu", "-lc10"]
    link(folder / "libtorch_cuda.so", source_of_cuda(lib), *headers, *libraries)
    link(folder / "libc10_cuda.so", "")
    cupti = name_of_cupti(lib)
    # The loader knows its symbols also by a version, which is its name.
    versions = folder / "cupti.map"
    versions.write_text(f"{cupti} {{ global: cupti*; local: *; }};\n")
    link(folder / cupti, source_of_cupti(lib), f"-Wl,--version-script={versions}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
