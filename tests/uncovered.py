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

# By file (a pattern of its path): patterns of the text of lines, with the reason why no test runs them.
UNCOVERED: dict[str, dict[str, str]] = {}


def lines_of_cpp(report: Path) -> Iterator[tuple[str, int, bool]]:
    """File, line, and whether it ran."""
    for file in json.loads(report.read_text())["files"]:
        for line in file["lines"]:
            if not line.get("gcovr/noncode", False):
                yield file["file"], line["line_number"], line["count"] > 0


def lines_of_python(report: Path) -> Iterator[tuple[str, int, bool]]:
    """The same. The package that ran is the installed one."""
    for file, lines in json.loads(report.read_text())["files"].items():
        path = "python/torch_openreg/" + file.split("torch_openreg/", 1)[1]
        for number in lines["executed_lines"]:
            yield path, number, True
        for number in lines["missing_lines"]:
            yield path, number, False


def reason_for(path: str, text: str) -> str | None:
    for file, lines in UNCOVERED.items():
        if re.search(file, path):
            for line, reason in lines.items():
                if re.search(line, text):
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
            text = "" if covered else (ROOT / path).read_text().splitlines()[number - 1].strip()
            if not covered and reason_for(path, text) is None:
                unexplained += 1
                print(f"  {path}:{number}: {text}")
    print(f"{unexplained} lines that no test runs have no reason in tests/uncovered.py")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
