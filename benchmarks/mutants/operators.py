"""The mutants of a module: one node of its syntax tree changed, by the standard operators.

    comparison    < <= and > >= at their boundary, and each comparison turned round
    condition     of an if, a while, a conditional expression, a comprehension: negated; `not` left out
    connective    `and` for `or`; one side left out
    arithmetic    + for -, * for /, and the like, also in += and -=; a minus left out
    constant      a number plus one, True for False
    word          misspelt, where it is compared, looked up, or one of several: not where it only names what is shown
    call          min for max, any for all; sorted, abs, set left out; a call whose result is not used left out
    flow          `return None`; break for continue; a raise left out

Left alone: annotations, decorators, docstrings, whatever stands in an f-string, and all other strings: words of a
sentence, which tests of sentences hold. A mutant is known by its function and its change, not by its line, so that
a record outlives edits elsewhere in the file.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("harness/measure", "harness/checks")
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_OUT = frozenset(("sorted", "abs", "set", "frozenset"))


@dataclass(frozen=True, slots=True)
class Mutant:
    """module: path from the root, without `.py`. function: qualified name, "" outside of all. lines: as they are now.
    nth: of equal changes in one function. node, variant: which change of which node, in the order of the walk. loading:
    it changes what happens when the module is imported. body: of what it changes, a digest."""

    module: str
    function: str
    lines: range
    kind: str
    change: str
    nth: int
    node: int
    variant: int
    loading: bool
    body: str

    @property
    def line(self) -> int:
        return self.lines.start

    @property
    def key(self) -> str:
        return f"{self.module}|{self.function}|{self.kind}|{self.change}|{self.nth}"


def modules(only: tuple[str, ...] = ()) -> list[str]:
    """only: beginnings of a module's path below harness/."""
    found = [p for place in PLACES for p in sorted((ROOT / place).glob("*.py")) if p.name != "__init__.py"]
    names = [str(path.relative_to(ROOT).with_suffix("")) for path in found]
    names.remove("harness/checks/registry")  # there is nothing in it, and it cannot be loaded twice
    return [name for name in names if not only or any(name.removeprefix("harness/").startswith(o) for o in only)]


@cache
def source(module: str) -> str:
    return (ROOT / f"{module}.py").read_text()


def mutants(module: str) -> list[Mutant]:
    """All of a module, in the order of its lines."""
    tree, found, seen = ast.parse(source(module)), [], Counter[tuple[str, str, str]]()
    places = _places(tree)
    for number, node in enumerate(ast.walk(tree)):
        if node not in places:
            continue
        function, loading = places[node]
        for variant, (kind, made) in enumerate(_changes(node)):
            change = f"{_said(node)} -> {_said(made)}"
            name = function.name if function is not None else ""
            same = (name, kind, change)
            body = _digest(function.node if function is not None else tree)
            lines = _lines(node)
            found.append(Mutant(module, name, lines, kind, change, seen[same], number, variant, loading, body))
            seen[same] += 1
    return sorted(found, key=lambda mutant: (mutant.line, mutant.node, mutant.variant))


@cache
def _digest(node: ast.AST) -> str:
    return hashlib.blake2b(ast.dump(node).encode(), digest_size=6).hexdigest()


def mutated(mutant: Mutant) -> ast.Module:
    tree = ast.parse(source(mutant.module))
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.node)
    _, made = list(_changes(node))[mutant.variant]
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, made)
            elif isinstance(value, list) and any(each is node for each in value):
                value[:] = [made if each is node else each for each in value]
    return ast.fix_missing_locations(tree)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """The outermost function around a node: what is changed in a loaded module."""

    name: str
    node: ast.AST


def _places(tree: ast.Module) -> dict[ast.AST, tuple[Function | None, bool]]:
    """Nodes that may be changed, each with its function, and whether it is run when the module is loaded."""
    found: dict[ast.AST, tuple[Function | None, bool]] = {}

    def visit(node: ast.AST, prefix: str, function: Function | None, loading: bool) -> None:
        found[node] = (function, loading)
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or field in _ALONE_IN or isinstance(child, _ALONE):
                    continue
                if _is_word(child) and not _decides(node):
                    continue
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    continue  # a docstring
                if isinstance(child, ast.FunctionDef) and function is None:
                    visit(child, prefix, Function(f"{prefix}{child.name}", child), False)
                elif isinstance(child, ast.ClassDef) and function is None:
                    visit(child, f"{prefix}{child.name}.", None, True)
                else:
                    heading = function is not None and node is function.node and field != "body"
                    visit(child, prefix, function, loading or heading)

    visit(tree, "", None, True)
    return found


_ALONE, _ALONE_IN = (ast.JoinedStr, ast.Import, ast.ImportFrom), ("annotation", "returns", "decorator_list")


def _is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _decides(parent: ast.AST) -> bool:
    """Whether a word in it is compared or looked up."""
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Attribute) and parent.func.attr in ("get", "of_kind", "decided", "told")
    return isinstance(parent, ast.Compare | ast.Subscript | ast.Tuple | ast.Set | ast.List | ast.Dict)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for kind, table in (("boundary", _BOUNDARY), ("comparison", _TURNED)):
                    if type(op) in table:
                        yield kind, _with(node, ops=[*ops[:place], table[type(op)](), *ops[place + 1 :]])
        case ast.BoolOp(op=op, values=values):
            yield "connective", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                yield "side left out", rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield "arithmetic", _with(node, op=_ARITHMETIC[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", operand
        case ast.Constant(value=value):
            if isinstance(value, bool):
                yield "constant", ast.Constant(not value)
            elif isinstance(value, int | float):
                yield "constant", ast.Constant(value + 1)
            elif isinstance(value, str) and " " not in value and any(c.isalpha() for c in value):
                yield "word", ast.Constant(f"{value}_")
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp):  # those are turned round by themselves
                yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=ifs):
            for place in range(len(ifs)):
                yield "filter left out", _with(node, ifs=[*ifs[:place], *ifs[place + 1 :]])
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            yield "call", _with(node, func=ast.Name(_SWAPPED[name], ast.Load()))
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _LEFT_OUT:
            yield "call", ast.Call(ast.Name("list", ast.Load()), [first], []) if name != "abs" else first
        case ast.Expr(value=ast.Call()):
            yield "call left out", ast.Pass()
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Continue():
            yield "flow", ast.Break()
        case ast.Break():
            yield "flow", ast.Continue()
        case ast.Raise():
            yield "flow", ast.Pass()


def _lines(node: ast.AST) -> range:
    """Those of an expression; of an if or a while those of its condition."""
    shown = getattr(node, "test", None) or getattr(node, "target", None) or node
    return range(shown.lineno, (shown.end_lineno or shown.lineno) + 1)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _said(node: ast.AST) -> str:
    """Of a statement its first line; a condition stands for what it decides on."""
    if isinstance(node, ast.If | ast.While):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}" + "".join(
            f" if {ast.unparse(each)}" for each in node.ifs
        )
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).partition("\n")[0]
