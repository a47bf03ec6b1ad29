"""Lays a mutant over loaded modules, in a process that is thrown away afterwards.

A change inside a function replaces that function's code, so that whoever holds the function runs the mutant. A change
of what a module does when it is loaded (constants, defaults, fields) loads the module again, and puts the new
functions, classes and values in the place of the old wherever another module holds them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from benchmarks.mutants.operators import Mutant, mutated

OURS = ("harness", "tests", "stub_service", "benchmarks.judge")


def lay(mutant: Mutant) -> None:
    """Raises whatever loading the mutant raises: then it is killed by that."""
    name = mutant.module.replace("/", ".")
    module = sys.modules[name]
    code = compile(mutated(mutant), module.__file__ or name, "exec", dont_inherit=True)
    if mutant.loading or not _swapped(module, mutant.function, code):
        load_again(module, code)


def _swapped(module: ModuleType, qualified: str, code: CodeType) -> bool:
    place: Any = module
    for part in qualified.split("."):
        place = vars(place).get(part)
    found = place.fget if isinstance(place, property) else place
    found = getattr(found, "__wrapped__", getattr(found, "__func__", found))
    made = [each for each in _codes(code) if each.co_qualname == qualified]
    if not isinstance(found, FunctionType) or len(made) != 1 or made[0].co_freevars != found.__code__.co_freevars:
        return False
    found.__code__ = made[0]
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def load_again(old: ModuleType, code: CodeType) -> None:
    fresh = ModuleType(old.__name__)
    for name in ("__file__", "__package__", "__spec__", "__loader__"):
        setattr(fresh, name, getattr(old, name))
    sys.modules[old.__name__] = fresh
    exec(code, vars(fresh))
    _replace(old, fresh)
    checks = sys.modules["harness.checks"]
    checks.PARAMETERS.update({name: check.params for name, check in checks.CHECKS.items()})


def _replace(old: ModuleType, fresh: ModuleType) -> None:
    new = {id(old): fresh}
    plain: dict[str, tuple[Any, Any]] = {}
    for name, value in vars(old).items():
        made = vars(fresh).get(name, value)
        if made is value or name.startswith("__"):
            continue
        if isinstance(value, int | float | str | bytes | bool | None):
            plain[name] = (value, made)
        else:
            new[id(value)] = made
    for module in [m for n, m in sys.modules.items() if n.startswith(OURS) and m is not fresh and m is not old]:
        for name, value in list(vars(module).items()):
            if id(value) in new:
                setattr(module, name, new[id(value)])
            elif name in plain and value is plain[name][0]:
                setattr(module, name, plain[name][1])
