"""The private names of PyTorch that the packages use, and what each of them is in a version of torch.

`private_names.json` is the table: for each name, the files that use it, and for each minor version of torch its kind:
the type of a value, or a function with its parameters. A name that a version lacks is "absent" there, so the code that
uses it has to ask first. `python tests/private_names.py` prints how the sources and the installed torch differ from the
table, and with `--refresh` writes that to it.

A name is private if a part of it begins with an underscore, or if it is one of a module of PyTorch that a patch gets.
Public names that a patch replaces are in the table too. The names are found by reading the sources:

- chains of attributes that begin at a module of torch: `torch._C._dispatch_keys`, also of what is imported from one;
- attributes of the module that a function gets because a list names both, as `_WHEN_IMPORTED` does;
- strings: `getattr(module, "name", None)`, and lists of names of a module (`{"torch._refs": ("native_layer_norm",)}`);
- methods that a class overrides in a base class of PyTorch;
- private attributes of other objects: those that the packages do not define themselves, by `OWNERS`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
import types
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".json")
# lightning-openreg uses private names of Lightning, and none of PyTorch.
PACKAGES = [
    package
    for package in (ROOT / "python", *sorted(ROOT.glob("integrations/*/src")))
    if package.parent.name != "lightning-openreg"
]

# Private attributes of objects, and the classes of PyTorch whose objects they are: no module names them.
OWNERS = {
    "_backward_hooks": "torch.nn.Module",
    "_backward_impl": "torch._functorch._aot_autograd.runtime_wrappers._AOTDispatchAutogradFunctionFactory.build",
    "_collective": "torch.testing._internal.distributed.multi_threaded_pg.Collective",
    "_devices": "torch._C._distributed_c10d.ProcessGroupGloo._Options",
    "_dispatch_cache": "torch._ops.OperatorBase",
    "_dynamo_marked_constant": "torch._dynamo.decorators.assume_constant_result",
    "_external_objects": "torch._functorch._aot_autograd.runtime_wrappers._snapshot_external_objects",
    "_forward_hooks": "torch.nn.Module",
    "_forward_pre_hooks": "torch.nn.Module",
    "_output": "torch._inductor.cpp_builder.CppBuilder",
    "_profiler_enabled": "torch.autograd",
    "_qualified_op_name": "torch._ops.OpOverloadPacket",
    "_schema": "torch._ops.OpOverload",
    "_set_default_backend": "torch._C._distributed_c10d.ProcessGroup",
    "_supported_activities": "torch._C._autograd",
    "_target_file": "torch._inductor.cpp_builder.CppBuilder",
    "_templated_ring_attention": "torch.distributed.tensor.experimental._context_parallel._attention",
    "_templated_ring_attention_backward": "torch.distributed.tensor.experimental._context_parallel._attention",
    "_threads": "torch._C._distributed_c10d.ProcessGroupGloo._Options",
    "_timeout": "torch._C._distributed_c10d.Backend.Options",
    "_typed_storage": "torch.Tensor",
    "_version": "torch.Tensor",
}

OF_OTHERS = frozenset({"_setupstate"})  # pytest's

# A module with a public name that is no interface.
INTERNAL = ("torch.distributed.distributed_c10d.",)

# What only a build of PyTorch with CUDA has, or has otherwise, so the table does not say what it is.
OF_BUILDS = frozenset(
    {
        "torch._C._CudaDeviceProperties",
        "torch._C._CudaEventBase",
        "torch._C._cuda_getDeviceCount",
        "torch._C._cudart",
        "torch._C._nccl_all_reduce",
        "torch.cuda._CudaDeviceProperties",
        "torch.cuda._cudart",
        "torch.distributed.distributed_c10d.default_pg_nccl_timeout",
        "torch.distributed.distributed_c10d._NCCL_AVAILABLE",
    }
)

# PyTorch's operators, whose schemas are its own concern, and what the packages themselves add.
OPERATORS = ("torch._foreach_", "torch.ops.", "torch.openreg.")

_OF_EVERY_OBJECT = frozenset({"__class__", "__code__", "__dict__", "__doc__", "__members__", "__name__", "__spec__"})


# --- What the sources use ---


def used() -> tuple[dict[str, list[str]], set[str]]:
    """The names, and the files that use each; and those of them that are methods, which the base class may not have."""
    files = {file: ast.parse(file.read_text()) for package in PACKAGES for file in sorted(package.rglob("*.py"))}
    ours = {name for tree in files.values() for name in _defined(tree)}
    given = _Given(files)
    count = -1
    while count != given.count():  # functions pass modules on to others
        count = given.count()
        found: dict[str, set[str]] = defaultdict(set)
        overrides: set[str] = set()
        for file, tree in files.items():
            names = _Names(file, tree, given, ours)
            overrides |= names.overrides
            for name in names.found | names.overrides:
                found[name].add(str(file.relative_to(ROOT)))
    return {name: sorted(found[name]) for name in sorted(found)}, overrides


class _Given:
    """Which modules of PyTorch functions of the packages get as arguments: by file, function and parameter."""

    def __init__(self, files: dict[Path, ast.Module]) -> None:
        self._modules: dict[tuple[Path, str, int], set[str]] = defaultdict(set)
        self._files = files
        for file, tree in files.items():
            for node in ast.walk(tree):
                pair = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
                if len(pair) < 2:
                    continue
                module, function = pair[:2]
                if not _is_module_name(module):
                    continue
                if isinstance(function, ast.Name):
                    self.add(file, "", function.id, 0, {module.value})
                elif isinstance(function, ast.Constant) and isinstance(function.value, str):
                    of, _, name = function.value.rpartition(":")
                    self.add(file, of, name, 0, {module.value})

    def add(self, caller: Path, module: str, function: str, parameter: int, given: set[str]) -> None:
        """`module` is the name of the module beside the caller's; empty for the caller's own."""
        file = caller.parent / f"{module.replace('.', '/')}.py" if module else caller
        if file in self._files and given:
            self._modules[file, function, parameter] |= given

    def to(self, file: Path, function: str, parameter: int) -> set[str]:
        return self._modules.get((file, function, parameter), set())

    def count(self) -> int:
        return sum(map(len, self._modules.values()))


def _is_module_name(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.split(".")[0] == "torch"
        and all(part.isidentifier() for part in node.value.split("."))
    )


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that a file gives to what is its own, or takes from what is not PyTorch's."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] != "torch"):
            yield from (alias.asname or alias.name for alias in node.names)


def _is_private(name: str) -> bool:
    hidden = any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
    return (hidden or name.startswith(INTERNAL)) and not name.startswith(OPERATORS)


class _Names(ast.NodeVisitor):
    """The private names that one file uses."""

    def __init__(self, file: Path, tree: ast.Module, given: _Given, ours: set[str]) -> None:
        self.found: set[str] = set()
        self.overrides: set[str] = set()
        self._in_class = False
        self._file, self._given, self._ours = file, given, ours
        self._scopes: list[dict[str, set[str]]] = [{}]  # names, and what of torch they are
        self._others: set[str] = set()  # modules that are not PyTorch's
        self._changed: set[str] = set()  # modules that functions of this file get in order to change them
        self._import(tree)
        self.visit(tree)

    def _import(self, tree: ast.Module) -> None:
        names = self._scopes[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] != "torch":
                        self._others.add(alias.asname or alias.name.split(".")[0])
                        continue
                    self._use(alias.name)
                    names[alias.asname or "torch"] = {alias.name if alias.asname else "torch"}
            elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
                for alias in node.names:
                    self._use(f"{node.module}.{alias.name}")
                    names[alias.asname or alias.name] = {f"{node.module}.{alias.name}"}
            elif isinstance(node, ast.ImportFrom):
                self._others |= {alias.asname or alias.name for alias in node.names}

    def _use(self, name: str, found: set[str] | None = None) -> None:
        parts = name.split(".")
        for number, part in enumerate(parts):
            if part.startswith("__") and part in _OF_EVERY_OBJECT:
                parts = parts[:number]
                break
        name = ".".join(parts)
        if _is_private(name) or any(name == each or name.startswith(f"{each}.") for each in self._changed):
            (self.found if found is None else found).add(name)

    def _meaning(self, node: ast.AST) -> set[str]:
        """What of torch an expression is; several for a function that gets several modules."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), set())
        if isinstance(node, ast.Attribute):
            return {f"{of}.{node.attr}" for of in self._meaning(node.value)}
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules" and _is_module_name(node.slice):
            return {node.slice.value}
        if isinstance(node, ast.BoolOp):
            return set().union(*map(self._meaning, node.values))
        if not isinstance(node, ast.Call):
            return set()
        function = ast.unparse(node.func)
        if function.endswith("import_module") and node.args and _is_module_name(node.args[0]):
            return {node.args[0].value}
        if function in ("getattr", "setattr", "hasattr") and isinstance(node.args[1], ast.Constant):
            return {f"{of}.{node.args[1].value}" for of in self._meaning(node.args[0])}
        return set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        scope: dict[str, set[str]] = {each.arg: set() for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        if len(self._scopes) == 1:
            for number, each in enumerate(node.args.posonlyargs + node.args.args):
                modules = self._given.to(self._file, node.name, number)
                scope[each.arg] = set(modules)
                self._changed |= modules - {"torch"}
                for module in modules:
                    self._use(module)
        self._scopes.append(scope)
        self.generic_visit(node)
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
        for of in set().union(*map(self._meaning, node.bases)):
            for method in methods:
                self._use(f"{of}.{method}", self.overrides)
        outer, self._in_class = self._in_class, True
        self.generic_visit(node)
        self._in_class = outer

    def _assign(self, target: ast.AST, value: ast.AST) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each in zip(target.elts, value.elts, strict=False):
                self._assign(*each)
        elif isinstance(target, ast.Name):
            self._scopes[-1][target.id] = self._meaning(value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        meanings = self._meaning(node)
        for name in meanings:
            self._use(name)
            if isinstance(node.ctx, ast.Store) and not name.startswith(OPERATORS):
                self.found.add(name)
        if meanings:
            return
        root = ast.unparse(node).split(".")[0]
        # A function that replaces a method gets an object of PyTorch's.
        ours = node.attr in self._ours and (root != "self" or self._in_class)
        known = ours or node.attr in OF_OTHERS or root in self._others
        if node.attr.startswith("_") and not node.attr.endswith("__") and not known:
            self.found.add(f"{OWNERS.get(node.attr, 'torch.?')}.{node.attr}")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        for name in self._meaning(node):
            self._use(name)
        called, arguments = node.func, node.args
        if ast.unparse(called) == "functools.partial":
            called, *arguments = arguments
        module, _, function = ast.unparse(called).rpartition(".")
        for number, argument in enumerate(arguments):
            modules = {each for each in self._meaning(argument) if isinstance(argument, ast.Name)}
            self._given.add(self._file, module, function, number, modules & self._changed)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and _is_module_name(key) and isinstance(value, ast.Tuple):
                names = [each.value for each in value.elts if isinstance(each, ast.Constant)]
                self.found |= {f"{key.value}.{name}" for name in names}
        self.generic_visit(node)


# --- What they are ---


def kinds(names: list[str]) -> dict[str, str]:
    """What each name is in the installed torch, as PyTorch has it: in a process without the packages' patches."""
    command = [sys.executable, __file__, "--describe"]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OPENREG_CUDA": ""}
    result = subprocess.run(
        command, input="\n".join(names), env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def describe(name: str) -> str:
    """The type of a value, or a function with its parameters."""
    parts = name.split(".")
    found: Any = None
    for number in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:number]))
        except ImportError:
            continue
        break
    for at, part in enumerate(parts[number:], number):
        owner, found = found, inspect.getattr_static(found, part, _MISSING)
        if found is _MISSING and (inspect.ismodule(owner) or not inspect.isclass(owner)):
            found = getattr(owner, part, _MISSING)  # of a module's or an object's __getattr__
        if found is _MISSING and inspect.isfunction(owner):
            return "named in the function" if part in inspect.getsource(owner) else "absent"
        if found is _MISSING:
            return "of objects" if inspect.isclass(owner) and part in _of_objects(owner) else "absent"
        if isinstance(owner, (dict, list, set, tuple, str)):
            return f"method of a {type(owner).__name__}"
        if isinstance(found, (property, types.GetSetDescriptorType)) and at + 1 < len(parts):
            return f"behind the property {'.'.join(parts[: at + 1])}"
    return _kind(found)


_MISSING = object()


def _of_objects(owner: type) -> set[str]:
    try:
        trees = [ast.parse(textwrap.dedent(inspect.getsource(each))) for each in owner.__mro__[:-1]]
    except (OSError, TypeError):
        return set()
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    names = {node.attr for node in nodes if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"}
    return names.union(*(vars(each).get("__annotations__", ()) for each in owner.__mro__))


def _kind(value: Any) -> str:
    if isinstance(value, (staticmethod, classmethod)):
        return f"{type(value).__name__} {_kind(value.__func__)}"
    if inspect.isclass(value):
        return f"class{_parameters(value)}"
    name = "function" if inspect.isfunction(value) else type(value).__name__
    return f"{name}{_parameters(value)}" if callable(value) else name


def _parameters(value: Any) -> str:
    """Without annotations; of a default only that there is one."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    plain = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _DEFAULT)
        for each in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


class _Default:
    def __repr__(self) -> str:
        return "..."


_DEFAULT = _Default()


# --- The table ---

Table = dict[str, dict[str, Any]]


def read() -> Table:
    """By name: "by", the files that use it, and "seen", its kind by minor version."""
    table: Table = json.loads(TABLE.read_text())
    return table


def refreshed(table: Table, version: str) -> Table:
    """The table, as the sources and the installed torch, which has this version, say."""
    names, overrides = used()
    found = kinds(sorted(names))
    fresh: Table = {}
    for name, files in names.items():
        seen = {**table.get(name, {}).get("seen", {}), version: found[name]}
        if name in OF_BUILDS:
            seen = {}
        elif name in overrides and set(seen.values()) == {"absent"}:
            continue  # the class's own method
        fresh[name] = {"by": files, "seen": {each: seen[each] for each in sorted(seen, key=_number)}}
    return fresh


def differences(table: Table, fresh: Table) -> list[str]:
    lines = [f"{name} is used nowhere, and has a row" for name in table.keys() - fresh.keys()]
    for name, row in fresh.items():
        before = table.get(name, {"by": [], "seen": {}})
        if row["by"] != before["by"]:
            lines.append(
                f"{name} is used by {', '.join(row['by'])} (the table says {', '.join(before['by']) or 'nobody'})"
            )
        lines += [
            f"{name} is {kind!r} in {version} (the table says {_expected(before, version)!r})"
            for version, kind in row["seen"].items()
            if _expected(before, version) != kind
        ]
    return lines


def _expected(row: dict[str, Any], version: str) -> str:
    """What the newest older version has, if the table does not know this one."""
    older = [each for each in row["seen"] if _number(each) <= _number(version)]
    return row["seen"][max(older, key=_number)] if older else "nothing"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def installed_version() -> str:
    """The minor version: 2.13."""
    return ".".join(metadata.version("torch").split(".")[:2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="write what differs to the table")
    parser.add_argument("--describe", action="store_true", help="what the names on the standard input are, as JSON")
    options = parser.parse_args()
    if options.describe:
        print(json.dumps({name: describe(name) for name in sys.stdin.read().split()}))
        return
    table = read() if TABLE.exists() else {}
    fresh = refreshed(table, installed_version())
    print(*differences(table, fresh), sep="\n")
    if options.refresh:
        rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in fresh.items())
        TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
