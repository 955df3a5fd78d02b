"""The documents: their pages, and the code in them, as readers copy it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCUMENTS = Path(__file__).parents[2] / "docs"
ROOT = DOCUMENTS.parent

# A block of code, or a remark to the test that runs the blocks, which no reader sees:
#   <!-- run by FILE -->            above the first block: that test runs the page's code
#   <!-- not run: REASON -->        above a block
#   <!-- run first: CODE -->        code that a reader's program has already
#   <!-- run alone: CODE -->        the same, for a block that is a whole program, which starts processes
_PIECE = re.compile(
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$"
    r"|^<!-- (?P<remark>run by|not run:|run first:|run alone:)\s(?P<said>.*?)\s*-->$",
    re.M | re.S,
)


@dataclass
class Block:
    """A fenced block of a page."""

    page: str
    line: int  # of its first line of code
    language: str
    code: str
    first: str = ""  # what has to run before it
    alone: bool = False  # it is a program
    reason: str = ""  # why it is not run
    prints: str | None = None  # the block of text that follows it at once


@dataclass
class Page:
    """A page of the site, by its path in the repository."""

    path: str
    blocks: list[Block]
    run_by: str = ""  # the test that runs its code, if not the one for all pages

    @property
    def programs(self) -> list[Block]:
        return [block for block in self.blocks if block.language == "python"]


def pages() -> list[Page]:
    """All pages of the site."""
    outside = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md")]
    return [page_of(path) for path in sorted([*outside, *DOCUMENTS.rglob("*.md")])]


def page_of(path: Path) -> Page:
    """A page with its blocks."""
    text = path.read_text()
    page = Page(str(path.relative_to(ROOT)), [])
    first = reason = ""
    alone = False
    end = 0
    for piece in _PIECE.finditer(text):
        remark, said = piece["remark"], piece["said"]
        if remark == "run by":
            page.run_by = said
        elif remark == "not run:":
            reason = said
        elif remark:
            first += said + "\n"
            alone = remark == "run alone:"
        else:
            is_output = piece["language"] == "text" and page.blocks and not text[end : piece.start()].strip()
            if is_output and page.blocks[-1].language == "python":
                page.blocks[-1].prints = piece["code"]
            else:
                line = text.count("\n", 0, piece.start()) + 2
                page.blocks.append(Block(page.path, line, piece["language"], piece["code"], first, alone, reason))
                first, alone, reason = "", False, ""
            end = piece.end()
    return page


def code_of(document: str, heading: str, language: str = "python") -> list[str]:
    """The pieces of code in a section of a document."""
    text = (DOCUMENTS / document).read_text()
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section is not None, f"{document} has no section {heading!r}"
    return re.findall(rf"^```{language}\n(.*?)^```", section[1], re.M | re.S)


def pattern_of(quoted: str) -> str:
    """A pattern for what a quotation stands for: `...` is any text, and lines may be wrapped anywhere."""
    words = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in quoted.split())
    return words.replace(r"\s+.*\s+", r"\s(.*\s)?")
