"""Checks that public prose uses the field's terms: pages, titles of the site, docstrings and the help of options."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What is refused, as a regular expression in which a space is any white space, and the usual term.
REFUSED = {
    r"(?:faults? )?on purpose": "fault injection, injected fault; deliberately",
    r"(?:has|have|had|having|lacks?|lacked|lacking|without|needs?|missing) (?:an|no|the) order": "unsynchronized",
    r"(?:without|lacks?|lacked|lacking|missing) orders?": "unsynchronized, missing synchronization",
    r"(?:makes?|made|making|is) (?:an|no) order": "to synchronize, to order",
    r"hidden waits?": "implicit synchronization",
    r"(?:makes?|made|making) the host wait": "to synchronize implicitly",
    r"mend(?:s|ed|ing)?": "fix",
    r"devices? in (?:its|their) own process(?:es)?": "out-of-process execution",
    r"(?:that|which|who|to) says? [\"'`]*cuda": "CUDA emulation; programs written for CUDA",
    r"(?:by|without|bad) luck": "by chance; deterministically",
    r"(?:is|are) (?:written|tested) so": "works this way",
    r"detectors? of races": "race detector",
    r"follow(?:s|ed|ing)? (?:a |an |the |one |its )?(?:device )?(?:pointer|address)(?:e?s)?": "dereference",
    r"late errors?": "asynchronous error",
}

_PAGES = ("*.md", "docs/**/*.md", "integrations/*/README.md", "mkdocs.yml")
_SOURCES = ("python/**/*.py", "integrations/*/src/**/*.py")
_CODE = re.compile(r"^```.*?^```", re.M | re.S)


def prose_of_page(text: str) -> str:
    """A page without its blocks of code, which may quote what the device prints. Lines keep their numbers."""
    return _CODE.sub(lambda block: "\n" * block[0].count("\n"), text)


def prose_of_source(text: str) -> str:
    """The docstrings and the help of options in a Python source, at their lines."""
    prose = [""] * (text.count("\n") + 1)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "help"):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines = value.value.split("\n")
                prose[value.lineno - 1 : value.lineno - 1 + len(lines)] = lines
    return "\n".join(prose)


def refused(text: str) -> Iterator[tuple[int, str]]:
    """The line of each refused phrase, and what is wrong with it."""
    for phrase, term in REFUSED.items():
        for found in re.finditer(r"\b" + phrase.replace(" ", r"\s+") + r"\b", text, re.IGNORECASE):
            line = text.count("\n", 0, found.start()) + 1
            yield line, f'"{" ".join(found[0].split())}" is not the usual term ({term})'


def complaints(root: Path) -> Iterator[str]:
    """One complaint for each refused phrase in the prose of a tree."""
    for patterns, prose in ((_PAGES, prose_of_page), (_SOURCES, prose_of_source)):
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            for line, complaint in sorted(refused(prose(path.read_text()))):
                yield f"{path.relative_to(root)}:{line}: {complaint}"


def main() -> int:
    """Prints the complaints; returns the exit status."""
    found = list(complaints(ROOT))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
