"""What MkDocs cannot do by itself for this site: pages from outside of docs, links to sources, C++ headers."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

import headers
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.hooks.site")

# Pages that stay where GitHub and others look for them.
PROJECT = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "packages/backend-conformance/README.md",
    "packages/lightning-openreg/README.md",
    "packages/openreg-cuda/README.md",
    "packages/pytest-openreg/README.md",
]
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".toml": "toml", ".yml": "yaml", ".pyi": "python"}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"^\s*(```+)", re.M)
_HEADERS = re.compile(r"^<!-- headers: cpp/(\S+) -->$", re.M)


def _outside_of_code(markdown: str, change: Any) -> str:
    """The text with `change` applied to the lines that are not in a fenced block."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
            lines.append(line)
        else:
            lines.append(line if fence else change(line))
    return "\n".join(lines)


def _in_repository(src_uri: str) -> str:
    """Where a page of the site comes from."""
    return src_uri.removeprefix("project/") if src_uri.startswith("project/") else f"docs/{src_uri}"


def _on_site(path: str) -> str | None:
    """The page of a file or folder of the repository; None if there is no such file."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PROJECT:
        return f"project/{path}"
    if (ROOT / path).is_dir():
        return f"sources/{path}/index.md"
    return f"sources/{path}.md" if (ROOT / path).is_file() else None


def _target(link: str, src_uri: str) -> tuple[str, str] | None:
    """The file of the repository that a relative link leads to, and its anchor."""
    path, _, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:|<", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(src_uri)), path)), anchor


def on_startup(**_: Any) -> None:
    """Places the package under the name that programs use; Griffe reads it there."""
    package = ROOT / "build/docs/torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    if not (package / "openreg").is_symlink():
        (package / "openreg").symlink_to("../../../python/torch_openreg/openreg")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside of docs, and a page for each source file or folder that a page links to."""
    for path in PROJECT:
        files.append(File.generated(config, f"project/{path}", abs_src_path=str(ROOT / path)))
    sources: dict[str, str] = {}
    for file in files.documentation_pages():

        def note(line: str, src_uri: str = file.src_uri) -> str:
            for _, link, _ in _LINK.findall(line):
                found = _target(link, src_uri)
                uri = found and _on_site(found[0])
                if found and uri and uri.startswith("sources/"):
                    sources[uri] = found[0]
            return line

        _outside_of_code(file.content_string, note)
    for uri, path in sources.items():
        content = _listing(path, sources) if (ROOT / path).is_dir() else _source(path)
        files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def _source(path: str) -> str:
    fence = "````" if path.endswith(".md") else "```"
    language = LANGUAGES.get(Path(path).suffix, "text")
    code = (ROOT / path).read_text()
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{code}{fence}\n"


def _listing(path: str, sources: dict[str, str]) -> str:
    names = sorted(str(file.relative_to(ROOT)) for file in (ROOT / path).rglob("*") if file.suffix in LANGUAGES)
    base = f"sources/{path}"
    items = []
    for name in names:
        uri = f"sources/{name}.md"
        items.append(f"- [{name}]({posixpath.relpath(uri, base)})" if uri in sources else f"- {name}")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n" + "\n".join(items) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Makes links lead to the pages of the site, and inserts the C++ headers that a page requests."""
    src_uri = page.file.src_uri
    if src_uri.startswith("sources/"):
        return markdown

    def change(match: re.Match[str]) -> str:
        found = _target(match[2], src_uri)
        if found is None:
            return match[0]
        path, anchor = found
        uri = _on_site(path)
        if uri is None:
            log.warning("%s: the link %s leads to no file", _in_repository(src_uri), match[2])
            return match[0]
        link = posixpath.relpath(uri, posixpath.dirname(src_uri) or ".")
        return f"{match[1]}{link}{'#' + anchor if anchor else ''}{match[3]}"

    markdown = _outside_of_code(markdown, lambda line: _LINK.sub(change, line))
    return _HEADERS.sub(lambda match: headers.describe_folder(ROOT, match[1]), markdown)
