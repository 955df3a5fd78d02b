"""The C++ of kernels: adapts what Inductor generates for the CPU to the device's engines."""

from __future__ import annotations

import re

ENTRY = "entry"
"""The function of a kernel's library that takes its arguments as words."""

_PARALLEL = re.compile(r"#pragma omp parallel( num_threads\(\d+\))?$", re.MULTILINE)
_DIVIDES = re.compile(r"\b(floor_divide_integral|remainder_integral|mod)\(")
_NOTES_DIVISIONS = re.compile(r"^ *(std::atomic<int> )?inductor_cpu_(throw_if_)?integer_div_error.*\n", re.MULTILINE)
_ONE_AT_A_TIME = "#include <mutex>\ninline std::mutex openreg_integer_divisions;\n"


def source_for_the_device(source: str, types: list[str], threads: int) -> str:
    """The adapted source of a kernel with parameters of these types that was generated for `threads` threads."""
    source = _PARALLEL.sub(_team(threads), source)
    # Kernels record divisions by zero in a variable that is global to the process. On the CPU kernels run one after the
    # other; kernels of several engines would overwrite it. So kernels that divide integers run under a lock, and the
    # others do not touch the variable.
    divides = _DIVIDES.search(source) is not None
    if not divides:
        source = _NOTES_DIVISIONS.sub("", source)
    return f"{source.strip()}\n{_ONE_AT_A_TIME if divides else ''}{_entry(types, divides)}"


# The number of threads depends on which thread runs the command (docs/architecture.md, "Number of threads"). The
# generated code has arrays of partial results for `most` threads, and works with fewer.
def _team(most: int) -> str:
    return f"#pragma omp parallel num_threads(std::min({most}, omp_get_max_threads()))"


def _entry(types: list[str], in_turn: bool) -> str:
    """The function that calls the kernel with words (ops/compiled/compiled_kernel.h)."""

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
