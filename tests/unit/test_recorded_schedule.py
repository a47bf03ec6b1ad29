import pytest

from harness.recorded.schedule import FOLDER, ScheduleError, source, write
from harness.workload.callers import Arrival

ARRIVALS = [Arrival(0), Arrival(10, 2.5, "GET", "/a"), Arrival(10, 0.0), Arrival(10**18, -1.0, None, "/b")]


def test_what_was_written_is_read_back(tmp_path):
    assert write(tmp_path / "x.jsonl", ARRIVALS) == 4
    assert list(source(tmp_path)("x.jsonl")) == ARRIVALS
    assert (tmp_path / "x.jsonl").read_text().splitlines()[:2] == [
        '{"due_ns":0}',
        '{"due_ns":10,"cost":2.5,"method":"GET","path":"/a"}',
    ]


def test_a_trials_folder_is_asked_for_its_schedule(tmp_path):
    (tmp_path / FOLDER).mkdir()
    write(tmp_path / FOLDER / "x.jsonl", ARRIVALS)
    assert list(source(tmp_path)("x.jsonl")) == ARRIVALS
    assert list(source(tmp_path)("schedule/x.jsonl")) == ARRIVALS


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 30), (0.5, 15), (0.1, 3), (0.3, 9), (2.0, 60)])
def test_due_instants_are_scaled_exactly(tmp_path, scale, expected):
    write(tmp_path / "x.jsonl", [Arrival(30)])
    assert [arrival.due_ns for arrival in source(tmp_path, scale)("x.jsonl")] == [expected]


def test_reading_is_lazy(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"due_ns": 1}\nbroken\n')
    rows = source(tmp_path)("x.jsonl")
    assert next(rows).due_ns == 1
    with pytest.raises(ScheduleError, match=r"x\.jsonl:2: not JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[]", "due_ns is not a whole number of nanoseconds"),
        ('{"due_ns": 1.5}', "due_ns is not a whole number of nanoseconds"),
        ('{"due_ns": -1}', "due_ns is not a whole number of nanoseconds"),
        ('{"due_ns": true}', "due_ns is not a whole number of nanoseconds"),
        ('{"due_ns": 5, "cost": "x"}', "cost is not a number"),
        ('{"due_ns": 5, "path": 1}', "method, path and body are text"),
        ('{"due_ns": 3}', "due_ns is before that of the row above; sort the rows"),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path, row, message):
    (tmp_path / "x.jsonl").write_text('{"due_ns": 4}\n' + row + "\n")
    with pytest.raises(ScheduleError) as caught:
        list(source(tmp_path)("x.jsonl"))
    assert str(caught.value).startswith(f"{tmp_path}/x.jsonl:2: {message}")


@pytest.mark.parametrize("name", ["../x.jsonl", "/etc/passwd", "a/../../x", "a\0b"])
def test_a_name_cannot_leave_the_folder(tmp_path, name):
    with pytest.raises(ScheduleError, match="lies inside its trial's folder"):
        source(tmp_path)(name)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ScheduleError, match="no such schedule file"):
        source(tmp_path)("none.jsonl")
