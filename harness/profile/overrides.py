"""Variants and `--set`: values laid over the tree of a profile before it is validated.

A path names a value that may be there or not; the container that holds it must be there. So a misspelled tenant is an
error, not a new tenant. Each value laid in keeps where it came from, for the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.profile import nodes
from harness.profile.errors import Problem, ProfileError, did_you_mean, printable
from harness.profile.nodes import Mark, Node, with_child
from harness.profile.paths import parse_path, show_path, split_assignment

SPENT = "variants"
MOST_VARIANTS = 200


class PathError(ValueError):
    """The path leads nowhere; the message says why, `hint` what to do."""

    def __init__(self, rule: str, hint: str = "") -> None:
        super().__init__(rule)
        self.hint = hint


def names_of(root: Node) -> tuple[str, ...]:
    variants = root.mapping.get(SPENT) if root.kind == "mapping" else None
    return tuple(variants.mapping) if variants is not None else ()


def check_variants(root: Node) -> list[Problem]:
    """Shape and paths of every variant, asked for or not."""
    variants = root.mapping.get(SPENT)
    if variants is None or (variants.kind == "scalar" and variants.value is None):
        return []
    if variants.kind != "mapping":
        rule = "variants are a mapping: {name: {dotted.path: value}}"
        return [_problem(variants, (SPENT,), rule)]
    if len(variants.mapping) > MOST_VARIANTS:
        return [_problem(variants, (SPENT,), f"a profile has at most {MOST_VARIANTS} variants")]
    problems = []
    for name in variants.mapping:
        problems += apply_variant(root, name)[1]
    return problems


def apply_variant(root: Node, name: str) -> tuple[Node, list[Problem]]:
    """The tree with the variant's values laid in, and what was wrong with it."""
    variants = root.mapping.get(SPENT)
    known = names_of(root)
    if variants is None or name not in variants.mapping:
        hint = did_you_mean(name, known, "variants")
        return root, [Problem(f"--variant {printable(name)}", None, None, "", None, "there is no such variant", hint)]
    entry = variants.mapping[name]
    if entry.kind != "mapping":
        return root, [_problem(entry, (SPENT, name), "a variant is a mapping: {dotted.path: value}")]
    problems, result = [], root
    for text, node in entry.mapping.items():
        mark = entry.keys[text]
        try:
            result = _laid(result, parse_path(text), replace(node, variant=name), mark)
        except ValueError as error:
            hint = getattr(error, "hint", "")
            problems.append(Problem(mark.file, mark.line, mark.column, "", text, str(error), hint, name))
    return result, problems


def apply_sets(root: Node, sets: Sequence[str]) -> tuple[Node, list[Problem]]:
    """The tree with each `path=value` laid in, in order, and what was wrong with them."""
    problems: list[Problem] = []
    for text in sets:
        origin = f"--set {text if len(text) <= 200 else text[:197] + '...'}"
        if not origin.isprintable():
            origin = ascii(origin)[1:-1]
        try:
            path, value = split_assignment(text)
            nodes.check_characters(value, origin)
            node, more = nodes.compose(value, origin, lines=False) if value.strip() else (_empty(origin), [])
            problems += more
            root = _laid(root, path, node, Mark(origin))
        except ProfileError as error:
            problems += [replace(problem, line=None, column=None) for problem in error.problems]
        except ValueError as error:
            problems.append(Problem(origin, None, None, "", None, str(error), getattr(error, "hint", "")))
    return root, problems


def _empty(origin: str) -> Node:
    return Node("scalar", Mark(origin), "", "")


def _laid(root: Node, path: tuple[str, ...], value: Node, key_mark: Mark) -> Node:
    """A copy of the tree with `value` at `path`. Raises PathError."""
    if path[0] == SPENT:
        raise PathError("a variant cannot be changed from here", "edit the profile")
    chain = [root]
    for i, step in enumerate(path[:-1]):
        inner = chain[-1].child(step)
        if inner is None or inner.kind == "scalar":
            raise _no_way(chain[-1], path, i, inner)
        chain.append(inner)
    if chain[-1].kind == "sequence" and chain[-1].child(path[-1]) is None:
        raise _no_way(chain[-1], path, len(path) - 1, None)
    for parent, step in zip(reversed(chain), reversed(path), strict=True):
        value = with_child(parent, step, value, key_mark if parent is chain[-1] else parent.keys.get(step, key_mark))
    return value


def _no_way(parent: Node, path: tuple[str, ...], at: int, found: Node | None) -> PathError:
    here = show_path(path[: at + 1])
    if found is not None:
        whole = "not given" if found.value is None else f"'{found.shown()}'"
        return PathError(f"{here} is {whole}, so it holds no {show_path(path[at + 1 :])}", f"set {here} as a whole")
    if parent.kind == "sequence":
        most = len(parent.sequence) - 1
        return PathError(f"there is no {here}", f"places in this list are 0 to {most}" if most >= 0 else "it is empty")
    # A key that holds dots, written without its quotes: find the longest one that fits.
    for end in range(len(path), at + 1, -1):
        if ".".join(path[at:end]) in parent.mapping:
            right = show_path((*path[:at], ".".join(path[at:end]), *path[end:]))
            return PathError(f"there is no {here}", f"did you mean {right}?")
    hint = did_you_mean(path[at], list(parent.mapping), "there are")
    return PathError(f"there is no {here}", hint)


def _problem(node: Node, path: tuple[str, ...], rule: str) -> Problem:
    mark = node.mark
    return Problem(mark.file, mark.line, mark.column, show_path(path), node.shown(), rule)
