"""The pytest plugin: fixtures that drive a trial in a test, judge it, and hold it against a baseline.

    def test_retries_have_one_owner(overload_case):
        overload_case("v05")

    def test_the_burst_moves_nobody(overload_run, overload_baseline):
        overload_baseline(overload_run("profiles/steady.yaml"))

Options begin with `--overload-`; tests that use a fixture have the marker `overload` (docs/pytest.md). FAIL,
INCONCLUSIVE and INVALID are failures with different words, because pytest owns its exit codes. A target that others can
reach is driven by one test at a time, whatever process that runs in: a lock a target, in the system's temporary folder.

It is loaded in every pytest run of a project that names it (`-p harness.pytest_plugin`), so nothing but pytest is
imported before a test asks for a fixture. It must never import locust, which patches the process.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from harness.baseline.compare import Diff, Margins
    from harness.checks.verdict import Verdict
    from harness.trial import Judged, Target
    from harness.verify import Outcome

TARGET, ALLOW, REPORTS = "--overload-target", "--overload-allow-inconclusive", "--overload-reports"
BASELINES, SAVE, ACROSS = "--overload-baselines", "--overload-save-baselines", "--overload-across-environments"
SIMULATOR = "simulator"
FIXTURES = frozenset(("overload_case", "overload_run", "overload_baseline", "overload_target"))
MARKER = "overload: drives a service (a test has it by using a fixture overload_...); select with -m overload"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("overload", "overload: trials against a service, judged")
    group.addoption(TARGET, default="stub", metavar="stub|simulator|URL|FILE",
                    help="What is driven: a stub of its own (default), virtual time, a service on this machine, or a "
                    "target file.")  # fmt: skip
    group.addoption(ALLOW, action="store_true", help="INCONCLUSIVE skips a test instead of failing it.")
    group.addoption(REPORTS, metavar="DIR", help="Where the trials' folders are made; default: a temporary folder.")
    group.addoption(
        BASELINES, metavar="DIR", help="Where baselines are kept; default: reports/baselines of the project."
    )
    group.addoption(SAVE, action="store_true", help="Write the baselines instead of comparing with them.")
    group.addoption(ACROSS, action="store_true", help="Compare with baselines of other machines, versions or targets.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    if FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("overload")


@pytest.fixture(scope="session")
def overload_target(pytestconfig: pytest.Config) -> Target:
    """What `--overload-target` says: `stub`, `simulator`, the address of a service, or a target file, read whole."""
    with bad_input_fails():
        return target_of(str(pytestconfig.getoption(TARGET)))
    raise AssertionError("not reached")


@pytest.fixture
def overload_case(
    request: pytest.FixtureRequest, overload_target: Target, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Outcome]:
    """overload_case(name) drives a situation of `overload verify`, and fails the test unless all is PASS.

    Under pytest-xdist each worker has a stub of its own, and a situation that measures latency has no other beside it.
    """

    def drive(name: str) -> Outcome:
        from harness import verify

        config = request.config
        allow = bool(config.getoption(ALLOW))
        with bad_input_fails():
            options = verify.Options(_reports(config, tmp_path), overload_target)
            (case,) = verify.chosen(name)
            if (withheld := verify.withheld(case, options)) is not None:
                tell([withheld], options.reports, allow)
            with undisturbed(overload_target, tmp_path_factory, case.alone):
                (outcome,) = verify.run([case], options)
        tell([outcome.verdict, *outcome.judged.verdicts], outcome.judged.trial.folder, allow)
        return outcome

    return drive


@pytest.fixture
def overload_run(
    request: pytest.FixtureRequest, overload_target: Target, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Judged]:
    """overload_run(profile, variant=None, sets=(), time_scale=1.0, defect=None, judge=True) drives a profile.

    Fails the test unless all of its checks PASS; with `judge=False` only if the trial is INVALID. One that is INVALID
    only because the harness was late is driven once more. sets: `("service.workers=16",)`. Returns the judged trial.
    """

    def drive(
        profile: str | Path, *, variant: str | None = None, sets: Sequence[str] = (), time_scale: float = 1.0,
        defect: str | None = None, judge: bool = True,
    ) -> Judged:  # fmt: skip
        from harness import trial
        from harness.checks.verdict import Word
        from harness.cli.options import load_profile, shipped_hint
        from harness.errors import BadInput

        config = request.config
        with bad_input_fails():
            path = Path(profile)
            if not path.exists() and (hint := shipped_hint(path)):
                raise BadInput(f"{path}: there is no such file here. {hint}")
            loaded = load_profile(path, variant, tuple(sets), time_scale)
            reports = _reports(config, tmp_path)
            with undisturbed(overload_target, tmp_path_factory, alone=True):
                judged = trial.run(loaded, trial.new_folder(reports, loaded.profile.name), overload_target, defect)
                if only_late(judged.verdicts):
                    judged = trial.run(loaded, trial.new_folder(reports, loaded.profile.name), overload_target, defect)
        counted = [verdict for verdict in judged.verdicts if judge or verdict.word is Word.INVALID]
        tell(counted, judged.trial.folder, bool(config.getoption(ALLOW)))
        return judged

    return drive


@pytest.fixture
def overload_baseline(request: pytest.FixtureRequest) -> Callable[..., Diff | None]:
    """overload_baseline(trial, name=None, margins=None) fails the test on a regression against the kept figures.

    trial: what `overload_run` or `overload_case` returned, or the folder of a trial. name: of the baseline; default:
    the profile's name and variant. With `--overload-save-baselines` it writes them instead, and returns None.
    """

    def hold(
        found: Judged | Outcome | Path | str, name: str | None = None, margins: Margins | None = None
    ) -> Diff | None:
        from harness.baseline.compare import compare
        from harness.cli.baseline import of_sources, read_side, write

        config = request.config
        folder = config.getoption(BASELINES)
        baselines = Path(folder) if folder else config.rootpath / "reports" / "baselines"
        with bad_input_fails():
            trial = _folder_of(found)
            new, default = of_sources([trial])
            path = baselines / f"{name or default}.json"
            if config.getoption(SAVE):
                write(path, new)
                return None
            if not path.is_file():
                pytest.fail(f"NO BASELINE {path}: save it with {SAVE}, review it, and keep it in git", pytrace=False)
            base, _ = read_side(str(path), baselines)
            diff = compare(base, new, (path.stem, str(trial)), margins, bool(config.getoption(ACROSS)))
        _tell_diff(diff, bool(config.getoption(ALLOW)))
        return diff

    return hold


def _folder_of(found: Any) -> Path:
    judged = getattr(found, "judged", found)
    trial = getattr(judged, "trial", None)
    return trial.folder if trial is not None else Path(judged)


def _tell_diff(diff: Diff, allow_inconclusive: bool) -> None:
    from harness.baseline.view import results
    from harness.checks.verdict import Word

    if diff.word is Word.PASS:
        return
    shown = [case.verdict for case in results(diff).cases if case.verdict.word is diff.word][:10]
    told = [f"{verdict.check}: {verdict.sentence}" for verdict in shown]
    said = "\n  ".join([f"{diff.word.value} against the baseline {diff.base}", *told, *diff.notes])
    if diff.word is Word.INCONCLUSIVE and allow_inconclusive:
        pytest.skip(said)
    pytest.fail(said, pytrace=False)


def _reports(config: pytest.Config, otherwise: Path) -> Path:
    folder = config.getoption(REPORTS)
    return Path(folder) if folder else otherwise


def target_of(text: str) -> Target:
    """Raises BadInput."""
    if text == SIMULATOR:
        return SIMULATOR
    from harness.cli.verify import target_of as described
    from harness.errors import BadInput

    try:
        return described(text)
    except BadInput as error:  # by the name of the option that was given
        raise BadInput(re.sub("^--target", TARGET, str(error))) from None


@contextmanager
def bad_input_fails() -> Iterator[None]:
    """What a person must mend is one message, without a traceback."""
    from harness.errors import BadInput

    try:
        yield
    except BadInput as error:  # from None: pytest would show the same message twice, as a chain of exceptions
        raise pytest.fail.Exception(f"BAD INPUT: {error}", pytrace=False) from None


def only_late(verdicts: Sequence[Verdict]) -> bool:
    """Whether the trial is INVALID for nothing but a harness that was late: it proves nothing either way."""
    from harness.checks.verdict import Word
    from harness.verify import ON_TIME

    return [verdict.check for verdict in verdicts if verdict.word is Word.INVALID] == [ON_TIME]


@contextmanager
def undisturbed(target: Target, factory: pytest.TempPathFactory, alone: bool) -> Iterator[None]:
    """Waits until the target may be driven. A stub of its own belongs to its test: only what measures latency waits."""
    if target == SIMULATOR:
        yield
    elif target == "stub":
        with beside_others(factory.getbasetemp().parent / "overload.lock", alone):
            yield
    else:
        with one_at_a_time(target):
            yield


@contextmanager
def beside_others(lock: Path, alone: bool) -> Iterator[None]:
    """Waits until the situation may run: `alone`, or beside others that need not be. Nothing without workers."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with lock.open("a") as file:  # closing it gives it back, however the test ends
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def one_at_a_time(target: Target) -> Iterator[None]:
    """Holds the target's lock, which every process of this user on this machine asks for. However the test ends, or
    its process dies, it is given back."""
    with bad_input_fails():
        path = lock_of(target)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_of(target: Target) -> Path:
    """The same for every way to write the address of one host and port. Raises BadInput if there can be no lock."""
    from harness.errors import BadInput

    url = urlsplit(target if isinstance(target, str) else target.target.url)
    where = f"{_one_name(url.hostname or '')}:{url.port or (443 if url.scheme == 'https' else 80)}"
    folder = Path(tempfile.gettempdir()) / f"overload-locks-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise BadInput(
            f"{folder}: cannot be made ({error.strerror}); set TMPDIR to a folder that can be written"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BadInput(
            f"{folder}: is not a folder of yours, so it is no place for a lock; set TMPDIR to another folder"
        )
    return folder / f"{hashlib.sha256(where.encode()).hexdigest()[:16]}.lock"


def _one_name(host: str) -> str:
    """localhost, 127.0.0.1 and ::1 are one machine, this one: two names for it must not be two locks."""
    name = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return "localhost" if name.endswith(".localhost") else name
    return "localhost" if address.is_loopback else address.compressed


def tell(verdicts: Sequence[Verdict], folder: Path, allow_inconclusive: bool) -> None:
    """Fails the running test with the worst verdict's word, or skips it if that is INCONCLUSIVE and may be."""
    from harness.checks.verdict import Word, worst
    from harness.report.junit import details

    word = worst(verdict.word for verdict in verdicts) if verdicts else Word.PASS
    if word is Word.PASS:
        return
    telling = next(verdict for verdict in verdicts if verdict.word is word)
    said = "\n  ".join([f"{word.value} {telling.check}", *details(telling, str(folder))])
    if word is Word.INCONCLUSIVE and allow_inconclusive:
        pytest.skip(said)
    pytest.fail(said, pytrace=False)
