"""Which private names of PyTorch the sources of the packages use, found by reading them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# lightning-openreg uses private names of Lightning, and none of PyTorch.
PACKAGES = [
    package
    for package in (ROOT / "python", *sorted(ROOT.glob("packages/*/src")))
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

# PyTorch's operators, whose schemas are its own concern, and what the packages themselves add.
OPERATORS = ("torch._foreach_", "torch.ops.", "torch.openreg.")

_OF_EVERY_OBJECT = frozenset({"__class__", "__code__", "__dict__", "__doc__", "__members__", "__name__", "__spec__"})


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
