"""The code in the documents, as readers copy it."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENTS = Path(__file__).parents[2] / "docs"


def code_of(document: str, heading: str, language: str = "python") -> list[str]:
    """The pieces of code in a section of a document."""
    text = (DOCUMENTS / document).read_text()
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert section is not None, f"{document} has no section {heading!r}"
    return re.findall(rf"^```{language}\n(.*?)^```", section[1], re.M | re.S)
