"""The campaign that measures the judge: how often its checks are wrong, and how small a breach they see.

    python -m benchmarks.judge run                        the campaign; Ctrl-C at any time, run again to go on
    python -m benchmarks.judge run --hours 0.2 --only v07.retry_after
    python -m benchmarks.judge plan                       what is still to do, and about how long that takes
    python -m benchmarks.judge table                      writes the tables of docs/trust.md
    python -m benchmarks.judge show 'healthy|v04|-|x1|17'  one trial again, with its verdicts

A trial is a cell (cells.py); what came of it is one line of `benchmarks/results/judge.jsonl` (record.py), which is only
ever appended to and is not kept in git: the tables are. A line carries a fingerprint of all code that can change a
verdict; lines of other code are not counted, and their cells are run again.
"""
