"""Links between documents: scripts/check_docs.py knows the anchors of headings and of their older titles."""

from __future__ import annotations

from pathlib import Path

import pytest
from modules import load

checker = load("scripts/check_docs.py")


@pytest.fixture
def complaints(tmp_path, monkeypatch):
    """The complaints about a document with this link."""
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    (tmp_path / "races.md").write_text('# Races\n\n<a id="what-makes-an-order"></a>\n## What orders `two`\n')

    def of(link: str) -> list[str]:
        document: Path = tmp_path / "page.md"
        document.write_text(f"[a link]({link})\n")
        return checker.broken_links(document)

    return of


@pytest.mark.parametrize(
    "link", ["races.md", "races.md#races", "races.md#what-orders-two", "races.md#what-makes-an-order"]
)
def test_accepts(complaints, link):
    assert complaints(link) == []


def test_complains_about_an_anchor_that_leads_nowhere(complaints):
    assert complaints("races.md#what-makes-order") == ["page.md: races.md#what-makes-order has no such heading"]


def test_anchors_are_those_of_headings_and_those_that_a_page_sets(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text('## <a id="speed"></a>Is it fast?\n\n```md\n# code\n```\n')
    assert checker.anchors(page) == {"is-it-fast", "speed"}
