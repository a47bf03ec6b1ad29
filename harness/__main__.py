"""`python -m harness` is `overload`."""

from harness.cli import main

main()
