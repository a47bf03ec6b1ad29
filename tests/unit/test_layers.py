"""The import rules and the purity of ARCHITECTURE.md, held by reading imports and by running a clean interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LEAVES = {
    "harness.errors",
    "harness.machine",
    "harness.shipped",
    "harness.ledger.outcomes",
    "harness.ledger.call",
    "harness.profile.units",
    "stub_service.exposition",
}
PURE_STUB = {
    "stub_service.admission",
    "stub_service.capacity",
    "stub_service.dependency",
    "stub_service.defects",
    "stub_service.config",
}
# What each layer may import of this project, beside itself and the leaves. A longer prefix wins.
ALLOWED = {
    "harness.profile": set(),
    "harness.ledger": {"harness.profile"},
    "harness.workload": {"harness.profile", "harness.measure.retry_after", "stub_service.defects.registry"},
    "harness.recorded": {"harness.profile", "harness.workload", "harness.measure"},
    "harness.measure": {"harness.ledger", "harness.profile"},
    "harness.checks": {"harness.measure", "harness.ledger", "harness.profile", "harness.workload.budgets"},
    "harness.simulate": {"harness.workload", "harness.profile", "harness.ledger", "harness.measure"} | PURE_STUB,
    "harness.live": {
        "harness.workload",
        "harness.profile",
        "harness.ledger",
        "harness.measure",
        "harness.recorded",
        # What a target file says, and nothing that talks to a target.
        "harness.target.model",
        "harness.target.file",
        "harness.target.templates",
        "harness.target.understanding",
        "harness.target.rails",
        "harness.target.tls",
        "harness.target.hosts",
        "harness.target.tokens",
        "harness.target.runs",
        "harness.target.driver",
    },
    "harness.target": {
        "harness.profile",
        "harness.ledger",
        "harness.measure",
        "stub_service.config",
        "stub_service.capacity.config",
    },
    "harness.callers": {"harness.checks", "harness.measure", "harness.profile"},
    "harness.report": {"harness.callers", "harness.checks", "harness.measure", "harness.ledger", "harness.profile"},
    "harness.baseline": {
        "harness.checks",
        "harness.measure",
        "harness.ledger",
        "harness.profile",
        "harness.report",
    },
    "harness.shadow": {"harness.recorded", "harness.measure", "harness.profile", "harness.report"} | PURE_STUB,
    "harness.trial": {"harness", "stub_service.config", "stub_service.defects"},
    "harness.matrix": {"harness", "stub_service.defects"},
    "harness.bracket": {"harness"},
    "harness.verify": {"harness", "stub_service.defects"},
    "harness.cli": {"harness", "stub_service"},
    "harness.lab": {"harness"},
    "harness.pytest_plugin": {"harness"},
    "harness.errors": set(),
    "harness.machine": set(),
    "harness.shipped": set(),
    "stub_service": {"stub_service"},
}
FORBIDDEN_EVEN_ABOVE = {"harness.live"}  # imported by nobody: it patches the process
PURE = (
    "harness/workload",
    "harness/simulate",
    "harness/measure",
    "harness/checks",
    "harness/callers",
    "harness/shadow",
    "stub_service/admission",
    "stub_service/capacity/",
    "stub_service/dependency",
    "stub_service/defects",
    "stub_service/config.py",
    "stub_service/exposition.py",
    "stub_service/provider/",
)
IMPURE_MODULES = {
    "time",
    "socket",
    "asyncio.events",
    "aiohttp",
    "gevent",
    "locust",
    "subprocess",
    "threading",
    "secrets",
    "os",
    "select",
    "requests",
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for package in ("harness", "stub_service"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append((name, path))
    return found


def imports(path: Path, type_checking_too: bool = True) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer_of(name: str) -> str | None:
    layers = [layer for layer in ALLOWED if under(name, layer)]
    return max(layers, key=len, default=None)


def violations(name: str, imported: list[str]) -> list[str]:
    layer = layer_of(name)
    if layer is None:
        return []
    bad = []
    for target in imported:
        if not (under(target, "harness") or under(target, "stub_service")):
            continue
        if any(under(target, leaf) for leaf in LEAVES) or under(target, layer):
            continue
        if any(under(target, f) for f in FORBIDDEN_EVEN_ABOVE) or not any(under(target, a) for a in ALLOWED[layer]):
            bad.append(f"{name} imports {target}")
    return bad


def test_imports_run_one_way():
    assert [bad for name, path in modules() for bad in violations(name, imports(path))] == []


def test_every_module_belongs_to_a_layer():
    outside = [name for name, _ in modules() if layer_of(name) is None and name not in ("harness", "harness.__main__")]
    assert outside == []


def test_a_violation_is_seen():
    assert violations("harness.workload.x", ["harness.live.users.Tenant"]) != []
    assert violations("harness.cli.x", ["harness.live.users.Tenant"]) != []
    assert violations("stub_service.app", ["harness.ledger.reader.Trial"]) != []
    assert violations("harness.measure.x", ["harness.checks.registry.CHECKS"]) != []


def impurities(path: Path) -> list[str]:
    bad = [f"{path.name} imports {name}" for name in imports(path) if name.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "random" and node.attr != "Random":
                bad.append(f"{path.name}:{node.lineno} uses random.{node.attr}")
            if node.value.id == "datetime" and node.attr in ("now", "utcnow", "today"):
                bad.append(f"{path.name}:{node.lineno} reads the clock")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            bad.append(f"{path.name}:{node.lineno} opens a file")
    bad += [
        f"{path.name} imports {name}"
        for name in imports(path)
        if under(name, "random") and name not in ("random", "random.Random")
    ]
    return bad


def test_pure_packages_have_no_clock_socket_or_global_randomness():
    files = [p for _, p in modules() if str(p.relative_to(ROOT)).startswith(PURE)]
    assert len(files) > 15
    assert [bad for path in files for bad in impurities(path)] == []


def test_an_impurity_is_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("import time\nimport random\nfrom random import choice\nx = random.random()\nopen('f')\n")
    assert len(impurities(path)) == 4


@pytest.mark.parametrize("module", ["harness.simulate.driver", "harness.checks", "harness.cli", "harness.trial"])
def test_import_loads_neither_gevent_nor_locust(module):
    code = f"import sys, {module}; print([m for m in ('gevent', 'locust') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_simulation_loads_no_aiohttp():
    code = "import sys, harness.simulate.driver; print('aiohttp' in sys.modules or 'gevent' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"
