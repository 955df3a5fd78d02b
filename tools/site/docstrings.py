"""An extension of Griffe, which reads the Python sources: names in docstrings become links, reST becomes Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_TWO_PARAMETERS = re.compile(r"^( +)(\w+), (\w+): (.*(?:\n\1 +.*)*)", re.M)
_NAME = re.compile(r"(?<![`\[])`([A-Za-z]\w*(?:\.\w+)?)`(?![`\]])")


class Docstrings(griffe.Extension):
    """For the package that programs know as ``torch.openreg``."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        self._visit(pkg["openreg"], pkg["openreg"])

    def _visit(self, item: Any, module: griffe.Module) -> None:
        if item.is_alias:
            return
        if item.is_class and "__new__" in item.members and "__init__" not in item.members:
            item.members["__init__"] = item.members["__new__"]  # it has the parameters of a call
        if item.docstring is not None:
            parameters = (
                {parameter.name for parameter in item.parameters} if item.is_function or item.is_class else set()
            )
            item.docstring.value = self._in_markdown(item.docstring.value, module, parameters)
        for member in item.members.values():
            self._visit(member, module)

    def _in_markdown(self, text: str, module: griffe.Module, parameters: set[str]) -> str:
        text = re.sub(r"^(\s*)Example::$", r"\1Example:", text, flags=re.M)
        text = _TWO_PARAMETERS.sub(r"\1\2: \4\n\1\3: \4", text)
        return _NAME.sub(lambda name: (name[1] not in parameters and self._link(name[1], module)) or name[0], text)

    def _link(self, name: str, module: griffe.Module) -> str | None:
        try:
            found = module[name]
        except KeyError:
            return None
        if name.startswith("_") or not (found.is_class or found.is_function or found.is_alias):
            return None
        return f"[`{name}`][torch.openreg.{name}]"
