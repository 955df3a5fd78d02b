"""The C++ of kernels: what Inductor wrote for the CPU becomes what the device's engines can run."""

from __future__ import annotations

import re

ENTRY = "entry"
"""The function of a kernel's library that takes its arguments as words."""

_PARALLEL = re.compile(r"#pragma omp parallel( num_threads\(\d+\))?$", re.MULTILINE)
_DIVIDES = re.compile(r"\b(floor_divide_integral|remainder_integral|mod)\(")
_NOTES_DIVISIONS = re.compile(r"^ *(std::atomic<int> )?inductor_cpu_(throw_if_)?integer_div_error.*\n", re.MULTILINE)
_ONE_AT_A_TIME = "inline std::mutex openreg_integer_divisions;\n"


def source_for_the_device(source: str, types: list[str], threads: int) -> str:
    """The source of a kernel with parameters of these types, which was made for so many threads."""
    source = _PARALLEL.sub(_team(threads), source)
    # Kernels note divisions by zero by way of one variable of the whole process. On the CPU one runs after the other;
    # engines would take it from each other. So those that divide integers do it in turn, and others leave it alone.
    divides = _DIVIDES.search(source) is not None
    if not divides:
        source = _NOTES_DIVISIONS.sub("", source)
    return f"{source.strip()}\n{_ONE_AT_A_TIME if divides else ''}{_entry(types, divides)}"


# Who runs a command decides how many threads it has (docs/architecture.md, "Who computes"). The code is made for a
# number of them, as long as its arrays of partial results, and works with fewer.
def _team(most: int) -> str:
    return f"#pragma omp parallel num_threads(std::min({most}, omp_get_max_threads()))"


def _entry(types: list[str], in_turn: bool) -> str:
    """Calls the kernel with words (ops/compiled/compiled_kernel.h)."""

    def argument(number: int, type_: str) -> str:
        word = f"arguments[{number}]"
        if type_.endswith("*"):
            return f"reinterpret_cast<{type_}>({word})"
        if type_ == "const float":
            return f"c10::bit_cast<float>(static_cast<int32_t>({word}))"
        return word

    lock = "const std::lock_guard<std::mutex> lock(openreg_integer_divisions); " if in_turn else ""
    passed = ", ".join(argument(number, type_) for number, type_ in enumerate(types))
    return f'extern "C" void {ENTRY}(const int64_t* arguments) {{ {lock}kernel({passed}); }}\n'
