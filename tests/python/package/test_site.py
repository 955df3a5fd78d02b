"""The documentation site: mkdocs.yml, and what tools/site adds to MkDocs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs/reference"
sys.path.insert(0, str(ROOT / "tools/site"))

import headers  # noqa: E402


def build(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=240, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as scripts/docs builds it."""
    folder = tmp_path_factory.mktemp("site")
    result = build("--site-dir", folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_each_document_is_a_page(site):
    for document in (ROOT / "docs").rglob("*.md"):
        page = site / document.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.is_file() or (document.name == "README.md" and page.with_name("index.html").is_file()), document


def test_sources_that_pages_link_to_are_pages(site):
    assert "registerDeviceGuard" in (site / "sources/cpp/backend/registration.cpp.html").read_text()


def test_pages_fetch_nothing_from_elsewhere(site):
    fetched = re.compile(
        r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* rel="(?:stylesheet|preconnect)"[^>]*//'
    )
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text()), page


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[a](missing.md) [b](index.md#missing) [c](../cpp/missing.cpp)\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\nhooks: [{ROOT}/tools/site/hooks.py]\nwatch: []\n"
    )
    result = build(cwd=tmp_path)
    assert result.returncode != 0
    for complaint in (
        "'index.md' contains a link 'missing.md', but the target is not found",
        "'index.md' contains a link 'index.md#missing', but there is no such anchor",
        "docs/index.md: the link ../cpp/missing.cpp leads to no file",
    ):
        assert complaint in result.stderr, result.stderr


def test_each_public_name_is_in_the_reference(site):
    described = {
        name
        for page in REFERENCE.glob("*.md")
        for name in re.findall(r"^::: torch\.openreg\.(\w+)", page.read_text(), re.M)
    } | set(re.findall(r"`(\w+(?:Tensor|Storage))`", (REFERENCE / "legacy.md").read_text()))
    public = {name for name in torch.openreg.__all__ if not name.endswith("Error")} - {"default_generators"}
    modules = {"graphs", "host_memory", "legacy", "machine", "random", "statistics", "streams"}
    assert public - modules <= described


def test_all_headers_are_in_the_reference(site):
    pages = "".join(page.read_text() for page in (REFERENCE / "cpp").glob("*.md"))
    folders = set(re.findall(r"^<!-- headers: (\S+) -->$", pages, re.M))
    assert folders == {str(header.parent.relative_to(ROOT)) for header in (ROOT / "cpp").rglob("*.h")} - {
        "cpp/bindings"
    }
    assert "cpp/bindings" in pages


def test_a_header_is_shown_without_bodies_and_private_parts(tmp_path):
    header = tmp_path / "cpp/runtime/one.h"
    header.parent.mkdir(parents=True)
    header.write_text(
        """#pragma once

#include <vector>

namespace openreg {

class Two;

/// What it is for a `T`,
/// and *no* emphasis.
template <class T>
class One {
 public:
  explicit One(int n) : n_(n), m_{n} { check(); }
  /// A number.
  int n() const noexcept { return n_; }

 private:
  int n_, m_{0};
};

/// Twice of it.
inline int twice(const One<int>& one) {
  if (true) {
    return 2 * one.n();
  }
}

}  // namespace openreg
"""
    )
    assert headers.describe(tmp_path, header) == (
        "### runtime/one.h\n\n#### One\n\nWhat it is for a `T`,\nand \\*no\\* emphasis.\n\n"
        "```cpp\ntemplate <class T>\nclass One {\n public:\n  explicit One(int n);\n  /// A number.\n"
        "  int n() const noexcept;\n};\n```\n\n"
        "```cpp\n/// Twice of it.\ninline int twice(const One<int>& one);\n```"
    )
