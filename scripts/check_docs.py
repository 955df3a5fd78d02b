"""Checks the documents: links and named tests exist, the table of settings is complete, the README is short."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.M | re.S)
_HEADING = re.compile(r"^#+ (.*)$", re.M)
_TAG = re.compile(r"<[^>]+>")
_ANCHOR = re.compile(r"<a id=\"([^\"]+)\">")
_TEST = re.compile(r"\b(?:test_\w+\.py|\w+_test\.cpp)\b")
_VARIABLE = re.compile(r"TORCH_OPENREG_[A-Z_]+")
_README_LINES, _README_WORDS = 120, 1000


def documents() -> list[Path]:
    """The project's own: not those of an environment or a build tree."""
    pages = [ROOT.glob(pattern) for pattern in ("*.md", "docs/**/*.md", "tests/*.md", "integrations/*/*.md")]
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
    tests = {path.name for folder in ("tests", "integrations") for path in (ROOT / folder).rglob("*test*")}
    named = {document: set(_TEST.findall(document.read_text())) for document in documents()}
    return [f"{page.relative_to(ROOT)}: there is no {name}" for page in named for name in sorted(named[page] - tests)]


def unlisted_settings() -> list[str]:
    """One complaint for each setting that is only in the sources or only in the table."""
    table = set(_VARIABLE.findall((ROOT / "docs/settings.md").read_text()))
    used = {variable for source in sources() for variable in _VARIABLE.findall(source.read_text())}
    complaints = [f"docs/settings.md does not list {variable}" for variable in sorted(used - table)]
    return complaints + [f"docs/settings.md lists {variable}, which nothing reads" for variable in sorted(table - used)]


def main() -> int:
    """Prints the complaints; returns the exit status."""
    complaints = [complaint for document in documents() for complaint in broken_links(document)]
    complaints += unknown_tests() + unlisted_settings() + long_readme(ROOT / "README.md")
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
