"""The lab: the worked example with every input exposed, as a page of this machine alone (docs/lab.md).

    inputs.py   what the fields say -> a profile, and its problems -> the fields
    run.py      a profile -> the whole simulated trial in memory: table, series, verdicts, decision trace
    server.py   loopback only: the page, and the JSON that it asks for
    page.py     the page's HTML; assets/: its scripts and style

What the page shows comes from the simulator of `overload simulate`. There is no model in JavaScript, and nothing is
written to a disk or loaded from elsewhere.
"""
