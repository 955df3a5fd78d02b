"""Which lines no test runs, of those that have no reason not to be: called by scripts/coverage.

python tests/uncovered.py CPP.json PYTHON.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

AUTOGRAD = "runs on autograd's threads, which are C++'s: Python's counters do not see it"
DYNAMO = "Dynamo reads it, and does not run it"
KILLED = "runs in processes that a signal or _exit() ends: their counters are lost"
MEMORY = "the host's memory has run out"
NEVER = "what is waited for is in the queue, and there before that is empty; but a mistake in this would never end"
SYSTEM = "the system refuses what it grants everywhere else"

# By file (a pattern of its path): patterns of the text of lines, with the reason why no test runs them. Where a line
# alone says too little, the pattern is of two lines: of the one before, too.
UNCOVERED: dict[str, dict[str, str]] = {
    r"^cpp/": {
        r"^[\])};,]*$": "no statement: what the compiler cleans up here after an exception",
        r"^class \w+( final)?( : public \w+)? \{$|^/// |= delete;$": "no statement: a member that the compiler makes",
    },
    # --- Parts of statements that the compiler counts with another line
    r"^cpp/backend/allocator_settings": {r"^\", expected key:value": "the rest of a TORCH_CHECK that tests run"},
    r"^cpp/bindings/host_memory": {r"^const auto stats = \[\] \{$": "the frame of a lambda, whose body runs"},
    r"^cpp/memory/heap\.cpp": {r"^\(block == nullptr \|\| whole->bytes <=": "the rest of a condition that tests run"},
    r"^cpp/distributed/work": {
        r"what_\(std::move\(what\)\),$|^backend::translate_errors\(\[&\] \{$": "the frame of what tests run",
        r"::abort\(\)|was aborted|give_up\(error\);$|getSequencenumber": "PyTorch's Python does not ask for it",
    },
    r"^cpp/distributed/process_group\.cpp": {r"^WorkOccl::What\{": "counted with the next line, which tests run"},
    r"^cpp/memory/heap_segments": {r"^const auto reserved =": "counted with the next line, which tests run"},
    r"^cpp/ops/wire/argument_reader": {r"^c10::Storage\(storage\), c10::Disp": "an argument of a call that tests run"},
    # --- Defences, and what the counters do not see
    r"^cpp/backend/host_allocator": {
        r"::free\(block\);\n\} catch \(const std::exception& e\) \{$": MEMORY,
        r"^TORCH_WARN_ONCE\(\"openreg: pinned memory was not reused": MEMORY,
        r"pinned memory was not reused.*\ne\.what\(\)\);$": MEMORY,
        r"get_current_stream\(\)|stream_is_capturing": "PyTorch asks only while a graph is captured",
    },
    r"^cpp/backend/memory_history": {r"^TORCH_INTERNAL_ASSERT\(false": "an action that the installed torch has not"},
    r"^cpp/backend/pinned_pages": {
        r"increase\(locked\);\n\} catch \(\.\.\.\) \{$|^::munmap.*\nthrow;$": MEMORY,
        r"^::munmap\(pages, size\);$": MEMORY,
    },
    r"^cpp/bindings/autograd_threads": {r"^// For example, no thread is available.*\nreturn;$": SYSTEM},
    r"^cpp/bindings/errors": {r"^torch::translate_": "an operator that is written in Python fails inside of a binding"},
    r"^cpp/bindings/streams": {r"check_sleep|wrong sleep arguments": "only commands from elsewhere are checked"},
    r"^cpp/distributed/blocking_calls": {
        r"start_detached_thread.*\n\} catch \(\.\.\.\) \{$|^calls_\.pop_back.*\nthrow;$": SYSTEM,
        r"^calls_\.pop_back\(\);$": SYSTEM,
    },
    r"^cpp/distributed/gloo_operation": {
        r"std::system_error|no thread available|no thread available.*\nfinish\(\);$": SYSTEM
    },
    r"^cpp/distributed/progress": {r"std::system_error|no thread available": SYSTEM},
    r"^cpp/runtime/stream_operation": {
        r"^virtual void skip": "operations that need nothing of it: tests have one that does"
    },
    r"^python/torch_openreg/__main__": {
        r"^except OSError|^lines = \[\]$": "a system without /proc",
        r"^raise AssertionError|^except AssertionError": "a device that does not work",
    },
    r"^python/torch_openreg/_pytorch/attention": {r"^return module\._templated_ring_attention_backward\($": AUTOGRAD},
    r"^python/torch_openreg/_pytorch/ddp": {
        r"^future|^if bucket|^return future$": AUTOGRAD,
        r"^if gradient|\(ctx, gradient\)$|^size = |^own = |_tensor\(own|None, own": AUTOGRAD,
        r"^return original\(group_name, min_size\)$": "a machine with CUDA",
    },
    r"^python/torch_openreg/openreg/streams": {
        r"^plain = |^return plain\b|^index = _get_device_index|^return Stream\(stream_id=0": DYNAMO,
    },
    r"^python/torch_openreg/openreg/device": {r"^torch\.accelerator\.synchronize\(\) if device is None else ": DYNAMO},
    r"^python/torch_openreg/_pytorch/distributed": {r"^return  # PyTorch then reports": "a torch without Gloo"},
    r"^cpp/ops/tensors/copy": {r"^at::_ops::zero_::call": "PyTorch has made zero tensors real before, by its own key"},
    r"^cpp/runtime/address_space/address_space": {
        r"^madvise\(address, bytes, MADV_DONTNEED\);$": "the system has no room for another mapping",
        r"^ranges\.free\(address, bytes\);$": MEMORY,
        r"^ranges\.free.*\nreturn false;$": MEMORY,
    },
    r"^cpp/runtime/command_queue": {r"^void operator\(\)\(std::byte\* arguments\)": MEMORY},
    r"^cpp/runtime/engine": {
        r"^\} catch \(const std::system_error& refused\) \{$|^error = refused\.code": SYSTEM,
        r"^throw Error\(\"openreg: cannot start an engine thread|^\"; raise `ulimit -u`": SYSTEM,
    },
    r"^cpp/runtime/failure\.cpp": {r"^\} catch .*// no memory|^std::fprintf\(stderr, \"openreg: %s failed; no": MEMORY},
    r"^cpp/runtime/address_space/(fault_message|signal_handler)": {r"": KILLED},
    r"^cpp/runtime/address_space/host_memory": {
        r"^throw Error\(\"openreg: the size of the machine's memory is unknown": SYSTEM
    },
    r"^cpp/runtime/process": {r"^throw Error\(\"openreg: cannot register the exit and fork handlers": MEMORY},
    r"^cpp/runtime/scheduler": {
        r"start_engine_thread\(engines\.kind\);\n\} catch \(\.\.\.\) \{$": SYSTEM,
        r"^\} catch \(\.\.\.\) \{\nconst LockGuard lock\(scheduler_mutex\);$": SYSTEM,
        r"^const LockGuard .*\n--engines\.threads;$|^--engines\.threads;\n--engines\.visitors;$": SYSTEM,
        r"^--engines\.visitors;\nthrow;$|start_engine\(engines\);\n\} catch \(const Error&\) \{$": SYSTEM,
        r"^if \(!stopping_.*\) return;\nstand_still\(\);$": "a command begins just when the process ends",
    },
    r"^cpp/runtime/stream_pool": {
        r"new StreamImpl.*\n\} catch \(\.\.\.\) \{$|^streams_\.pop_back.*\nthrow;$": MEMORY,
        r"^streams_\.pop_back\(\);$": MEMORY,
    },
    r"^cpp/runtime/turn": {r"^throw;  // the thread is being ended": "Python ends a thread in a command when it exits"},
    r"^cpp/runtime/wait": {
        r"^if \(scheduler_\.go_idle\(stream\)\) return false;$": NEVER,
        r"go_idle\(stream\).*\ncontinue;$": NEVER,
    },
}


def lines_of_cpp(report: Path) -> Iterator[tuple[str, int, bool]]:
    """File, line, and whether it ran."""
    for file in json.loads(report.read_text())["files"]:
        for line in file["lines"]:
            if not line.get("gcovr/noncode", False):
                yield file["file"], line["line_number"], line["count"] > 0


def lines_of_python(report: Path) -> Iterator[tuple[str, int, bool]]:
    """The same. What ran is the installed package, or a copy of it that a test made."""
    for file, lines in json.loads(report.read_text())["files"].items():
        path = "python/torch_openreg/" + re.split(r"torch_openreg/(?!.*torch_openreg/)", file)[1]
        for number in lines["executed_lines"]:
            yield path, number, True
        for number in lines["missing_lines"]:
            yield path, number, False


def reason_for(path: str, before: str, text: str) -> str | None:
    for file, lines in UNCOVERED.items():
        if re.search(file, path):
            for pattern, reason in lines.items():
                if re.search(pattern, f"{before}\n{text}" if r"\n" in pattern else text):
                    return reason
    return None


def main() -> int:
    unexplained = 0
    for language, lines in (("C++", lines_of_cpp(Path(sys.argv[1]))), ("Python", lines_of_python(Path(sys.argv[2])))):
        ran: dict[tuple[str, int], bool] = {}
        for path, number, covered in lines:
            ran[path, number] = ran.get((path, number), False) or covered
        print(f"{language}: {sum(ran.values())} of {len(ran)} lines ({sum(ran.values()) / len(ran):.1%})")
        for (path, number), covered in sorted(ran.items()):
            if covered:
                continue
            before, text = [
                line.strip() for line in ["", *(ROOT / path).read_text().splitlines()][number - 1 : number + 1]
            ]
            if reason_for(path, before, text) is None:
                unexplained += 1
                print(f"  {path}:{number}: {text}")
    print(f"{unexplained} lines that no test runs have no reason in tests/uncovered.py")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
