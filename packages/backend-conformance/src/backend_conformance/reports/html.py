"""Results as a page: a row for each check, a column for each backend. One file without scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..levels import Level
from ..result import Result, Summary
from ..verdicts import Verdict

_STYLE = Path(__file__).with_name("page.css")


def page(summaries: Sequence[Summary], pages: str = "") -> str:
    """The page. `pages` is the address of the checks' explanations, without which they are not linked."""
    found = [{each.id: each for each in summary.results} for summary in summaries]
    rows: dict[str, Result] = {}
    for results in found:
        for name, result in results.items():
            rows.setdefault(name, result)
    body = [
        _counts(summaries),
        '<p><label><input type="checkbox" id="only"> only checks that fail somewhere</label></p>',
    ]
    body.append("<table class='matrix'><thead><tr><th>check</th>")
    body += [f"<th>{escape(each.device)}</th>" for each in summaries]
    body.append("<th>implement</th></tr></thead>")
    for level in Level:
        of_level = [each for each in rows.values() if each.level == level]
        if of_level:
            body.append(f"<tbody><tr class='level'><th colspan='{len(summaries) + 2}'>{level.label}</th></tr>")
            body += [_row(each, [results.get(each.id) for results in found], pages) for each in of_level]
            body.append("</tbody>")
    body.append("</table>")
    title = "Conformance of " + ", ".join(each.device for each in summaries)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title><style>\n{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _counts(summaries: Sequence[Summary]) -> str:
    """What each backend reaches, and how many checks of each level pass."""
    rows = ["<table><tr><th>backend</th><th>torch</th><th>level</th>"]
    rows += [f"<th>{level.label}</th>" for level in Level]
    rows.append("</tr>")
    for summary in summaries:
        level = summary.level or "some checks"
        rows.append(f"<tr><th>{escape(summary.device)}</th><td>{escape(summary.torch)}</td><td><b>{level}</b></td>")
        for each in Level:
            counts = Counter(result.verdict for result in summary.results if result.level == each)
            shown = [f"{counts[Verdict.PASS]} of {sum(counts.values())}"]
            shown += [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if verdict.fails and counts[verdict]]
            rows.append(f"<td>{', '.join(shown) if counts else ''}</td>")
        rows.append("</tr>")
    return "".join([*rows, "</table>"])


def _row(check: Result, results: Sequence[Result | None], pages: str) -> str:
    fails = any(each is not None and each.verdict.fails for each in results)
    name = f"<code>{escape(check.id)}</code>"
    if pages:
        name = f"<a href='{escape(pages.rstrip('/'))}/{escape(check.page)}'>{name}</a>"
    cells = "".join(_cell(each) for each in results)
    return f"<tr class='{'fails' if fails else 'fine'}'><td>{name}</td>{cells}<td>{escape(check.hook)}</td></tr>"


def _cell(result: Result | None) -> str:
    if result is None:
        return "<td class='absent'>not run</td>"
    kind = result.verdict.value.replace(" ", "-")
    if not result.message:
        return f"<td class='{kind}'>{result.verdict.value}</td>"
    return (
        f"<td class='{kind}'><details><summary>{result.verdict.value}</summary>"
        f"<pre>{escape(result.message)}</pre></details></td>"
    )
