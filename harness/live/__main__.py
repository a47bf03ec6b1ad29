"""`python -m harness.live --trial DIR`: one trial, driven as a child process.

    reads   DIR/manifest.json, and on standard input one line {"epoch_monotonic_ns": n}
    writes  DIR/calls.jsonl, and on standard output one JSON object a line: ready, progress (twice a second), done

SIGINT or SIGTERM: no new call, drain, write, `done` says interrupted; a second one ends at once. End of standard input:
the parent is gone; ends at once. Exit code 0 whenever `done` was written, 2 if nothing could be begun.
"""

from __future__ import annotations

import sys

import locust  # noqa: F401  (first: it patches the standard library, and later imports must find it patched)

from harness.live.child import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
