"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conftest import volts
from rigline import _target
from rigline.pytest_plugin import Measurement

TEN_LINES = """
import pytest

@pytest.mark.rig("power", "measure", channels="3V3")
def test_3v3(rig, measure):
    rig.power(rail="3V3", on=True)
    reading = rig.measure(channel="3V3")
    measure("3V3", reading.number("volts"), "V", low=3.135, high=3.465)

def test_led(rig):
    assert rig.gpio_read(pin="LED")["high"] in (True, False)
"""


def run(pytester: pytest.Pytester, target: str, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--rigline-target={target}", *args)


def test_ten_lines_against_the_simulated_rig(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEN_LINES)
    result = run(pytester, "sim", "-v", "--junitxml=report.xml")
    result.assert_outcomes(passed=2)
    result.stdout.re_match_lines([r"rigline: rig \S+ at sim, board SIM-\d+, firmware", r".*test_3v3  3V3 3\.\d+ V \[3\.135 … 3\.465\] pass"])
    case = ElementTree.parse(pytester.path / "report.xml").find(".//testcase[@name='test_3v3']")
    assert case is not None
    properties = {found.get("name"): found.get("value", "") for found in case.iter("property")}
    assert properties["measurement 3V3"].endswith("V [3.135 … 3.465] pass")
    assert properties["rig"].startswith("rig ")


def test_ten_lines_against_the_emulated_board(pytester: pytest.Pytester, emulated: str) -> None:
    pytester.makepyfile(TEN_LINES)
    run(pytester, emulated).assert_outcomes(passed=2)
    assert volts(emulated, wait=10) < 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux")
def test_a_rig_of_the_lab_is_this_runs_alone_and_free_and_safe_afterwards(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "lab"
    lab.mkdir(mode=0o700)
    (lab / "rigs.toml").write_text("[[rig]]\nname = 'r1'\ntarget = 'sim'\ntags = { board = 'sim' }\n")
    monkeypatch.setenv("RIGLINE_LAB_DIR", str(lab))

    def rigline(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([_target.find_binary(), *args], capture_output=True, text=True, timeout=60)

    try:
        pytester.makepyfile(
            TEN_LINES
            + """
def test_nobody_else_has_it(rig):
    import subprocess
    from rigline import _target
    other = subprocess.run([_target.find_binary(), "lock", "rig:r1", "--", "true"], capture_output=True, text=True)
    assert other.returncode == 3 and " has r1 for " in other.stderr, other
"""
        )
        run(pytester, "rig:board=sim").assert_outcomes(passed=3)
        # It waits for the last one's safe state only.
        free = rigline("lock", "rig:r1", "--wait", "20s", "--", _target.find_binary(), "call", "rig:r1", "measure", "channel=3V3")
        assert free.returncode == 0 and "3V3 is at 0." in free.stdout, free
        # Within a lock, pytest joins its lease.
        inside = rigline("lock", "rig:r1", "--wait", "20s", "--", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rigline-target=rig:r1", "-k", "3v3", str(pytester.path))
        assert inside.returncode == 0 and "1 passed" in inside.stdout, inside
        wrong = run(pytester, "rig:board=pico")
        assert wrong.ret != 0 and "the nearest tags: board=sim" in str(wrong.outlines + wrong.errlines)
    finally:
        status = json.loads(rigline("lab", "status", "--json").stdout)
        os.kill(status["agent"]["pid"], signal.SIGKILL)


VERDICTS = """
import pytest, rigline

def test_limits(rig, measure):
    measure("AUX", rig.measure(channel="AUX").number("volts"), "V", 1, 2)
def test_operation(rig):
    rig.wait_for(channel="3V3", min=9, max=10, within_ms=5)
def test_assertion(rig):
    assert rig.measure(channel="3V3")["volts"] > 3
def test_refused(rig):
    rig.measure(channel="nope")
def test_lost(rig):
    rig.cancel()
    raise rigline.ConnectionLost("unplugged")
def test_timeout(rig):
    rig.wait_for(channel="3V3", min=9, max=10, within_ms=5000, timeout=0.1)
def test_expected(rig):
    with pytest.raises(rigline.BadArguments):
        rig.measure(channel="nope")
def test_nan(measure):
    measure("n", float("nan"))
def test_text(measure):
    measure("n", "3.3")
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_the_rigs_faults_are_errors_and_the_boards_are_failures(pytester: pytest.Pytester, workers: Any) -> None:
    pytester.makepyfile(VERDICTS)
    result = run(pytester, "sim", "--junitxml=report.xml", "-ra", *workers)
    result.assert_outcomes(failed=5, errors=3, passed=1)
    assert result.ret == 1
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "report.xml").iter("testcase")}
    errors = {name for name, case in cases.items() if case.find("error") is not None}
    failures = {name for name, case in cases.items() if case.find("failure") is not None}
    assert errors == {"test_refused", "test_lost", "test_timeout"}
    assert failures == {"test_limits", "test_operation", "test_assertion", "test_nan", "test_text"}
    output = result.stdout.str()
    assert '> {"jsonrpc":"2.0","id":' in output
    assert "waiting for 3V3 to be from 9.000" in output
    assert "AUX 0.00" in output and "V [1 … 2] FAIL" in output


ODD = r"""
import decimal, fractions, pytest

def test_name(measure):
    measure("a\x1b[31m\ufffe\u202e\u2028b\nc", 1, "V\n\x00", low=1)
def test_close(measure):
    measure("close", decimal.Decimal("3.465000000000000000001"), "V", low=1, high=3.465)
def test_close_float(measure):
    measure("float", 0.1 + 0.2, high=0.3)
def test_fraction(measure):
    measure("fraction", fractions.Fraction(1, 3), high=1)
    measure("huge", 10**400)
@pytest.mark.rig(version=0.1)
def test_version(rig): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_odd_names_and_numbers_keep_the_report_readable(pytester: pytest.Pytester, workers: Any) -> None:
    pytester.makepyfile(ODD)
    result = run(pytester, "sim", "--junitxml=report.xml", "-v", *workers)
    result.assert_outcomes(passed=2, failed=2, errors=1)
    report = ElementTree.parse(pytester.path / "report.xml")
    shown = {found.get("name"): found.get("value") for found in report.iter("property")}
    assert shown["measurement a\\x1b[31m\\ufffe\\u202e\\u2028b c"] == "1 V \\x00 [1 …] pass"
    assert shown["measurement close"] == "3.465000000000000000001 V [1 … 3.465] FAIL"
    assert shown["measurement float"] == "0.30000000000000004 [… 0.3] FAIL"
    assert shown["measurement fraction"] == "0.3333333333 [… 1] pass"
    result.stdout.fnmatch_lines(["*the version that a test needs is a string such as*not 0.1*"])


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_rig_that_is_not_there_is_an_error_and_never_green(pytester: pytest.Pytester, workers: Any) -> None:
    pytester.makepyfile("def test_a(rig): pass\n@__import__('pytest').mark.rig('power')\ndef test_b(): pass")
    result = run(pytester, "tcp:127.0.0.1:1", *workers)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*tcp:127.0.0.1:1 cannot be reached: *"])


def test_without_a_target_the_error_says_how_to_name_one(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RIGLINE_TARGET", raising=False)
    pytester.makepyfile("def test_a(rig): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no target: use --rigline-target TARGET, such as serial:auto*"])
    assert "rigline:" not in result.stdout.str().split("collected")[0].replace("plugins: ", "")


def test_the_marker_skips_or_with_strict_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.rig("power", name="rig", version=">=0.0.1, <99", rails=["3V3", "5V0"])
        def test_there(rig): pass
        @pytest.mark.rig("fly")
        def test_operation(): pass
        @pytest.mark.rig(channels=["12V"])
        def test_channel(): pass
        @pytest.mark.rig(version=">=99")
        def test_version(): pass
        @pytest.mark.rig(name="other")
        def test_name(): pass
        @pytest.mark.rig(lasers=1)
        def test_fact(): pass
        """
    )
    result = run(pytester, "sim", "-rs")
    result.assert_outcomes(passed=1, skipped=5)
    result.stdout.fnmatch_lines_random(
        [
            "*rig: rig has no operation 'fly'",
            "*rig: '12V' is not among its channels (3V3, 5V0, AUX, TEMP)",
            "*rig: its version is *, and not >=99",
            "*rig: its name is 'rig', and not 'other'",
            "*rig: it does not list its lasers",
        ]
    )
    run(pytester, "sim", "--rigline-strict").assert_outcomes(passed=1, errors=5)


SCOPES = """
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_on(rig, n):
    volts = rig.measure(channel="3V3").number("volts")
    rig.power(rail="3V3", on=True)
    print(f"[{volts:.1f}]")
"""


@pytest.mark.parametrize("scope, seen", [("session", 3), ("module", 2), ("function", 0)])
def test_the_scope_says_what_shares_a_session(pytester: pytest.Pytester, scope: str, seen: int) -> None:
    pytester.makepyfile(test_one=SCOPES, test_two=SCOPES)
    result = run(pytester, "sim", f"--rigline-scope={scope}", "-s")
    result.assert_outcomes(passed=4)
    assert result.stdout.str().count("[3.3]") == seen


QUEUE = """
import time, pytest
@pytest.mark.parametrize("n", range(4))
def test_alone(rig, n):
    assert rig.measure(channel="3V3").number("volts") < 0.5 or n
    rig.power(rail="3V3", on=True)
    time.sleep(0.1)
    assert rig.measure(channel="3V3").number("volts") > 3
    rig.power(rail="3V3", on=False)
"""


def test_xdist_workers_take_turns_with_one_rig(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile(test_a=QUEUE, test_b=QUEUE, test_c=QUEUE)
    run(pytester, served, "-n3").assert_outcomes(passed=12)
    assert volts(served) < 0.5


def test_another_run_waits_for_the_rig_and_says_who_has_it(pytester: pytest.Pytester, served: str) -> None:
    holding = pytester.makepyfile(test_hold="import time\ndef test_hold(rig):\n    print('held', flush=True)\n    time.sleep(60)")
    holder = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", f"--rigline-target={served}", str(holding)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        for line in holder.stdout:
            if "held" in line:
                break
        waiting = pytester.makepyfile(test_wait="def test_wait(rig): pass")
        result = run(pytester, served, "--rigline-wait=0.3", str(waiting))
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([f"*is in use by another test run (process {holder.pid})*"])
    finally:
        holder.kill()
        holder.communicate()
    # The lock goes with its holder.
    run(pytester, served, "--rigline-wait=5", str(waiting)).assert_outcomes(passed=1)


def test_with_x_outputs_end_safe(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile("def test_a(rig):\n    rig.power(rail='3V3', on=True)\n    assert 0\ndef test_b(rig): pass")
    run(pytester, served, "-x").assert_outcomes(failed=1)
    assert volts(served) < 0.5


ENDLESS = """
def test_endless(rig):
    rig.power(rail="3V3", on=True)
    open("on", "w").close()
    rig.wait_for(channel="3V3", min=9, max=10, within_ms=60000, timeout=90)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("where", ["served", "emulated"])
def test_a_killed_run_ends_safe(pytester: pytest.Pytester, request: pytest.FixtureRequest, number: int, where: str) -> None:
    target = request.getfixturevalue(where)
    pytester.makepyfile(ENDLESS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rigline-target={target}"]
    process = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 30
    while not (pytester.path / "on").exists():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=30)
    # Asked by a second connection.
    assert volts(target, wait=20) < 0.5


def test_a_worker_that_crashes_leaves_outputs_off(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile("import os\ndef test_crash(rig):\n    rig.power(rail='3V3', on=True)\n    os._exit(9)\ndef test_after(rig): pass")
    result = run(pytester, served, "-n1")
    result.assert_outcomes(failed=1, passed=1)
    assert volts(served) < 0.5


def test_bad_options_are_usage_errors(pytester: pytest.Pytester) -> None:
    for option in ("--rigline-config={", "--rigline-config=[1]", "--rigline-scope=planet"):
        result = run(pytester, "sim", option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_value_on_its_limit_is_within_whatever_the_types_are() -> None:
    limits = [(3.135, 3.465), (Decimal("3.135"), Decimal("3.465")), (3, 3.465)]
    for low, high in limits:
        for value, passed in [
            (Decimal("3.465"), True),
            (3.465, True),
            (Decimal("3.4650000000000000001"), False),
            (Decimal("3.135"), True),
            (Decimal("2.999"), False),
            (Decimal("NaN"), False),
        ]:
            assert Measurement("v", value, "V", low, high).passed is passed, (value, low, high)
