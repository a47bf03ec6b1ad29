"""JUnit XML of what was found: a case a check, for whatever shows test results.

    PASS          a case without a child
    FAIL          <failure type="FAIL">
    INVALID       <error type="INVALID">: the trial, not the target
    INCONCLUSIVE  <failure type="INCONCLUSIVE">, because what was not shown is not shown; <skipped> only if asked for

XML 1.0 has no place for most control characters: foreign text is made safe to show (text.clean) before it is escaped.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from harness.checks.verdict import Verdict, Word
from harness.report.results import Case, Results
from harness.report.text import clean, count, quantity

_CHILD = {Word.FAIL: "failure", Word.INVALID: "error", Word.INCONCLUSIVE: "failure"}


def junit(results: Results, skip_inconclusive: bool = False) -> bytes:
    """The document, UTF-8. skip_inconclusive: INCONCLUSIVE is <skipped>."""
    cases = [_case(case, skip_inconclusive) for case in results.cases]
    tally = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    figures = {
        "name": results.name,
        "tests": str(len(cases)),
        "failures": str(tally["failure"]),
        "errors": str(tally["error"]),
        "skipped": str(tally["skipped"]),
        "time": f"{results.seconds:.3f}",
    }
    suite = ET.Element("testsuite", figures)
    properties = ET.SubElement(suite, "properties")
    for name, value in results.properties.items():
        ET.SubElement(properties, "property", {"name": name, "value": clean(value, 400)})
    suite.extend(cases)
    root = ET.Element("testsuites", {key: value for key, value in figures.items() if key != "skipped"})
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(found: Case, skip_inconclusive: bool) -> ET.Element:
    verdict, told = found.verdict, "\n".join(["", *details(found.verdict, found.folder), ""])
    family, _, rule = verdict.check.partition(".")
    of = [clean(part.replace(".", "_"), 80) for part in (found.situation, family) if part]
    case = ET.Element("testcase", {"classname": ".".join(["overload", *of]), "name": clean(rule or family, 160)})
    case.set("time", f"{found.seconds:.3f}")
    if verdict.word is not Word.PASS:
        skipped = verdict.word is Word.INCONCLUSIVE and skip_inconclusive
        kind = {} if skipped else {"type": verdict.word.value}
        message = f"{verdict.word.value}: {clean(verdict.sentence, 1_000)}"
        child = ET.SubElement(case, "skipped" if skipped else _CHILD[verdict.word], {**kind, "message": message})
        child.text = told
    else:
        ET.SubElement(case, "system-out").text = told
    return case


def details(verdict: Verdict, folder: str) -> list[str]:
    """What stands below a case: sentence, figures, what to add, witnesses, and where the ledger is."""
    return [
        clean(verdict.sentence, 1_000),
        f"measured {quantity(verdict.measured, verdict.unit)}, bound {quantity(verdict.bound, verdict.unit)}, "
        f"{count(verdict.samples)} samples",
        *([f"to add: {clean(verdict.add, 1_000)}"] if verdict.add else []),
        *([f"witnesses: {', '.join(clean(w, 60) for w in verdict.witnesses)}"] if verdict.witnesses else []),
        *([f"ledger: {clean(folder, 1_000)}"] if folder else []),
    ]
