"""Checks that public prose uses the field's terms: pages, titles, docstrings, messages, help, scripts."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
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
    r"(?:the )?system refuses": "cannot ...: and the system's own message",
    r"(?:of )?another kind of device": "another device type, the wrong device type",
    r"follow(?:s|ed|ing)? (?:a |an |the |one |its )?(?:device )?(?:pointer|address)(?:e?s)?": "dereference",
    r"late errors?": "asynchronous error",
}

_PAGES = ("*.md", "docs/**/*.md", "packages/*/README.md", "mkdocs.yml")
_PYTHON = ("python/**/*.py", "packages/*/src/**/*.py")
_CPP = tuple(f"{folder}/**/*.{ending}" for folder in ("cpp", "packages/*/src") for ending in ("cpp", "h"))
_CODE = re.compile(r"^```.*?^```", re.M | re.S)
# What may have quotation marks in C++: comments, raw strings, strings and characters.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<end>\w*)\((?P<raw>.*?)\)(?P=end)"|"(?P<text>(?:\\.|[^"\\\n])*)"|'(?:\\.|[^'\\\n])'""",
    re.S,
)
_SHELL = tuple(f"scripts/{name}" for name in ("*.sh", "docs", "lint", "test*", "train", "wheels"))
_BETWEEN = "\0"  # literals of a line: no phrase extends over it


def prose_of_page(text: str) -> str:
    """A page without its blocks of code, which may quote what the device prints. Lines keep their numbers."""
    return _CODE.sub(lambda block: "\n" * block[0].count("\n"), text)


def prose_of_python(text: str) -> str:
    """The string literals of a Python source: docstrings, messages, the help of options. Each begins at its line."""
    return _at_their_lines(text, _literals_of_python(ast.parse(text)))


def _literals_of_python(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "..." for part in node.values]
        yield node.lineno, "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals_of_python(child)


def prose_of_cpp(text: str) -> str:
    """The string literals of a C++ source. Adjacent ones are one, at the line of the first."""
    literals: list[tuple[int, str]] = []
    end = 0
    for token in _TOKEN.finditer(text):
        found = token["raw"] if token["text"] is None else re.sub(r"\\(.)", r" \1", token["text"].replace(r"\n", " "))
        adjacent = bool(literals) and not text[end : token.start()].strip()
        if found is not None and adjacent:
            literals[-1] = (literals[-1][0], literals[-1][1] + found)
        elif found is not None:
            literals.append((text.count("\n", 0, token.start()) + 1, found))
        if found is not None or adjacent:
            end = token.end()
    return _at_their_lines(text, literals)


def _at_their_lines(text: str, literals: Iterable[tuple[int, str]]) -> str:
    prose = [""] * (text.count("\n") + 1)
    for first, literal in literals:
        for number, line in enumerate(literal.split("\n"), first - 1):
            if number < len(prose):
                prose[number] += line if number != first - 1 else _BETWEEN + line
    return "\n".join(prose)


def refused(text: str) -> Iterator[tuple[int, str]]:
    """The line of each refused phrase, and what is wrong with it."""
    for phrase, term in REFUSED.items():
        for found in re.finditer(r"\b" + phrase.replace(" ", r"\s+") + r"\b", text, re.IGNORECASE):
            line = text.count("\n", 0, found.start()) + 1
            yield line, f'"{" ".join(found[0].split())}" is not the usual term ({term})'


def complaints(root: Path) -> Iterator[str]:
    """One complaint for each refused phrase in the prose of a tree."""
    for patterns, prose in ((_PAGES + _SHELL, prose_of_page), (_PYTHON, prose_of_python), (_CPP, prose_of_cpp)):
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            for line, complaint in sorted(refused(prose(path.read_text()))):
                yield f"{path.relative_to(root)}:{line}: {complaint}"


if __name__ == "__main__":
    sys.exit("\n".join(complaints(ROOT)) or None)
