"""What the pytest plugin leaves of a run: verdicts in each report, measurements, logs, recordings."""

from __future__ import annotations

import base64
import csv
import html
import json
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

import rigline
from conftest import Script
from rigline import _target
from rigline.pytest_plugin import Measurement, MeasurementFailed
from rigline.result import Reading


def run(pytester: pytest.Pytester, target: str, *args: str) -> pytest.RunResult:
    options = [f"--rigline-target={target}"] if target else []
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, *args)


def junit(pytester: pytest.Pytester) -> Dict[str, Tuple[str, Dict[str, str], str]]:
    """Of each test case: its verdict, its properties, and the message of its fault."""
    cases = {}
    for case in ElementTree.parse(pytester.path / "report.xml").iter("testcase"):
        verdict = next((found for found in ("error", "failure", "skipped") if case.find(found) is not None), "passed")
        fault = case.find(verdict)
        properties = {found.get("name", ""): found.get("value", "") for found in case.iter("property")}
        cases[str(case.get("name"))] = (verdict, properties, "" if fault is None else str(fault.get("message")))
    return cases


def allure(pytester: pytest.Pytester) -> Dict[str, Dict[str, Any]]:
    """Allure's result of each test, with the texts of its attachments."""
    results = {}
    for path in (pytester.path / "allure").glob("*-result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["texts"] = {
            attachment["name"]: (pytester.path / "allure" / attachment["source"]).read_text("utf-8", "replace")
            for attachment in result.get("attachments", [])
        }
        results[result["name"]] = result
    return results


XFAIL = """
import pytest, rigline

@pytest.mark.xfail
def test_refused(rig):
    rig.measure(channel="nope")
@pytest.mark.xfail(raises=rigline.RigError, strict=True)
def test_named(rig):
    rig.measure(channel="nope")
@pytest.fixture
def broken(rig):
    rig.measure(channel="nope")
@pytest.mark.xfail
def test_setup(broken): pass
@pytest.fixture
def breaks(rig):
    yield
    rig.measure(channel="nope")
@pytest.mark.xfail
def test_teardown(breaks):
    assert 0
@pytest.mark.xfail
def test_board(rig, measure):
    measure("n", 5, high=1)
@pytest.mark.xfail
def test_soft(measure):
    measure("n", 5, high=1, soft=True)
@pytest.mark.xfail
def test_passes(rig): pass
class RigGroup(rigline.RiglineError): pass
@pytest.mark.xfail
def test_group(rig):
    class Group(Exception):
        exceptions = [rigline.ConnectionLost("gone"), rigline.CallTimeout("late")]
    raise Group
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_a_rig_error_in_a_test_that_is_expected_to_fail_is_an_error(pytester: pytest.Pytester, workers: Any) -> None:
    # pytest-dev/pytest#8665
    pytester.makepyfile(XFAIL)
    result = run(pytester, "sim", "--junitxml=report.xml", "--alluredir=allure", *workers)
    result.assert_outcomes(errors=5, xfailed=3, xpassed=1)
    assert result.ret == 1
    cases = junit(pytester)
    rigs = {"test_refused", "test_named", "test_setup", "test_teardown", "test_group"}
    assert {name for name, (verdict, _, _) in cases.items() if verdict == "error"} >= rigs - {"test_teardown"}
    found = {name: result["status"] for name, result in allure(pytester).items()}
    assert {found[name] for name in rigs - {"test_teardown"}} == {"broken"}
    assert {found["test_board"], found["test_soft"]} == {"skipped"}, "as Allure shows an expected failure"


def test_a_rig_that_is_not_there_is_an_error_also_where_a_failure_is_expected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.xfail\ndef test_a(rig): pass")
    run(pytester, "tcp:127.0.0.1:1", "--rigline-wait=0").assert_outcomes(errors=1)


BODY = """
import pytest

def test_body(rig):
    rig.measure(channel="nope")
@pytest.fixture
def fails(rig, measure):
    measure("supply", 9, "V", high=1)
def test_fixture(fails): pass
@pytest.fixture
def refuses(rig):
    rig.wait_for(channel="3V3", min=9, max=10, within_ms=5)
def test_operation_of_a_fixture(refuses): pass
"""


def test_the_heading_of_an_error_names_the_phase_it_was_in(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BODY)
    result = run(pytester, "sim", "--junitxml=report.xml", "--html=report.html", "--self-contained-html")
    # A fixture that finds a fault of the board is a failure, too.
    result.assert_outcomes(errors=1, failed=2)
    result.stdout.fnmatch_lines(["*ERROR at call of test_body*", "*rig error*"])
    assert "ERROR at setup" not in result.stdout.str()
    verdict, _, message = junit(pytester)["test_body"]
    assert (verdict, message.startswith("rigline.errors.")) == ("error", True), message
    assert [junit(pytester)[name][0] for name in ("test_fixture", "test_operation_of_a_fixture")] == ["failure"] * 2
    page = (pytester.path / "report.html").read_text("utf-8")
    [blob] = re.findall('data-jsonblob="([^"]*)"', page)
    rows = {name.rpartition("::")[2]: row[0] for name, row in json.loads(html.unescape(blob))["tests"].items()}
    assert {name: row["result"] for name, row in rows.items()} == {
        "test_body": "Error",
        "test_fixture": "Failed",
        "test_operation_of_a_fixture": "Failed",
    }
    [extra] = rows["test_fixture"]["extras"]
    shown = base64.b64decode(extra["content"].rpartition(",")[2]).decode("utf-8")
    assert (extra["name"], shown) == ("measurements", "supply 9 V [… 1] FAIL")


RERUN = """
attempts = []
def test_flaky(rig, measure, record_property):
    attempts.append(1)
    record_property("own", len(attempts))
    measure("first" if len(attempts) == 1 else "second", len(attempts), high=5)
    measure("3V3", 9 if len(attempts) < 3 else 1, "V", high=5)
"""


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "xdist"])
def test_each_attempt_has_its_own_measurements(pytester: pytest.Pytester, workers: Any) -> None:
    # pytest-dev/pytest-html#374
    pytester.makepyfile(RERUN)
    result = run(pytester, "sim", "--reruns=3", "--junitxml=report.xml", "--rigline-logs=logs", "-v", *workers)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*2 rerun*"])
    _, properties, _ = junit(pytester)["test_flaky"]
    assert properties["measurement.3V3.value"] == "1" and properties["measurement.3V3.verdict"] == "pass"
    assert "measurement.first.value" not in properties and not any("#" in name for name in properties)
    result.stdout.fnmatch_lines(
        ["*test_flaky (attempt 1)  first 1 *", "*test_flaky (attempt 1)  3V3 9 V * FAIL", "*(attempt 2)  second 2 *"]
        + ["*(attempt 3)  second 3 *", "*(attempt 3)  3V3 1 V * pass"]
    )
    log = next((pytester.path / "logs").rglob("*.log")).read_text("utf-8")
    parts = re.split(r"(?m)^.* attempt \d+, .*$", log)[1:]
    assert ["first" in part for part in parts] == [True, False, False]
    assert ["call passed" in part for part in parts] == [False, False, True]


ALLURE = """
import rigline, pytest
def test_board(rig):
    rig.wait_for(channel="3V3", min=9, max=10, within_ms=5)
def test_limit(rig, measure):
    rig.power(rail="3V3", on=True)
    measure("3V3", rig.measure(channel="3V3").number("volts"), "V", low=5)
def test_rig(rig):
    rig.measure(channel="nope")
def test_pass(rig, measure):
    measure("3V3", rig.measure(channel="3V3").number("volts"), "V")
    measure.attach("scope.csv", "t,v\\n0,1\\n")
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_allure_has_a_boards_fault_as_failed_and_a_rigs_as_broken_with_the_evidence(
    pytester: pytest.Pytester, workers: Any
) -> None:
    pytester.makepyfile(ALLURE)
    run(pytester, "sim", "--alluredir=allure", *workers).assert_outcomes(failed=2, errors=1, passed=1)
    results = allure(pytester)
    assert {name: result["status"] for name, result in results.items()} == {
        "test_board": "failed",
        "test_limit": "failed",
        "test_rig": "broken",
        "test_pass": "passed",
    }
    texts = results["test_limit"]["texts"]
    [row] = list(csv.DictReader(texts["measurements"].splitlines()))
    assert (row["name"], row["unit"], row["low"], row["verdict"]) == ("3V3", "V", "5", "fail")
    assert "switching 3V3 on" in texts["rig log"] and '"operation":"measure"' in texts["rig traffic"]
    assert results["test_pass"]["texts"]["scope.csv"] == "t,v\n0,1\n"


SOFT = """
import pytest
def test_goes_on(rig, measure):
    measure("a", 9, "V", high=1, soft=True)
    measure("b", 1, "V", high=1, soft=True)
    measure("c", 7, "A", high=2, soft=True)
    print("the end")
def test_then_hard(measure):
    measure("a", 9, high=1, soft=True)
    measure("b", 9, high=2)
def test_then_the_rig(rig, measure):
    measure("a", 9, high=1, soft=True)
    rig.measure(channel="nope")
def test_then_skipped(measure):
    measure("a", 9, high=1, soft=True)
    pytest.skip("no more")
def test_then_asserted(measure):
    measure("a", 9, high=1, soft=True)
    assert False, "other"
def test_all_is_well(measure):
    assert measure("a", 1, high=1, soft=True).passed
"""


def test_soft_limits_are_collected_at_the_end(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SOFT)
    result = run(pytester, "sim", "--junitxml=report.xml")
    # What was measured is certain, whatever came after it.
    result.assert_outcomes(failed=5, passed=1)
    cases = junit(pytester)
    assert "a 9 V [… 1] FAIL" in cases["test_goes_on"][2] and "c 7 A [… 2] FAIL" in cases["test_goes_on"][2]
    assert cases["test_goes_on"][1]["measurement.b.verdict"] == "pass"
    assert "a 9 [… 1] FAIL" in cases["test_then_hard"][2] and "b 9 [… 2] FAIL" in cases["test_then_hard"][2]
    assert "a 9 [… 1] FAIL" in cases["test_then_the_rig"][2]
    assert cases["test_then_asserted"][1]["measurement.a.verdict"] == "fail"
    output = result.stdout.str()
    assert "the end" in output
    assert "'nope'" in output or '"nope"' in output, "the rig's fault is named, too"


MARGINAL = """
import pytest
@pytest.mark.parametrize("value", [3.0, 3.1, 3.15, 3.2, 3.3, 3.4, 3.45, 3.465, 3.5])
def test_it(measure, value):
    measure("3V3", value, "V", low=3.1, high=3.465, marginal_low=3.2, marginal_high=3.4)
"""


def test_a_value_beyond_its_marginal_limits_passes_and_is_marked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARGINAL)
    result = run(pytester, "", "--junitxml=report.xml")
    result.assert_outcomes(passed=7, failed=2)
    verdicts = [properties["measurement.3V3.verdict"] for _, properties, _ in junit(pytester).values()]
    assert verdicts == ["fail", "marginal", "marginal", "pass", "pass", "pass", "marginal", "marginal", "fail"]
    # They are shown without -v, too.
    result.stdout.fnmatch_lines(["*3V3 3.15 V [[]3.1 … 3.465] marginal (beyond [[]3.2 … 3.4])*"])


TEXTS = r"""
import pytest
def test_text(measure):
    measure.text("firmware", "1.2.3", matches=r"1\.\d+\.\d+")
    measure.text("anything", "x\x1b[2J")
    measure.text("board", "rev-b", equals="rev-a", soft=True)
    measure.text("state", "on", one_of=["on", "off"])
    measure.text("whole", "12 and more", matches=r"\d+", soft=True)
def test_list(measure):
    measure.values("ripple", [3.3, 3.31, 3.29], "V", low=3.2, high=3.4)
    measure.values("trace", [1, 2, 9, 8], "V", high=5, soft=True)
    measure.values("empty", [], "V", soft=True)
    measure.values("nan", [1, float("nan")], soft=True)
    measure.values("many", range(100), high=99)
def test_wrong(measure):
    for wrong in [
        lambda: measure.text("t", 5), lambda: measure.text("t", "x", one_of="xyz"), lambda: measure.values("v", "123"),
        lambda: measure.values("v", [1, "2"]), lambda: measure("n", "3.3", low=1), lambda: measure("n", True),
        lambda: measure.attach("a", 5),
    ]:
        with pytest.raises(TypeError):
            wrong()
    for low, high in [(2, 1), (float("nan"), None), (None, float("inf"))]:
        with pytest.raises(ValueError):
            measure("n", 1, low=low, high=high)
    with pytest.raises(ValueError, match="marginal_low is 1, which is above marginal_high, 0"):
        measure("n", 1, marginal_low=1, marginal_high=0)
"""


def test_texts_and_lists_are_measurements(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEXTS)
    result = run(pytester, "", "--junitxml=report.xml", "-v")
    result.assert_outcomes(failed=2, passed=1)
    cases = junit(pytester)
    text, several = cases["test_text"][1], cases["test_list"][1]
    verdicts = {name: text[f"measurement.{name}.verdict"] for name in ("firmware", "anything", "board", "state", "whole")}
    assert verdicts == {"firmware": "pass", "anything": "pass", "board": "fail", "state": "pass", "whole": "fail"}
    assert text["measurement.board.value"] == "rev-b" and text["measurement.board.expected"] == "equals 'rev-a'"
    assert several["measurement.ripple.value"] == "3.3, 3.31, 3.29" and several["measurement.ripple.verdict"] == "pass"
    assert {name: several[f"measurement.{name}.verdict"] for name in ("trace", "empty", "nan", "many")} == {
        "trace": "fail",
        "empty": "fail",
        "nan": "fail",
        "many": "pass",
    }
    assert "trace 1, 2, 9, 8 V [… 5] FAIL, number 3 is 9" in cases["test_list"][2]


@pytest.mark.parametrize(
    "value, low, high, passed",
    [
        (float("inf"), 3, None, False),
        (float("-inf"), None, 3, False),
        (float("inf"), None, None, False),
        (float("nan"), None, None, False),
        (Decimal("Infinity"), 3, None, False),
        (Decimal("sNaN"), 3, None, False),
        (Reading(3.465, "3.4650000000000000001"), None, 3.465, False),
        (Reading(3.465, "3.465"), None, 3.465, True),
        (Reading(0.1, "1e-1"), 0.1, 0.1, True),
        (Fraction(1, 3), Fraction(1, 3), Fraction(1, 3), True),
        (Fraction(1, 3), Decimal("0.3333"), Decimal("0.3334"), True),
        (10**400, 10**399, None, True),
    ],
)
def test_a_number_is_judged_as_in_an_eval(value: Any, low: Any, high: Any, passed: bool) -> None:
    assert Measurement("v", value, "V", low, high).passed is passed


DIGITS = """
def test_digits(rig, measure):
    result = rig.op()
    measure("number", result.number("volts"), "V", low=3.1, high=3.5)
    measure("value", result["volts"], "V")
    measure("decimal", result.decimal("volts"), "V")
    measure("integer", result.integer("count"))
    measure("computed", result.number("volts") * 2, "V")
    measure("same", 1)
    measure("same", 2)
"""


def test_the_digits_of_the_device_are_those_of_the_reports(pytester: pytest.Pytester, script: Script) -> None:
    target = script.target("reply(request, outputs={'volts': '3.300', 'count': '9007199254740993'})")
    pytester.makepyfile(DIGITS)
    result = run(pytester, target, "-v", "--junitxml=report.xml")
    result.assert_outcomes(passed=1)
    _, properties, _ = junit(pytester)["test_digits"]
    found = {name: properties[f"measurement.{name}.value"] for name in ("number", "value", "decimal", "integer", "computed")}
    assert found == dict(number="3.300", value="3.300", decimal="3.300", integer="9007199254740993", computed="6.6")
    parts = {part: properties[f"measurement.number.{part}"] for part in ("unit", "low", "high", "verdict")}
    assert parts == {"unit": "V", "low": "3.1", "high": "3.5", "verdict": "pass"}
    assert (properties["measurement.same.value"], properties["measurement.same#2.value"]) == ("1", "2")
    result.stdout.fnmatch_lines(["*number 3.300 V [[]3.1 … 3.5] pass"])


def test_a_reading_is_a_float_that_survives_another_process() -> None:
    import copy
    import pickle

    reading = Reading(3.3, "3.300")
    for again in (pickle.loads(pickle.dumps(reading)), copy.deepcopy(reading)):
        assert (again, again.text, type(again)) == (3.3, "3.300", Reading)
    assert repr(reading) == "3.3" and json.dumps(reading) == "3.3" and math.isclose(reading + 1, 4.3)
    failed = MeasurementFailed(Measurement("a", 1, high=0), Measurement("b", 2, high=0))
    assert str(pickle.loads(pickle.dumps(failed))) == str(failed)


def test_the_header_does_not_open_a_rig_that_no_test_needs(pytester: pytest.Pytester, script: Script) -> None:
    opened = pytester.path / "opened"
    target = script.target("reply(request)", operations=f"(open({str(opened)!r}, 'a').close() or {{}})")
    pytester.makepyfile("def test_a(): pass")
    result = run(pytester, target)
    result.assert_outcomes(passed=1)
    assert not opened.exists()
    result.stdout.fnmatch_lines([f"rigline: {target}"])
    pytester.makepyfile("def test_a(rig): pass")
    result = run(pytester, target)
    result.assert_outcomes(passed=1)
    assert opened.exists()
    result.stdout.fnmatch_lines([f"rigline: script 1.2.3 at {target}"])


def test_a_log_is_written_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("name", ["a/b", "a:b", "x" * 300])
        def test_names(rig, measure, name):
            rig.power(rail="3V3", on=True)
            measure("3V3", rig.measure(channel="3V3").number("volts"), "V", high=5)
        def test_fails(rig):
            rig.measure(channel="nope")
        class TestIt:
            def test_attaches(self, measure, tmp_path):
                (tmp_path / "photo.png").write_bytes(bytes(range(256)))
                measure.attach("photo.png", tmp_path / "photo.png")
                measure.attach("photo.png", b"another")
                measure.attach("../../evil\\n", "text")
        def test_crashes(rig):
            rig.power(rail="3V3", on=True)
            import os; os._exit(7)
        """
    )
    run(pytester, "sim", "--rigline-logs=logs", "--junitxml=report.xml", "-n1")
    folder = pytester.path / "logs"
    logs = {path.name: path.read_text("utf-8") for path in folder.rglob("*.log")}
    assert len(logs) == 6 and all(path.resolve().is_relative_to(folder) for path in folder.rglob("*"))
    for name in [name for name in logs if name.startswith("test_names")]:
        assert "rig: rig " in logs[name] or "rig > " in logs[name]
        assert "switching 3V3 on" in logs[name] and "measurement 3V3 3." in logs[name] and "call passed" in logs[name]
    assert "call failed: measure: " in logs["test_fails.log"]
    assert "switching 3V3 on" in logs["test_crashes.log"], "also of a test that ends the interpreter"
    [attached] = folder.rglob("TestIt.test_attaches")
    found = {path.name: path.read_bytes() for path in attached.iterdir()}
    assert found["photo.png"] == bytes(range(256)) and found["photo-2.png"] == b"another" and len(found) == 3
    assert junit(pytester)["test_attaches"][1]["attachment.photo.png"].startswith(str(attached))


def test_without_a_rig_tests_are_skipped_if_asked_for(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RIGLINE_TARGET", raising=False)
    pytester.makepyfile("import pytest\ndef test_a(rig): pass\n@pytest.mark.rig('x')\ndef test_b(): pass\ndef test_c(): pass")
    for target in ("", "tcp:127.0.0.1:1", "serial:/dev/no-such-port", "exec:no-such-program"):
        wait = ("--rigline-wait=0",)
        run(pytester, target, "--rigline-missing=skip", *wait).assert_outcomes(skipped=2, passed=1)
        run(pytester, target, "--rigline-missing=error", *wait).assert_outcomes(errors=2, passed=1)
    # A target that is written wrong is a mistake, and no missing rig.
    run(pytester, "tcp:7000", "--rigline-missing=skip").assert_outcomes(errors=2, passed=1)


SEEN = """
import pytest
@pytest.mark.parametrize("n", [1, 2, 3])
def test_on(rig, n):
    volts = rig.measure(channel="3V3").number("volts")
    rig.power(rail="3V3", on=True)
    print(f"[{volts:.1f}]")
"""


def test_outputs_are_off_between_tests_where_asked_for(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile(SEEN)
    result = run(pytester, served, "-s")
    result.assert_outcomes(passed=3)
    assert result.stdout.str().count("[3.3]") == 2
    result = run(pytester, served, "-s", "--rigline-outputs-off")
    result.assert_outcomes(passed=3)
    assert result.stdout.str().count("[3.3]") == 0
    pytester.makeini("[pytest]\nrigline_outputs_off = true\n")
    result = run(pytester, served, "-s")
    assert result.stdout.str().count("[3.3]") == 0


RECORDED = """
def test_a(rig, measure):
    rig.power(rail="3V3", on=True)
    measure("3V3", rig.measure(channel="3V3").number("volts"), "V", 3, 4)
def test_b(rig, measure):
    measure("AUX", rig.measure(channel="AUX").number("volts"), "V")
"""


@pytest.mark.parametrize("scope", ["session", "module", "function"])
def test_a_recorded_run_replays_with_the_same_values(pytester: pytest.Pytester, scope: str) -> None:
    pytester.makepyfile(test_one=RECORDED, test_two=RECORDED)
    options = (f"--rigline-scope={scope}", "--junitxml=report.xml")
    run(pytester, "sim", "--rigline-record=evidence", *options).assert_outcomes(passed=4)
    first = junit(pytester)
    assert first["test_a"][1]["measurement.3V3.value"]
    run(pytester, "replay:evidence", *options).assert_outcomes(passed=4)
    values = [{name: text for name, text in case[1].items() if name != "rig"} for case in (first["test_a"], first["test_b"])]
    again = junit(pytester)
    assert [{name: text for name, text in again[test][1].items() if name != "rig"} for test in ("test_a", "test_b")] == values
    # One recording is a target as well, and what was not recorded is a rig error.
    one = sorted((pytester.path / "evidence").iterdir())[0]
    pytester.makepyfile(test_one="def test_a(rig): rig.self_test()", test_two="")
    run(pytester, f"replay:{one}", "--rigline-wait=1").assert_outcomes(errors=1)


def test_sessions_after_a_loss_have_recordings_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with rigline.connect("sim", record=folder) as rig:
        rig.power(rail="3V3", on=True)
        rig.make_safe()
        off = rig.measure(channel="3V3").text("volts")
    assert float(off) < 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "one-2"]
    with rigline.connect(f"replay:{folder}") as rig:
        rig.power(rail="3V3", on=True)
        rig.make_safe()
        assert rig.measure(channel="3V3").text("volts") == off


SEVERAL = """
def test_two(rig, rigs, measure):
    assert list(rigs) == ["psu", "load"]
    rigs["psu"].power(rail="3V3", on=True)
    measure("psu", rigs["psu"].measure(channel="3V3").number("volts"), "V", 3, 4)
    measure("load", rigs["load"].measure(channel="3V3").number("volts"), "V", high=1)
    assert rig.measure(channel="3V3").number("volts") < 1
    assert 0
def test_unknown(rigs):
    rigs["scope"]
def test_skipped(rigs): pass
"""


def test_a_test_may_use_several_rigs(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile(SEVERAL)
    rigs = ["--rigline-rig=psu=sim", f"--rigline-rig=load={served}"]
    result = run(pytester, "sim", *rigs, "--junitxml=report.xml", "--rigline-logs=logs")
    result.assert_outcomes(failed=1, errors=1, passed=1)
    output = result.stdout.str()
    assert "- psu log -" in output and "- load traffic -" in output and "known rigs: psu, load" in output
    _, properties, _ = junit(pytester)["test_two"]
    assert f" at {served}, board " in properties["rig.load"] and " at sim, board " in properties["rig.psu"]
    log = next(path for path in (pytester.path / "logs").rglob("test_two.log")).read_text("utf-8")
    assert "psu info  switching 3V3 on" in log and "load > " in log
    pytester.makeini(f"[pytest]\nrigline_rigs =\n    psu=sim\n    load={served}\n")
    run(pytester, "sim", "-k", "skipped").assert_outcomes(passed=1)
    for wrong in ("psu", "=sim", "psu=", "rig=sim"):
        assert run(pytester, "sim", f"--rigline-rig={wrong}").ret == pytest.ExitCode.USAGE_ERROR


HOLD = """
import time
def test_hold(rig):
    print("held", flush=True)
    time.sleep(120)
"""


def test_a_rig_is_one_whatever_it_is_called_and_whichever_program_uses_it(pytester: pytest.Pytester, served: str) -> None:
    # pyserial/pyserial#206
    port = served.rpartition(":")[2]
    names = [f"tcp:{host}:{port}" for host in ("localhost", "127.0.0.1", "[::ffff:127.0.0.1]")]
    holding = pytester.makepyfile(test_hold=HOLD)
    waiting = pytester.makepyfile(test_wait="def test_wait(rig): pass")
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", f"--rigline-target={names[0]}", str(holding)]
    holder = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert any("held" in line for line in holder.stdout)
        for name in names:
            result = run(pytester, name, "--rigline-wait=0.2", "--rigline-missing=skip", str(waiting))
            # A rig that is in use is there.
            result.assert_outcomes(errors=1)
            result.stdout.fnmatch_lines([f"*is in use by another test run (process {holder.pid})*"])
            with pytest.raises(rigline.RigBusy, match=f"process {holder.pid}"):
                rigline.connect(name)
            called = subprocess.run(
                [_target.find_binary(), "call", name, "measure", "channel=3V3"], capture_output=True, text=True
            )
            assert called.returncode == 3 and f" is in use by process {holder.pid} (" in called.stderr, called
    finally:
        holder.kill()
        holder.communicate()
    # The lock goes with its holder. Sessions that are not runs share a server; while there is one, a run has to wait.
    with rigline.connect(names[0], wait=10), rigline.connect(names[1]):
        run(pytester, names[2], "--rigline-wait=0.2", str(waiting)).assert_outcomes(errors=1)
    run(pytester, names[2], "--rigline-wait=10", str(waiting)).assert_outcomes(passed=1)


def test_a_test_may_connect_to_the_rig_that_its_run_has(pytester: pytest.Pytester, served: str) -> None:
    pytester.makepyfile(
        f"""
        import rigline
        def test_own(rig):
            with rigline.connect({served.replace("127.0.0.1", "localhost")!r}) as again:
                again.measure(channel="3V3")
            rig.measure(channel="3V3")
        """
    )
    run(pytester, served, "--rigline-wait=0").assert_outcomes(passed=1)
    # The recorded session goes through `rigline bridge`, which uses the rig for its holder.
    run(pytester, served, "--rigline-wait=0", "--rigline-record=evidence").assert_outcomes(passed=1)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_is_kept_of_a_test_is_this_users_only_also_where_it_was_there_before(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import rigline

        def test_it(rig, measure):
            rig.call("identify", context=rigline.Context(env={"TOKEN": "s3cret"}))
            measure.attach("note.txt", "s3cret")
        """
    )
    for _ in range(2):
        run(pytester, "sim", "--rigline-logs=logs")
        files = [path for path in (pytester.path / "logs").rglob("*") if path.is_file()]
        assert len(files) == 2
        assert any("s3cret" in path.read_text() for path in files), "there is something to protect"
        for path in files:
            assert path.stat().st_mode & 0o777 == 0o600, path
            # As one of an earlier version.
            path.chmod(0o644)
