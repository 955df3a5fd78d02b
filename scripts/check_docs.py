"""Checks the documents: links and files that they name exist, all settings are listed, the README is short."""

from __future__ import annotations

import os
import re
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.M | re.S)
_HEADING = re.compile(r"^#+ (.*)$", re.M)
_TAG = re.compile(r"<[^>]+>")
_ANCHOR = re.compile(r"<a id=\"([^\"]+)\">")
_TEST = re.compile(r"\b(?:test_\w+\.py|\w+_test\.cpp)\b")
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w*-][\w./*-]*\.(?:cff|cmake|cpp|h|in|json|map|md|py|pyi|svg|toml|txt|yaml|yml)")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+/?")
_SUBJECT = re.compile(r"^<!-- files of: (.*) -->$", re.M)
# The sources of PyTorch, what a build makes, and places that a reader chooses.
_ELSEWHERE = re.compile(r"(?:ATen|aten|c10|test|torch|build|[A-Z_]+|\.{1,2}|https?:)/")
_VARIABLE = re.compile(r"TORCH_OPENREG_[A-Z_]+")
_README_LINES, _README_WORDS = 120, 1000


def documents() -> list[Path]:
    """The project's own: not those of an environment or a build tree."""
    pages = [ROOT.glob(pattern) for pattern in ("*.md", "docs/**/*.md", "tests/*.md", "packages/*/*.md")]
    return sorted(page for each in pages for page in each)


def sources() -> list[Path]:
    """What may read settings."""
    return [path for kind in ("cpp/**/*.h", "cpp/**/*.cpp", "python/**/*.py") for path in ROOT.glob(kind)]


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them, and those that it sets itself."""
    text = _CODE.sub("", document.read_text())
    headings = [_TAG.sub("", heading).lower() for heading in _HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings} | set(_ANCHOR.findall(text))


def broken_links(document: Path) -> list[str]:
    """One complaint for each broken relative link."""
    complaints = []
    for link in _LINK.findall(_CODE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            complaints.append(f"{document.relative_to(ROOT)}: {link} does not exist")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            complaints.append(f"{document.relative_to(ROOT)}: {link} has no such heading")
    return complaints


def long_readme(readme: Path) -> list[str]:
    """A complaint if the README is longer than a newcomer reads."""
    text = readme.read_text()
    lines, words = text.count("\n"), len(text.split())
    if lines <= _README_LINES and words <= _README_WORDS:
        return []
    most = f"at most {_README_LINES} and {_README_WORDS}"
    return [f"{readme.name}: {lines} lines, {words} words ({most}); move text to docs"]


def unknown_tests() -> list[str]:
    """One complaint for each file of tests that a document names and that does not exist."""
    tests = {path.name for folder in ("tests", "packages") for path in (ROOT / folder).rglob("*test*")}
    named = {document: set(_TEST.findall(document.read_text())) for document in documents()}
    return [f"{page.relative_to(ROOT)}: there is no {name}" for page in named for name in sorted(named[page] - tests)]


@cache
def paths() -> frozenset[str]:
    """The paths of all files and folders of the project, files also without their suffixes."""
    found = set()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not re.search(r"^(build|\.venv|\.git)$|cache", name)]
        here = Path(folder).relative_to(ROOT)
        found |= {(here / name).as_posix() for name in {*folders, *files, *(Path(file).stem for file in files)}}
    return frozenset(found)


@cache
def _ends(folders: str) -> frozenset[str]:
    """What of the paths in these folders may be written in their place: `tiers/quirks.cpp`."""
    parts = [path.split("/") for path in paths() if path.startswith(tuple(folders.split()) or "")]
    return frozenset("/".join(each[first:]) for each in parts for first in range(len(each)))


@cache
def _programs() -> str:
    """The programs of all documents, which may make the files that a page names."""
    return "".join(code for page in documents() for code in _CODE.findall(page.read_text()))


def _named_files(text: str) -> set[str]:
    """What a text names in backticks as a file, or as a file or folder by its path."""
    spans = [span.split() for span in _SPAN.findall(_CODE.sub("", text))]
    named = {word for span in spans for word in span if _PATH.fullmatch(word)}
    return {name.rstrip("/") for name in named} | {
        word for span in spans for word in span if len(span) == 1 and _FILE.fullmatch(word)
    }


def unknown_files(document: Path) -> list[str]:
    """One complaint for each file in backticks that is neither in the project nor in a program of the documents.

    A path may begin at any folder. If the page says `<!-- files of: FOLDER ... -->`, a name without a folder is that of
    a file in one of these.
    """
    text = document.read_text()
    subject = _SUBJECT.search(text)

    def exists(name: str) -> bool:
        ends = _ends(subject[1] if subject and "/" not in name else "")
        if "*" in name:
            return any(fnmatchcase(end, name) for end in ends)
        return name in ends or re.search(rf"(?<![\w/]){re.escape(name)}\b", _programs()) is not None

    named = sorted(name for name in _named_files(text) if not _ELSEWHERE.match(name))
    return [f"{document.relative_to(ROOT)}: there is no {name}" for name in named if not exists(name)]


def unlisted_settings() -> list[str]:
    """One complaint for each setting that is only in the sources or only in the table."""
    table = set(_VARIABLE.findall((ROOT / "docs/settings.md").read_text()))
    used = {variable for source in sources() for variable in _VARIABLE.findall(source.read_text())}
    complaints = [f"docs/settings.md does not list {variable}" for variable in sorted(used - table)]
    return complaints + [f"docs/settings.md lists {variable}, which nothing reads" for variable in sorted(table - used)]


def complaints() -> list[str]:
    of_documents = [each for page in documents() for each in broken_links(page) + unknown_files(page)]
    return of_documents + unknown_tests() + unlisted_settings() + long_readme(ROOT / "README.md")


if __name__ == "__main__":
    sys.exit("\n".join(complaints()) or None)
