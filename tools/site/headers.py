"""C++ headers as Markdown: what each declares, with its comments, and without private parts and function bodies.

This does not parse C++: it relies on the layout that clang-format gives this project's headers.
"""

from __future__ import annotations

import re
from pathlib import Path

# A comment, a string or a character. Braces in it do not count.
_OPAQUE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.S)
_DIRECTIVE = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*\n", re.M)
_MACRO = re.compile(r"((?:^///[^\n]*\n)+)#define (\w+(?:\([^)]*\))?)(?:[^\n]*\\\n)*[^\n]*\n", re.M)
_NAMESPACE = re.compile(r"^(?:inline )?namespace [\w:]*\s*\{\n|^\}+ *// namespace[^\n]*\n", re.M)
_TEMPLATE = r"(?:template\s*<[^;{]*?>\s+)?"
_TYPE = re.compile(rf"{_TEMPLATE}(?:class|struct|enum|union)\b")
_NAME = r"(?:alignas\(\w+\) |[A-Z_]+(?:\(\"\w+\"\))? )*(\w+)"
_NAMED_TYPE = re.compile(
    rf"^((?:///?[^\n]*\n)*)({_TEMPLATE}(?:class|struct|enum class|enum) {_NAME}[^;{{]*"
    r"\{(?:[^\n]*\};|.*?^\};)[^\n]*\n)",
    re.M | re.S,
)
_MENTION = re.compile(rf"^{_TEMPLATE}(?:class|struct|enum class) \w+(?: : [\w:]+)?;\n", re.M)
_INITIALISERS = re.compile(r"\)[\w\s]*?(\s:\s)")


def _closing(text: str, opening: int) -> int:
    """The position of the brace that closes the one at `opening`."""
    depth, position = 0, opening
    while position < len(text):
        opaque = _OPAQUE.match(text, position)
        if opaque:
            position = opaque.end()
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
        position += 1
    raise ValueError("a brace is not closed")


def _without_bodies(text: str) -> str:
    """The text with a semicolon in place of each function's body and initialisers."""
    kept, position, statement, parentheses = "", 0, 0, 0
    while position < len(text):
        opaque = _OPAQUE.match(text, position)
        if opaque:
            is_between = not kept[statement:].strip()
            kept, position = kept + opaque[0], opaque.end()
            statement = len(kept) if is_between else statement
            continue
        character = text[position]
        head = kept[statement:].strip()
        if character == "{" and parentheses == 0 and not _TYPE.match(head):
            end = _closing(text, position)
            initialisers = _INITIALISERS.search(kept, statement)
            if initialisers and re.match(r"\s*[,{]", text[end + 1 :]):
                pass  # a member's initialiser; the function's body follows
            elif ")" in head and not head.endswith("=") and text[end + 1] not in ",;){":
                kept = (kept[: initialisers.start(1)] if initialisers else kept).rstrip() + ";"
                statement = len(kept)
            else:
                kept += text[position : end + 1]
            position = end + 1
            continue
        parentheses += {"(": 1, ")": -1}.get(character, 0)
        kept, position = kept + character, position + 1
        if parentheses == 0 and (
            character in ";{}" or re.search(r"^ *(?:public|private|protected):$", kept[-13:], re.M)
        ):
            statement = len(kept)
    return kept


def _without_hidden(text: str) -> str:
    """The text without private and protected parts."""
    for indent in (1, 3):  # of the labels: in classes, and in classes within them
        label = rf"^ {{{indent}}}(?:private|protected):\n.*?(?=^ {{{indent}}}public:|^ {{{indent - 1}}}\}})"
        text = re.sub(label, "", text, flags=re.M | re.S)
    return re.sub(r"\n\n+( *\};)", r"\n\1", text)


def _prose(comment: str) -> str:
    """A comment as Markdown, in which only backticks are markup."""
    text = "\n".join(re.sub(r"^///? ?", "", line) for line in comment.splitlines())
    if re.search(r"^ ", text, re.M):  # it is laid out
        return f"```text\n{text}\n```"
    escaped = (
        re.sub(r"([*_<\[\]])", r"\\\1", part) if number % 2 == 0 else part
        for number, part in enumerate(text.split("`"))
    )
    return "`".join(escaped)


def _code(pieces: list[str]) -> list[str]:
    code = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
    return ["```cpp\n" + re.sub(r"\n{3,}", "\n\n", code) + "\n```"] if code else []


def describe(root: Path, header: Path) -> str:
    """The section on a header."""
    text = header.read_text()
    code = [f"{comment}#define {macro}" for comment, macro in _MACRO.findall(text)]
    text = _NAMESPACE.sub("", _DIRECTIVE.sub("", _MACRO.sub("", text)))
    text = _MENTION.sub("", _without_bodies(_without_hidden(text)))
    text = re.sub(r"^\}\n", "", text, flags=re.M).lstrip()  # the end of a namespace of mentions
    parts = []
    beginning = re.match(r"((?:///?[^\n]*\n)+)\n", text)  # a comment on the whole header
    if beginning:
        parts.append(_prose(beginning[1]))
        text = text[beginning.end() :]
    position = 0
    for kind in _NAMED_TYPE.finditer(text):
        parts += _code([*code, text[position : kind.start()]])
        specialised = re.search(rf"\b{kind[3]}(<.*>) \{{", re.split(r" : | \{", kind[2])[0] + " {")
        parts.append(f"#### {kind[3]}{specialised[1] if specialised else ''}".replace("<", "&lt;"))
        parts += [_prose(kind[1])] if kind[1] else []
        parts += _code([kind[2]])
        code, position = [], kind.end()
    parts += _code([*code, text[position:]])
    return f"### {header.relative_to(root / 'cpp')}\n\n" + "\n\n".join(parts)


def describe_folder(root: Path, folder: str) -> str:
    """The sections on all headers of a folder of cpp, in the order of their names."""
    return "\n\n".join(describe(root, header) for header in sorted((root / "cpp" / folder).glob("*.h")))
