"""Writes the explanations of all checks as Markdown: a page for each group, and an index."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .. import catalogue, groups
from ..catalogue import Catalogue, Description
from .options import folder


def main(arguments: Sequence[str]) -> int:
    made = argparse.ArgumentParser(prog="python -m backend_conformance pages", description=__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument(
        "--folder", type=folder, default=groups.CHECKS_FOLDER, help="a folder with other groups of checks"
    )
    options = made.parse_args(arguments)
    listed = catalogue.load(options.folder)
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, content in pages(listed).items():
        (options.directory / name).write_text(content, encoding="utf-8")
    return 0


def pages(listed: Catalogue) -> dict[str, str]:
    """The pages by their file's name."""
    families: dict[str, dict[str, list[Description]]] = {}
    for each in listed.checks:
        families.setdefault(each.group, {}).setdefault(each.base, []).append(each)
    made = {f"{group}.md": _page(listed.introductions[group], group, of) for group, of in families.items()}
    made["index.md"] = _index(listed, families)
    return made


def _page(introduction: str, group: str, families: dict[str, list[Description]]) -> str:
    title, _, rest = introduction.partition("\n")
    parts = [f"# {title.rstrip('.')}\n", f"{rest.strip()}\n" if rest.strip() else ""]
    for base, checks in families.items():
        check = checks[0]
        name = base.removeprefix(f"{group}.")
        facts = [f"Level: {check.level.label}.", f"Implement: {_code(check.hook)}."]
        if len(checks) > 1:
            facts.append(f"Cases: {len(checks)}.")
        if check.needs:
            facts.append(f"Needs: {', '.join(check.needs)}.")
        parts.append(f"## {name}\n\n{' '.join(facts)}\n\n{check.doc}\n")
    return "\n".join(part for part in parts if part)


def _code(hook: str) -> str:
    return f"`{hook}`" if "`" not in hook and " " not in hook else hook


def _index(listed: Catalogue, families: dict[str, dict[str, list[Description]]]) -> str:
    lines = ["# Checks\n", "| group | checks | what it is about |", "|---|---|---|"]
    for group, of in families.items():
        title = listed.introductions[group].partition("\n")[0]
        lines.append(f"| [{group}]({group}.md) | {sum(len(each) for each in of.values())} | {title} |")
    return "\n".join(lines) + "\n"
