"""The pytest plugin: the fixtures ``rig`` and ``measure``, and the marker ``rig``.

What the board under test does wrong is a *failure*: an assertion, a measurement out of its limits, an operation that says that it
failed. What the rig does wrong is an *error*: it cannot be reached, does not answer in time, or refuses a call.
"""

from __future__ import annotations

import json
import numbers
import os
import re
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Dict, Generator, Iterator, List, Mapping, Optional, Protocol, Tuple, Union

import pytest

from . import _json
from ._lock import RigLock
from .client import Rig, connect
from .errors import ConnectFailed, RigError, RiglineError
from .result import Log

_SCOPES = ("session", "package", "module", "class", "function")
_SHOWN_TRAFFIC = 60


@dataclass(frozen=True)
class Measurement:
    """A value that was measured, and its limits."""

    name: str
    value: Union[int, float, Decimal]
    unit: str = ""
    low: Optional[float] = None
    high: Optional[float] = None

    @property
    def passed(self) -> bool:
        """Whether the value is within its limits, which count as within."""
        if self.value != self.value:
            # NaN.
            return False
        return (self.low is None or _is_at_most(self.low, self.value)) and (
            self.high is None or _is_at_most(self.value, self.high)
        )

    @property
    def shown(self) -> str:
        """Value, limits and verdict."""
        limits = ""
        value = _digits(self.value)
        if self.low is not None or self.high is not None:
            low, high = ("" if limit is None else _digits(limit) for limit in (self.low, self.high))
            limits = f" [{low} … {high}]".replace("[ ", "[").replace(" ]", "]")
            if not self.passed and value in (low, high):
                # What is beyond the limit has more digits.
                value = str(self.value)
        unit = f" {self.unit}" if self.unit else ""
        return f"{value}{unit}{limits} {'pass' if self.passed else 'FAIL'}"

    def __str__(self) -> str:
        return f"{self.name} {self.shown}"


def _is_at_most(one: Union[int, float, Decimal], other: Union[int, float, Decimal]) -> bool:
    """Whether a number is at most another. Beside a Decimal, a float is the number that it is written as: 3.3, not 3.2999…"""
    numbers = (one, other)
    if any(isinstance(number, Decimal) for number in numbers):
        one, other = (Decimal(repr(float(number))) if isinstance(number, float) else number for number in numbers)
    return bool(one <= other)


def _digits(number: Union[int, float, Decimal]) -> str:
    try:
        return f"{float(number):.10g}"
    except (OverflowError, ValueError):
        # Too large, or a signaling NaN.
        return str(number)


class MeasurementFailed(AssertionError):
    """A measured value is out of its limits."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__(str(measurement))
        self.measurement = measurement


class Measure(Protocol):
    """Records a value, and fails the test if it is out of its limits."""

    def __call__(
        self,
        name: str,
        value: Union[int, float, Decimal],
        unit: str = "",
        low: Optional[float] = None,
        high: Optional[float] = None,
    ) -> Measurement: ...


class _Bench:
    """What the plugin knows during a run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.rig: Optional[Rig] = None
        self.identity = ""
        self.facts: Dict[str, Any] = {}
        self.logs: List[Tuple[float, Log]] = []
        self.measured: List[Tuple[str, str]] = []

    @property
    def target(self) -> str:
        option = self.config.getoption("rigline_target")
        target = option or os.environ.get("RIGLINE_TARGET") or self.config.getini("rigline_target")
        return str(target or "")

    @property
    def wait(self) -> float:
        return float(self.config.getoption("rigline_wait"))

    @property
    def lock(self) -> Optional[RigLock]:
        """The rig's lock; None for what each process starts for itself."""
        target = self.target
        if not target.startswith(("serial:", "tcp:")):
            return None
        # Not from the environment, which a run that a test starts inherits.
        workers = getattr(self.config, "workerinput", {})
        return RigLock(target, str(workers.get("testrunuid", "")))

    def open(self, wait: float) -> Rig:
        options: Dict[str, Any] = {"wait": wait, "timeout": float(self.config.getoption("rigline_timeout"))}
        settings = self.config.getoption("rigline_config")
        if settings:
            options["config"] = json.loads(settings)
        rig = connect(self.target, **options)
        try:
            self.facts = _facts(rig)
            self.identity = _identity(rig, self.facts)
        except BaseException:
            rig.close()
            raise
        return rig


_BENCH = pytest.StashKey[_Bench]()
_STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rigline", "hardware-test rigs")
    group.addoption(
        "--rigline-target", metavar="TARGET", help="the target: serial:auto, serial:PORT, tcp:HOST:PORT, sim, ..."
    )
    group.addoption(
        "--rigline-scope",
        choices=_SCOPES,
        help="the scope of a session with the rig: session (the default), or module under xdist, where workers take turns",
    )
    group.addoption(
        "--rigline-wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a rig that is in use or not plugged in (default: 60)",
    )
    group.addoption(
        "--rigline-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="the time limit of a call that sets none (default: 30)",
    )
    group.addoption("--rigline-config", metavar="JSON", help="the extension's own settings, a JSON object")
    group.addoption(
        "--rigline-strict",
        action="store_true",
        help="if the rig lacks what the marker `rig` requires, report an error instead of a skip",
    )
    parser.addini("rigline_target", "the target, unless --rigline-target or RIGLINE_TARGET is set")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rig(*operations, name=None, version=None, **has): what the rig must have: operations, its name, its version"
        ' (">=0.1"), and what `identify` lists, as in channels="3V3"',
    )
    settings = config.getoption("rigline_config")
    if settings:
        try:
            fine = isinstance(json.loads(settings), dict)
        except ValueError as error:
            raise pytest.UsageError(f"--rigline-config is not JSON: {error}") from None
        if not fine:
            raise pytest.UsageError("--rigline-config must be a JSON object")
    config.stash[_BENCH] = _Bench(config)


def pytest_report_header(config: pytest.Config) -> Optional[str]:
    bench = config.stash[_BENCH]
    if not bench.target or hasattr(config, "workerinput") or config.getoption("collectonly"):
        return None
    lock = bench.lock
    try:
        if lock is not None:
            lock.acquire(0.0)
        try:
            rig = bench.open(0.0)
            rig.close(keep=True)
        finally:
            if lock is not None:
                lock.release()
    except RiglineError as error:
        return f"rigline: {bench.target}: {str(error).splitlines()[0]}"
    return f"rigline: {bench.identity}"


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    chosen = config.getoption("rigline_scope")
    return chosen or ("module" if hasattr(config, "workerinput") else "session")


@pytest.fixture(scope=_scope)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The rig at --rigline-target. At the end of its scope its outputs are switched off."""
    bench = request.config.stash[_BENCH]
    if not bench.target:
        raise ConnectFailed(
            "there is no target: use --rigline-target TARGET, such as serial:auto, or sim for the built-in rig;"
            " or set rigline_target in pytest.ini"
        )
    lock = bench.lock
    if lock is not None:
        lock.acquire(bench.wait)
    try:
        opened = bench.open(bench.wait)
        opened.on_log(lambda log: bench.logs.append((time.time(), log)))
        bench.rig = opened
        try:
            yield opened
        finally:
            bench.rig = None
            opened.close()
    finally:
        if lock is not None:
            lock.release()


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """``measure("3V3", volts, "V", low=3.135, high=3.465)`` records a value, and fails the test if it is out of its limits."""
    node = request.node

    def measure(
        name: str,
        value: Union[int, float, Decimal],
        unit: str = "",
        low: Optional[float] = None,
        high: Optional[float] = None,
    ) -> Measurement:
        __tracebackhide__ = True
        for what, number in (("value", value), ("low", low), ("high", high)):
            # NumPy's numbers are real numbers, too.
            is_number = isinstance(number, (numbers.Real, Decimal)) and not isinstance(number, bool)
            if not is_number and not (number is None and what != "value"):
                raise TypeError(f"measure {name!r}: {what} is a number, not {type(number).__name__} ({number!r})")
        if low is not None and high is not None and not _is_at_most(low, high):
            raise ValueError(f"measure {name!r}: low is {low!r}, which is above high, {high!r}")
        # Names of properties are written to JUnit reports as they are.
        measurement = Measurement(_json.one_line(name), value, _json.one_line(unit), low, high)
        node.user_properties.append((f"measurement {measurement.name}", measurement.shown))
        if not measurement.passed:
            raise MeasurementFailed(measurement)
        return measurement

    return measure


@pytest.fixture(autouse=True)
def _rigline_requirements(request: pytest.FixtureRequest) -> None:
    markers = list(request.node.iter_markers("rig"))
    if not markers:
        return
    there: Rig = request.getfixturevalue("rig")
    bench = request.config.stash[_BENCH]
    for marker in markers:
        missing = _missing(there, bench.facts, marker.args, marker.kwargs)
        if missing and request.config.getoption("rigline_strict"):
            raise RigError(f"the rig does not have what the test needs: {missing}")
        if missing:
            pytest.skip(f"rig: {missing}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_STARTED] = time.time()
    item.config.stash[_BENCH].logs.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    bench = item.config.stash[_BENCH]
    uses_rig = "rig" in getattr(item, "fixturenames", ())
    if uses_rig and call.when == "call" and bench.identity:
        item.user_properties.append(("rig", bench.identity))
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if not report.failed or call.excinfo is None:
        return
    is_rigs_fault = isinstance(call.excinfo.value, RigError)
    if uses_rig or is_rigs_fault:
        started = item.stash.get(_STARTED, 0.0)
        logs = [f"{_clock(at)} {log.level:5} {_json.printable(log.message)}" for at, log in bench.logs]
        traffic = [] if bench.rig is None else [str(line) for line in bench.rig.traffic if line.time >= started]
        if len(traffic) > _SHOWN_TRAFFIC:
            traffic = [f"… {len(traffic) - _SHOWN_TRAFFIC} lines before", *traffic[-_SHOWN_TRAFFIC:]]
        for title, lines in (("rig", [bench.identity or bench.target]), ("rig log", logs), ("rig traffic", traffic)):
            if lines and lines[0]:
                report.sections.append((title, "\n".join(lines)))
    if is_rigs_fault and report.when == "call":
        # pytest and what reads its reports call that an error which does not come from the test's own body.
        report.when = "setup"
        report.sections.insert(0, ("rig error", "This is a fault of the rig or of the test. It says nothing about the board under test."))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for name, shown in report.user_properties:
            if name.startswith("measurement "):
                _MEASURED.append((report.nodeid, f"{name[12:]} {shown}"))


# The hook above gets no config.
_MEASURED: List[Tuple[str, str]] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    is_verbose = config.get_verbosity() > 0 if hasattr(config, "get_verbosity") else config.getoption("verbose") > 0
    rows = [row for row in _MEASURED if is_verbose or row[1].endswith("FAIL")]
    if rows:
        terminalreporter.section("measurements")
        for nodeid, shown in rows:
            terminalreporter.write_line(f"{nodeid}  {shown}", red=shown.endswith("FAIL"))
    _MEASURED.clear()


def _facts(rig: Rig) -> Dict[str, Any]:
    """What `identify` says, if the rig has that."""
    operation = rig.manifest.operations.get("identify")
    if operation is None or any(parameter.required for parameter in operation.parameters):
        return {}
    try:
        return dict(rig.call("identify"))
    except RiglineError:
        return {}


def _identity(rig: Rig, facts: Mapping[str, Any]) -> str:
    about = f"{rig.manifest.name} {rig.manifest.version} at {rig.target}"
    shown = [f"{name} {facts[name]}" for name in ("board", "serial", "firmware", "git") if facts.get(name)]
    return _json.printable(", ".join([about, *shown]))


def _missing(rig: Rig, facts: Mapping[str, Any], operations: Tuple[Any, ...], has: Mapping[str, Any]) -> str:
    manifest = rig.manifest
    for operation in operations:
        if operation not in manifest.operations:
            return f"{manifest.name} has no operation {operation!r}"
    for what, wanted in has.items():
        if what == "name":
            if manifest.name != wanted:
                return f"its name is {manifest.name!r}, and not {wanted!r}"
        elif what == "version":
            if not _is_version(manifest.version, wanted):
                return f"its version is {manifest.version}, and not {wanted}"
        elif what not in facts:
            return f"it does not list its {what}"
        else:
            there = facts[what] if isinstance(facts[what], list) else [facts[what]]
            for one in wanted if isinstance(wanted, (list, tuple, set)) else [wanted]:
                if one not in there:
                    return f"{one!r} is not among its {what} ({', '.join(map(str, there))})"
    return ""


def _is_version(version: str, wanted: Any) -> bool:
    """Whether a version is in a range such as ``>=0.1, <2``."""
    if not isinstance(wanted, str):
        raise RigError(f"the version that a test needs is a string such as '>=0.1, <2', not {wanted!r}")

    def parts(text: str) -> Tuple[int, ...]:
        numbers = [int(digits) for digits in re.findall("[0-9]+", re.split("[-+]", text)[0])[:3]]
        return (*numbers, *(0,) * (3 - len(numbers)))

    for one in wanted.split(","):
        found = re.fullmatch(r"\s*(>=|<=|==|!=|>|<|)\s*v?([0-9][0-9.]*)\S*\s*", one)
        if found is None:
            raise RigError(f"{wanted!r} is not a range of versions; write one such as '>=0.1, <2'")
        have, want = parts(version), parts(found.group(2))
        fine = {
            ">=": have >= want,
            "<=": have <= want,
            ">": have > want,
            "<": have < want,
            "!=": have != want,
        }.get(found.group(1), have == want)
        if not fine:
            return False
    return True


def _clock(at: float) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"
