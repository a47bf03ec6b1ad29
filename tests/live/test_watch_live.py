"""`overload watch` as a process of its own: it follows a log over a rotation, serves metrics, and ends at the alert."""

import subprocess
import sys
import urllib.request

import pytest

from tests.unit.test_watch import clf

pytestmark = [pytest.mark.live, pytest.mark.untimed]


def test_it_follows_a_rotation_and_ends_at_the_alert(tmp_path):
    log = tmp_path / "access.log"
    log.write_text("".join(clf(at) for at in range(20)))
    options = "--every 100ms --window 1m --least-calls 20 --share 50 --metrics-port 0 --fail --json"
    command = [sys.executable, "-m", "harness", "watch", str(log), *options.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            address = watch.stderr.readline().split()[-1]
            assert '"offered":20' in watch.stdout.readline()
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert 'overload_offered_total{source="log",tenant="a"} 20\n' in answer.read().decode()
            log.rename(tmp_path / "access.log.1")
            log.write_text("".join(clf(20 + at // 2, status=503 if at % 4 == 0 else 200) for at in range(60)))
            looks = watch.stdout.read().splitlines()  # to its end: it ends by itself
            assert watch.wait(timeout=30) == 1
            assert '"began":true' in looks[-1]
            assert '"lines":80' in looks[-1]
        finally:
            watch.kill()
