"""The driver of mutants: what is made of a module, how it is laid over a loaded one, what is kept of it."""

from __future__ import annotations

import ast
import sys
from types import ModuleType

import pytest

from benchmarks.mutants import laid, operators, record, session, table
from benchmarks.mutants.operators import Mutant, modules, mutants, mutated

TEXT = '''"""Doc."""
LEAST = 3


class Params:
    """Doc."""

    share: float = 0.5

    @property
    def half(self) -> "Params | None":
        return self.share / 2


def judge(rows, most=LEAST):
    """Doc."""
    over = [row for row in rows if row.get("kind") == "step" and not row["late"]]
    if len(over) > most:
        raise ValueError(f"{len(over) + 1} are too many")
    log("a sentence")
    return min(over, default=-1)
'''


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(operators, "source", lambda module: TEXT)
    return mutants("harness/checks/example")


def changes(made, function):
    return {f"{mutant.kind}: {mutant.change}" for mutant in made if mutant.function == function}


def test_each_operator_changes_one_thing(made):
    assert changes(made, "Params.half") == {
        "arithmetic: self.share / 2 -> self.share * 2", "constant: 2 -> 3",
        "return: return self.share / 2 -> return None",
    }  # fmt: skip
    assert {
        "word: 'kind' -> 'kind_'", "word: 'step' -> 'step_'",
        "comparison: row.get('kind') == 'step' -> row.get('kind') != 'step'", "sign: not row['late'] -> row['late']",
        "connective: row.get('kind') == 'step' and (not row['late']) -> row.get('kind') == 'step' or not row['late']",
        "boundary: len(over) > most -> len(over) >= most", "comparison: len(over) > most -> len(over) <= most",
        "call left out: log('a sentence') -> pass", "call: min(over, default=-1) -> max(over, default=-1)",
        "sign: -1 -> 1", "return: return min(over, default=-1) -> return None",
    } < changes(made, "judge")  # fmt: skip
    assert changes(made, "") == {"constant: 3 -> 4", "constant: 0.5 -> 1.5"}


def test_annotations_docstrings_and_sentences_are_left_alone(made):
    said = " ".join(mutant.change for mutant in made)
    assert not any(words in said for words in ("Doc", "Params | None", "len(over) - 1", "a sentence_"))


def test_each_mutant_is_another_program_and_known_by_itself(made):
    whole = ast.dump(ast.parse(TEXT))
    assert len({mutant.key for mutant in made}) == len(made)
    programs = {ast.dump(mutated(mutant)) for mutant in made}
    assert (len(programs), whole in programs) == (len(made), False)
    for mutant in made:
        compile(mutated(mutant), "example", "exec")
        assert 1 <= mutant.lines.start < mutant.lines.stop <= TEXT.count("\n") + 1


def test_what_a_module_does_when_it_is_loaded_is_told_apart(made):
    assert {mutant.change for mutant in made if mutant.loading} == {"3 -> 4", "0.5 -> 1.5"}


def test_a_row_counts_while_its_function_is_as_it_was(made, monkeypatch, tmp_path):
    path = tmp_path / "results" / "mutants.jsonl"
    for mutant in made:
        record.append(record.Row(mutant.key, mutant.line, "tests/x", 1, 2, 0.1, mutant.body), path)
    with path.open("ab") as file:
        file.write(b'{"key": "cut')
    rows = record.read(path)
    assert all(record.of(mutant, rows) for mutant in made)
    monkeypatch.setattr(operators, "source", lambda module: "\n\n" + TEXT.replace("self.share / 2", "self.share / 3"))
    again = {mutant.function: record.of(mutant, rows) for mutant in mutants("harness/checks/example")}
    assert again["judge"] is not None  # it only moved
    assert again["Params.half"] is None


def test_the_table_counts_what_was_tried_killed_and_let_live(made, monkeypatch):
    entry = {"module": "checks/example", "function": "judge", "kind": ["sign", "boundary"], "class": "x", "why": "y"}
    monkeypatch.setattr(record, "_justified", lambda: [entry])
    rows = {
        mutant.key: record.Row(
            mutant.key, mutant.line, "" if mutant.function == "judge" else "t", 1, 1, 0.0, mutant.body
        )
        for mutant in made
        if mutant.function
    }
    survived = sum(mutant.function == "judge" for mutant in made)
    let_live = sum(mutant.function == "judge" and mutant.kind in entry["kind"] for mutant in made)
    said = table.figures(made, rows)
    line = f"| in all | {len(made)} | {len(rows)} | 3 | {survived} | {let_live} | {survived - let_live} |"
    assert line in said.replace("`", "")
    assert said.endswith(f"- x: {let_live}")
    assert table.survivors(made, rows).endswith(f"{survived - let_live} survivors that nobody has justified")


def test_every_entry_of_what_is_justified_names_mutants_that_there_are():
    for entry in record._justified():
        wanted = entry["module"] if isinstance(entry["module"], list) else [entry["module"]]
        named = [mutant for name in modules(tuple(wanted)) for mutant in mutants(name)]
        assert any(record.fits(entry, mutant) for mutant in named), entry
        assert entry["class"]
        assert entry["why"]


# --- laid over loaded modules


@pytest.fixture
def loaded(monkeypatch):
    """A module, and one that has imported from it."""
    text = "LEAST = 3\n\n\ndef least():\n    return LEAST\n\n\ndef doubled():\n    return 2 * least()\n"
    monkeypatch.setattr(operators, "source", lambda module: text)
    one, other = ModuleType("harness.example"), ModuleType("harness.other_example")
    one.__file__ = "example.py"
    for module in (one, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(text, vars(one))
    exec("from harness.example import LEAST, doubled, least", vars(other))
    return one, other


def the(change):
    return next(mutant for mutant in mutants("harness/example") if mutant.change == change)


def test_a_changed_function_is_changed_for_whoever_holds_it(loaded):
    one, other = loaded
    laid.lay(the("2 * least() -> 2 / least()"))
    assert other.doubled is one.doubled
    assert (other.doubled(), one.least()) == (2 / 3, 3)


def test_a_changed_constant_is_changed_for_whoever_imported_it(loaded):
    _, other = loaded
    laid.lay(the("3 -> 4"))
    assert (other.LEAST, other.least(), other.doubled()) == (4, 4, 8)


def test_a_fork_that_never_ends_or_breaks_is_told():
    def forever():
        while True:
            pass

    assert session._forked(lambda: "3|tests/x", 1.0)[0] == "3|tests/x"
    assert session._forked(lambda: {}["nothing"], 1.0)[0] == "0|broke"
    assert session._forked(forever, 0.0)[0] == "0|ran out of time, or ended the process"


def test_modules_are_chosen_by_the_beginning_of_their_path():
    assert modules(("measure/quant", "checks/v07")) == ["harness/measure/quantiles", "harness/checks/v07_retry_after"]
    assert all(isinstance(mutant, Mutant) for mutant in mutants("harness/measure/quantiles"))
