"""YAML text -> a tree that remembers where each value stood, in bounded time and memory, whatever the text.

PyYAML parses; this composes, because PyYAML's own composer recurses without a bound, expands aliases without a bound,
takes the last of two equal keys, and reads YAML 1.1: there `no` is false, `12:30` is 750 and `010` is 8. Here only
`null`, `true`, `false` and plain decimal numbers are anything but text. Tags, merge keys and further documents are
refused. It never constructs an object other than str, int, float, bool, None, list and dict.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from harness.profile.errors import MOST_FOUND, Problem, ProfileError, short
from harness.profile.paths import Path, Step, show_path

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_NODES = 300_000
MAX_DIGITS = 18

_Parser: Any = getattr(yaml, "CParser", None)
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "True": True, "TRUE": True}
_WORDS |= {"false": False, "False": False, "FALSE": False}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ud800-\udfff]")

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something stood. file: a file, or the `--set` that said it; lines and columns from 1."""

    file: str
    line: int | None = None
    column: int | None = None


@dataclass(slots=True)
class Node:
    """One value. text: a scalar as written. keys: marks of a mapping's keys. variant: the one that laid it in."""

    kind: Literal["scalar", "mapping", "sequence"]
    mark: Mark
    value: Scalar = None
    text: str = ""
    mapping: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)
    sequence: list[Node] = field(default_factory=list)
    size: int = 1
    depth: int = 1
    variant: str | None = None

    def children(self) -> list[Node]:
        return list(self.mapping.values()) if self.kind == "mapping" else self.sequence

    def child(self, step: Step) -> Node | None:
        if self.kind == "mapping":
            return self.mapping.get(str(step))
        if self.kind == "sequence" and str(step).isdecimal() and len(str(step)) < 10 and int(step) < len(self.sequence):
            return self.sequence[int(step)]
        return None

    def plain(self) -> Any:
        """The value as str, int, float, bool, None, list and dict."""
        if self.kind == "mapping":
            return {key: node.plain() for key, node in self.mapping.items()}
        if self.kind == "sequence":
            return [node.plain() for node in self.sequence]
        return self.value

    def shown(self) -> str:
        """What was written, for a message."""
        if self.kind == "scalar":
            return self.text
        return short(str(self.plain()) if self.size < 50 else f"a {self.kind} of {len(self.children())}")


def with_child(node: Node, step: str, child: Node, key_mark: Mark) -> Node:
    """A copy of the container with one child replaced or added; the rest is shared."""
    if node.kind == "mapping":
        keys = {**node.keys, step: key_mark}
        return replace(node, mapping={**node.mapping, step: child}, keys=keys)
    sequence = list(node.sequence)
    sequence[int(step)] = child
    return replace(node, sequence=sequence)


def decode(data: bytes, file: str) -> str:
    """UTF-8 text without control characters. Raises ProfileError."""
    if len(data) > MAX_BYTES:
        raise ProfileError([Problem(file, None, None, "", None, "a profile is at most 1 MiB of text")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        rule = "a profile is UTF-8 text; this byte is not"
        value = f"0x{data[error.start]:02x}"
        raise ProfileError([Problem(file, line, 1, "", value, rule, "save the file as UTF-8")]) from None
    check_characters(text, file)
    return text


def check_characters(text: str, file: str) -> None:
    """Raises ProfileError on control characters and the like."""
    if match := _FORBIDDEN.search(text):
        before = text[: match.start()]
        line, column = before.count("\n") + 1, match.start() - before.rfind("\n")
        rule = "control characters are not text"
        raise ProfileError([Problem(file, line, column, "", f"U+{ord(match[0]):04X}", rule, "remove it")])


def compose(text: str, file: str, *, lines: bool = True) -> tuple[Node, list[Problem]]:
    """The tree of the only document, and what is wrong with it that did not stop the reading.

    lines: False where the text is a command-line value, whose line numbers say nothing. Raises ProfileError where
    nothing can be made of the text.
    """
    composer = _Composer(file, lines)
    parser = (_Parser or _PurePython)(text)
    try:
        while True:
            event = parser.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                break
            composer.take(event)
    except yaml.YAMLError as error:
        raise ProfileError([*composer.problems, _syntax(error, file, lines)]) from None
    finally:
        parser.dispose()
    if composer.root is None:
        raise ProfileError([Problem(file, 1 if lines else None, 1, "", None, "the document is empty")])
    return composer.root, composer.problems


class _PurePython(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def _syntax(error: yaml.YAMLError, file: str, lines: bool) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    context = getattr(error, "context", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None and lines else (None, None)
    rule = f"not YAML: {what}" + (f" ({context})" if context else "")
    hint = "indent with spaces, and quote text that holds ': ', '#', '[' or '{'"
    return Problem(file, line, column, "", None, rule, hint)


@dataclass(slots=True)
class _Open:
    """A container whose end has not been read yet. key: the key whose value comes next."""

    node: Node
    anchor: str | None
    key: str | None = None
    key_mark: Mark | None = None
    at_key: bool = True


class _Composer:
    """Takes parser events one by one, with a stack of its own."""

    def __init__(self, file: str, lines: bool) -> None:
        self.file, self.lines = file, lines
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def take(self, event: Any) -> None:
        mark = self._mark(event)
        match event:
            case yaml.DocumentStartEvent():
                if self.root is not None:
                    self._stop(mark, "a profile is one document; this starts another", "remove the line ---")
            case yaml.AliasEvent():
                self._alias(event.anchor, mark)
            case yaml.ScalarEvent():
                self._scalar(event, mark)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, mark)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                if done.anchor is not None:
                    self._anchors[done.anchor] = done.node
                self._place(done.node)

    def _scalar(self, event: Any, mark: Mark) -> None:
        self._count(1, mark)
        self._refuse_tag(event, mark)
        plain = event.style is None and event.implicit[0]
        node = Node("scalar", mark, self._resolve(event.value, mark) if plain else event.value, event.value)
        if _FORBIDDEN.search(event.value):
            self._problem(mark, "control characters are not text", "remove the escape", event.value)
        if plain and event.value == "<<" and self._expects_key():
            self._problem(mark, "merge keys are not supported", "write the keys out, or use a variant", "<<")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._place(node)

    def _resolve(self, text: str, mark: Mark) -> Scalar:
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            if len(text) > MAX_DIGITS:
                self._problem(mark, f"a number has at most {MAX_DIGITS} digits", "quote it if it is text", text)
                return 0
            return int(text)
        if len(text) <= 100 and _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                self._problem(mark, "the number is too large", "quote it if it is text", text)
                return 0.0
            return number
        return text

    def _open(self, event: Any, mark: Mark) -> None:
        self._count(1, mark)
        self._refuse_tag(event, mark)
        if len(self._stack) >= MAX_DEPTH:
            self._too_deep(mark)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
        self._stack.append(_Open(Node(kind, mark), event.anchor))

    def _alias(self, anchor: str | None, mark: Mark) -> None:
        name = anchor or ""
        if name not in self._anchors:
            self._stop(mark, f"there is no anchor &{short(name)} before this alias")
        node = self._anchors[name]
        if node is None:
            self._stop(mark, f"alias *{short(name)} stands inside what it names")
        else:
            self._count(node.size, mark)
            if len(self._stack) + node.depth > MAX_DEPTH:
                self._too_deep(mark)
            self._place(node)

    def _place(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        parent = top.node
        if parent.kind == "mapping" and top.at_key:
            top.key, top.key_mark = self._key(node, parent), node.mark
            top.at_key = False
            return
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if parent.kind == "sequence":
            parent.sequence.append(node)
            return
        top.at_key = True
        if top.key is not None and top.key_mark is not None:
            parent.mapping[top.key], parent.keys[top.key] = node, top.key_mark

    def _key(self, node: Node, parent: Node) -> str | None:
        if node.kind != "scalar" or not isinstance(node.value, str):
            shown = node.shown()
            self._problem(node.mark, "a key must be text", f'write "{short(shown)}" in quotes', shown)
            return None
        if node.value in parent.mapping:
            first = parent.keys[node.value]
            where = f" (first in line {first.line})" if first.line else ""
            self._problem(node.mark, f"the key stands twice{where}", "remove one of the two", node.value, (node.value,))
            return None
        return node.value

    def _expects_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].node.kind == "mapping" and self._stack[-1].at_key

    def _refuse_tag(self, event: Any, mark: Mark) -> None:
        if event.tag is not None:
            self._problem(mark, "tags are not supported", "remove it, and quote what must be text", event.tag)

    def _count(self, nodes: int, mark: Mark) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._stop(mark, f"a profile holds at most {MAX_NODES} values, aliases written out")

    def _too_deep(self, mark: Mark) -> None:
        self._stop(mark, f"a profile is nested at most {MAX_DEPTH} deep")

    def _mark(self, event: Any) -> Mark:
        if not self.lines:
            return Mark(self.file)
        return Mark(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _problem(self, mark: Mark, rule: str, hint: str = "", value: str | None = None, below: Path = ()) -> None:
        path: list[Step] = []
        for level in self._stack:
            if level.node.kind == "sequence":
                path.append(len(level.node.sequence))
            elif not level.at_key and level.key is not None:
                path.append(level.key)
        self.problems.append(Problem(mark.file, mark.line, mark.column, show_path((*path, *below)), value, rule, hint))
        if len(self.problems) >= MOST_FOUND:
            raise ProfileError(self.problems)

    def _stop(self, mark: Mark, rule: str, hint: str = "") -> None:
        self._problem(mark, rule, hint)
        raise ProfileError(self.problems)


def from_plain(value: Any, origin: str) -> Node:
    """The tree of a document that is already str, int, float, bool, None, list and dict. Raises ProfileError."""
    mark = Mark(origin)
    count = 0

    def stop(path: Path, rule: str) -> ProfileError:
        return ProfileError([Problem(origin, None, None, show_path(path), None, rule)])

    def build(value: Any, path: Path) -> Node:
        nonlocal count
        count += 1
        if count > MAX_NODES:
            raise stop(path, f"a profile holds at most {MAX_NODES} values")
        if len(path) > MAX_DEPTH:
            raise stop(path, f"a profile is nested at most {MAX_DEPTH} deep")
        node = Node("scalar", mark)
        if isinstance(value, dict):
            node.kind = "mapping"
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise stop(path, "a key must be text")
                node.mapping[key], node.keys[key] = build(inner, (*path, key)), mark
        elif isinstance(value, list | tuple):
            node.kind = "sequence"
            node.sequence = [build(inner, (*path, place)) for place, inner in enumerate(value)]
        else:
            _check_scalar(value, path, stop)
            node.value = value
            node.text = "null" if value is None else str(value)
        node.size += sum(inner.size for inner in node.children())
        return node

    return build(value, ())


def _check_scalar(value: Any, path: Path, stop: Any) -> None:
    if not isinstance(value, str | int | float | bool | None):
        raise stop(path, f"a {type(value).__name__} is nothing that a profile can hold")
    if isinstance(value, str) and _FORBIDDEN.search(value):
        raise stop(path, "control characters are not text")
    if isinstance(value, float) and not math.isfinite(value):
        raise stop(path, "a number must be finite")
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise stop(path, f"a number has at most {MAX_DIGITS} digits")
