"""Mutation testing of the checks: is there a test that says so when a line of a check is wrong?

    python -m benchmarks.mutants plan                                    how many mutants each module has
    python -m benchmarks.mutants run --only measure                      all of harness/measure
    python -m benchmarks.mutants run --only checks/v07,checks/max_min    by the beginning of a module's path
    python -m benchmarks.mutants run --only checks --share 0.2 --seed 1  a random fifth of each module
    python -m benchmarks.mutants table                                   made, killed, survived, justified
    python -m benchmarks.mutants survivors --only checks/v07             what nothing noticed, to be read

A mutant is the code with one small thing wrong: `<` for `<=`, a condition negated, 6 for 5, a call left out
(benchmarks/mutants/operators.py). It is killed by the first that notices: a unit or property test of checks and
measures, or a cell of the kill matrix, as its profile is written, whose verdicts are no longer right. One that nothing
kills is a rule that nothing holds, or of a kind that benchmarks/mutants/justified/ names.

Made cheap: tests are collected once, a mutant lives in a fork of that process, only the tests that run its line are
run, and each trial in virtual time is simulated once, kept, and judged again. Source: R. A. DeMillo, R. J. Lipton and
F. G. Sayward, Hints on Test Data Selection, Computer 11(4), 1978. It never writes to the code that it mutates.
"""
