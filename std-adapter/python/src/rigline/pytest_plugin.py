"""The pytest plugin: the fixtures ``rig``, ``rigs`` and ``measure``, and the marker ``rig``.

What the board under test does wrong is a *failure*: an assertion, a measurement out of its limits, an operation that says that it
failed. What the rig does wrong is an *error*: it cannot be reached, does not answer in time, or refuses a call.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Dict, Generator, Iterator, List, Mapping, Optional, Tuple

import pytest

from . import _json, _target
from ._connection import Traffic
from ._evidence import Evidence
from ._evidence import _fit as file_name
from ._lock import RigLock
from ._measure import Collector, Measure, Measurement, MeasurementFailed
from .client import Rig, connect
from .errors import ConnectFailed, OperationFailed, RigBusy, RigError, RiglineError, TargetError
from .result import Log

__all__ = ["Measure", "Measurement", "MeasurementFailed", "Rigs"]

_SCOPES = ("session", "package", "module", "class", "function")
_SHOWN_TRAFFIC = 60
_SINGLE = "rig"


class _Opened:
    """An open rig, and who it is."""

    def __init__(self, name: str, rig: Rig) -> None:
        self.name, self.rig = name, rig
        self.facts = _facts(rig)
        self.identity = _identity(rig, self.facts)


class _Bench:
    """What the plugin knows during a run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.targets = _targets(config)
        self.open: Dict[str, _Opened] = {}
        #: The rigs that the test uses whose evidence this is.
        self.current: Optional[Evidence] = None

    @property
    def target(self) -> str:
        return self.targets.get(_SINGLE, "")

    @property
    def wait(self) -> float:
        return float(self.config.getoption("rigline_wait"))

    @property
    def folder(self) -> Optional[str]:
        folder = self.config.getoption("rigline_logs")
        return None if folder is None else os.path.abspath(folder)

    def lock(self, target: str) -> Optional[RigLock]:
        """The rig's lock; None for what each process starts for itself."""
        if not target.startswith(("serial:", "tcp:")):
            return None
        # Not from the environment, which a run that a test starts inherits.
        workers = getattr(self.config, "workerinput", {})
        return RigLock(target, str(workers.get("testrunuid", "")))

    def connect(self, name: str, scope: str) -> _Opened:
        """Opens the rig of that name. `scope` names what shares the session."""
        target = self.targets[name]
        options: Dict[str, Any] = {"wait": self.wait, "timeout": float(self.config.getoption("rigline_timeout"))}
        settings = self.config.getoption("rigline_config")
        if settings:
            options["config"] = json.loads(settings)
        place = file_name(scope if name == _SINGLE else f"{scope}@{name}")
        record = self.config.getoption("rigline_record")
        if record is not None:
            options["record"] = os.path.join(os.path.abspath(record), place + self.worker)
        if target.startswith("replay:"):
            target = _recording(target, place)
        rig = connect(target, **options)
        try:
            # Before `identify` is asked: its answer is evidence too.
            rig.on_log(lambda log: self._note_log(name, log))
            rig.on_traffic(lambda line: self._note_traffic(name, line))
            opened = _Opened(name, rig)
        except BaseException:
            rig.close()
            raise
        self.open[name] = opened
        if self.current is not None:
            self.current.write(time.time(), f"{name}: {opened.identity}")
        return opened

    @property
    def worker(self) -> str:
        """What tells the recordings of xdist's workers apart."""
        workers = getattr(self.config, "workerinput", {})
        return f"+{workers['workerid']}" if "workerid" in workers else ""

    def close(self, opened: _Opened) -> None:
        self.open.pop(opened.name, None)
        opened.rig.close()

    def _note_log(self, name: str, log: Log) -> None:
        if self.current is not None:
            self.current.add_log(time.time(), name, log)

    def _note_traffic(self, name: str, line: Traffic) -> None:
        if self.current is not None:
            self.current.add_traffic(name, line)


class Rigs(Mapping[str, Rig]):
    """The rigs of a test by their names: what ``--rigline-rig NAME=TARGET`` names, each opened when it is first used."""

    def __init__(self, bench: _Bench, scope: str) -> None:
        self._bench, self._scope = bench, scope
        self._names = [name for name in bench.targets if name != _SINGLE]

    def __getitem__(self, name: str) -> Rig:
        if name not in self._names:
            known = ", ".join(self._names) or "none"
            raise TargetError(f"there is no rig {name!r} (known rigs: {known}); name it by --rigline-rig {name}=TARGET")
        there = self._bench.open.get(name)
        try:
            return (there or self._bench.connect(name, self._scope)).rig
        except ConnectFailed as error:
            _skip_if_missing(self._bench.config, error)
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_BENCH = pytest.StashKey[_Bench]()
_EVIDENCE = pytest.StashKey[Evidence]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rigline", "hardware-test rigs")
    group.addoption(
        "--rigline-target", metavar="TARGET", help="the target: serial:auto, serial:PORT, tcp:HOST:PORT, sim, rig:NAME, replay:DIR, ..."
    )
    group.addoption(
        "--rigline-rig",
        action="append",
        default=[],
        metavar="NAME=TARGET",
        help="a rig for tests with several: rigs['NAME']; may be repeated",
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
    group.addoption(
        "--rigline-missing",
        choices=("error", "skip"),
        default="error",
        help="what becomes of a test whose rig is not there: an error (the default), or a skip. A rig that is in use is an error",
    )
    group.addoption(
        "--rigline-outputs-off", action="store_true", help="switch the rig's outputs off after each test, in whatever scope"
    )
    group.addoption(
        "--rigline-logs",
        metavar="DIR",
        help="write a log for each test, with its measurements and the rig's traffic, and keep attachments beside it",
    )
    group.addoption(
        "--rigline-record", metavar="DIR", help="record each session with a rig; --rigline-target replay:DIR replays them"
    )
    parser.addini("rigline_target", "the target, unless --rigline-target or RIGLINE_TARGET is set")
    parser.addini("rigline_rigs", "rigs for tests with several, one NAME=TARGET a line", type="linelist", default=[])
    parser.addini("rigline_outputs_off", "switch the rig's outputs off after each test", type="bool", default=False)


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
    for option in ("rigline_logs", "rigline_record"):
        folder = config.getoption(option)
        if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
            raise pytest.UsageError(f"--{option.replace('_', '-')}: {folder} is not a folder")
    config.stash[_BENCH] = _Bench(config)
    config.stash[_REPORTS] = _Reports(config)
    config.pluginmanager.register(config.stash[_REPORTS], "rigline-reports")


def pytest_report_header(config: pytest.Config) -> Optional[List[str]]:
    # The rig is not opened: perhaps no test needs it.
    targets = config.stash[_BENCH].targets
    return [f"rigline: {target}" if name == _SINGLE else f"rigline: {name}={target}" for name, target in targets.items()]


def _targets(config: pytest.Config) -> Dict[str, str]:
    option = config.getoption("rigline_target")
    single = str(option or os.environ.get("RIGLINE_TARGET") or config.getini("rigline_target") or "")
    targets = {_SINGLE: single} if single else {}
    for where, texts in (("rigline_rigs", config.getini("rigline_rigs")), ("--rigline-rig", config.getoption("rigline_rig"))):
        for text in texts:
            name, equals, target = (part.strip() for part in text.partition("="))
            if not equals or not target or not re.fullmatch(r"\w[\w.-]*", name):
                raise pytest.UsageError(f"{where}: `{text}` is not NAME=TARGET")
            if name == _SINGLE:
                raise pytest.UsageError(f"{where}: the name `{_SINGLE}` is that of --rigline-target")
            targets[name] = target
    return targets


def _recording(target: str, place: str) -> str:
    """The recording of a session among those of --rigline-record; the target itself, if it is one recording."""
    folder, options = _target.recording(target)
    own = os.path.join(folder, place)
    return f"replay:{own}{options}" if os.path.isdir(own) else target


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    chosen = config.getoption("rigline_scope")
    return chosen or ("module" if hasattr(config, "workerinput") else "session")


def _scope_name(request: pytest.FixtureRequest) -> str:
    return "session" if request.scope == "session" else request.node.nodeid.replace("::", ".").replace("/", ".")


def _skip_if_missing(config: pytest.Config, error: ConnectFailed) -> None:
    if config.getoption("rigline_missing") == "skip" and not isinstance(error, RigBusy):
        pytest.skip(f"rig: {str(error).splitlines()[0]}")


@pytest.fixture(scope=_scope)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The rig at --rigline-target. At the end of its scope its outputs are switched off."""
    bench = request.config.stash[_BENCH]
    try:
        if not bench.target:
            raise ConnectFailed(
                "there is no target: use --rigline-target TARGET, such as serial:auto, or sim for the built-in rig;"
                " or set rigline_target in pytest.ini"
            )
        lock = bench.lock(bench.target)
        if lock is not None:
            lock.acquire(bench.wait)
        try:
            opened = bench.connect(_SINGLE, _scope_name(request))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
    except ConnectFailed as error:
        _skip_if_missing(request.config, error)
        raise
    try:
        yield opened.rig
    finally:
        try:
            bench.close(opened)
        finally:
            if lock is not None:
                lock.release()


@pytest.fixture(scope=_scope)
def rigs(request: pytest.FixtureRequest) -> Iterator[Rigs]:
    """The rigs that ``--rigline-rig NAME=TARGET`` names: ``rigs["psu"].power(...)``. A test gets all of them or none."""
    bench = request.config.stash[_BENCH]
    named = Rigs(bench, _scope_name(request))
    locks = [lock for lock in (bench.lock(bench.targets[name]) for name in named) if lock is not None]
    held: List[RigLock] = []
    try:
        try:
            if not len(named):
                raise ConnectFailed("there are no rigs: use --rigline-rig NAME=TARGET, once for each")
            # In one order, so that two runs do not wait for each other.
            for lock in sorted(locks, key=lambda lock: lock.key):
                lock.acquire(bench.wait)
                held.append(lock)
        except ConnectFailed as error:
            _skip_if_missing(request.config, error)
            raise
        yield named
    finally:
        try:
            for name in named:
                opened = bench.open.get(name)
                if opened is not None:
                    bench.close(opened)
        finally:
            for lock in held:
                lock.release()


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """``measure("3V3", volts, "V", low=3.135, high=3.465)`` records a value, and fails the test if it is out of its limits."""
    item = request.node
    evidence: Evidence = item.stash[_EVIDENCE]
    if evidence.collector is None:
        evidence.collector = Collector(
            lambda measurement: evidence.add_measurement(item, measurement),
            lambda name, data: evidence.store(item, name, data),
        )
    return evidence.collector


@pytest.fixture(autouse=True)
def _rigline_requirements(request: pytest.FixtureRequest) -> None:
    markers = list(request.node.iter_markers("rig"))
    if not markers:
        return
    request.getfixturevalue("rig")
    bench = request.config.stash[_BENCH]
    there = bench.open[_SINGLE]
    for marker in markers:
        missing = _missing(there.rig, there.facts, marker.args, marker.kwargs)
        if missing and request.config.getoption("rigline_strict"):
            raise RigError(f"the rig does not have what the test needs: {missing}")
        if missing:
            pytest.skip(f"rig: {missing}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    bench = item.config.stash[_BENCH]
    if _EVIDENCE not in item.stash:
        item.stash[_EVIDENCE] = Evidence(item.nodeid, bench.folder)
    evidence = item.stash[_EVIDENCE]
    evidence.begin(item)
    bench.current = evidence
    for opened in bench.open.values():
        evidence.write(time.time(), f"{opened.name}: {opened.identity}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    collector = item.stash[_EVIDENCE].collector
    if collector is None or not collector.soft:
        return
    # What was measured is certain, whatever the test or the rig did after it.
    raised = None if outcome.excinfo is None else outcome.excinfo[1]
    if raised is None or isinstance(raised, (RigError, pytest.skip.Exception)):
        failed = MeasurementFailed(*collector.soft)
        failed.__cause__ = raised
        _force(outcome, failed)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    bench = item.config.stash[_BENCH]
    if not (item.config.getoption("rigline_outputs_off") or item.config.getini("rigline_outputs_off")):
        return
    for opened in list(bench.open.values()):
        try:
            opened.rig.make_safe()
        except RiglineError as error:
            if outcome.excinfo is None:
                _force(outcome, error)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    config.stash[_REPORTS].summarize(terminalreporter)


def _force(outcome: Any, error: BaseException) -> None:
    """Gives a hook another exception."""
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(error)
    else:
        # pluggy before 1.1.
        outcome._result, outcome._excinfo = None, (type(error), error, error.__traceback__)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    bench = item.config.stash[_BENCH]
    evidence = item.stash.get(_EVIDENCE, None)
    uses_rig = any(name in getattr(item, "fixturenames", ()) for name in ("rig", "rigs"))
    identities = [opened.identity for opened in bench.open.values()] if uses_rig else []
    if evidence is not None and call.when == "call":
        for opened in bench.open.values() if uses_rig else ():
            evidence.add_property(item, opened.name if opened.name == _SINGLE else f"rig.{opened.name}", opened.identity)
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    report.rigline_rigs = identities  # type: ignore[attr-defined]
    raised = None if call.excinfo is None else call.excinfo.value
    is_rigs_fault = raised is not None and _is_rigs_fault(raised)
    if is_rigs_fault and not report.failed:
        # An expected failure is one of the board.
        report.outcome = "failed"
        report.__dict__.pop("wasxfail", None)
    if evidence is None:
        return
    report.rigline_measurements = [  # type: ignore[attr-defined]
        [str(measurement), measurement.verdict] for measurement in evidence.measurements
    ]
    report.rigline_attempt = evidence.attempt  # type: ignore[attr-defined]
    if report.failed and raised is not None and (uses_rig or is_rigs_fault):
        who = identities or [target for name, target in bench.targets.items() if name == _SINGLE]
        report.sections += [("rig", "\n".join(who))] if who else []
        report.sections += evidence.sections(_SHOWN_TRAFFIC)
    if is_rigs_fault and report.when == "call":
        # pytest and what reads its reports call that an error which does not come from the test's own body.
        report.when = "setup"
        report.rigline_when = "call"  # type: ignore[attr-defined]
        report.sections.insert(0, ("rig error", "This is a fault of the rig or of the test. It says nothing about the board under test."))
    elif report.when == "setup" and report.failed and isinstance(raised, (OperationFailed, MeasurementFailed)):
        # A fixture found a fault of the board, which is a failure wherever it shows.
        report.when = "call"
    if call.when == "call" or report.failed:
        evidence.write(time.time(), f"{call.when} {report.outcome}{'' if raised is None else f': {raised}'}")
        if call.when != "teardown":
            evidence.add_to_html(item.config, report)
    if call.when == "teardown":
        evidence.attach_to_allure(item.config)
        evidence.end()
        if bench.current is evidence:
            bench.current = None


def _is_rigs_fault(error: BaseException) -> bool:
    """Whether the rig is at fault: the error is of its kind, or a group of such errors alone."""
    members = getattr(error, "exceptions", None)
    if isinstance(members, (list, tuple)) and members:
        return all(_is_rigs_fault(member) for member in members)
    return isinstance(error, RigError)


class _Reports:
    """What the terminal and JUnit's report say. Under xdist only the controller has these."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: List[Tuple[str, str, str]] = []
        self._rigs: Dict[str, None] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, Any, None]:
        self._rigs.update(dict.fromkeys(getattr(report, "rigline_rigs", [])))
        is_repeated = getattr(report, "outcome", "") == "rerun"
        if report.when == "teardown" or is_repeated:
            attempt = getattr(report, "rigline_attempt", 1)
            name = report.nodeid if attempt == 1 and not is_repeated else f"{report.nodeid} (attempt {attempt})"
            self._rows += [(name, shown, verdict) for shown, verdict in getattr(report, "rigline_measurements", [])]
        yield
        if getattr(report, "rigline_when", None):
            _name_phase(self._config, report)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, Any, None]:
        # The heading of an error names its phase.
        errors = [report for report in terminalreporter.stats.get("error", []) if getattr(report, "rigline_when", None)]
        for report in errors:
            report.when = report.rigline_when
        yield
        for report in errors:
            report.when = "setup"

    def summarize(self, terminalreporter: Any) -> None:
        """Says which rigs there were, and what they measured."""
        config = self._config
        for identity in self._rigs:
            terminalreporter.write_line(f"rigline: {identity}")
        is_verbose = config.get_verbosity() > 0 if hasattr(config, "get_verbosity") else config.getoption("verbose") > 0
        rows = [row for row in self._rows if is_verbose or row[2] != "pass"]
        if rows:
            terminalreporter.section("measurements")
            for name, shown, verdict in rows:
                terminalreporter.write_line(f"{name}  {shown}", red=verdict == "fail", yellow=verdict == "marginal")


_REPORTS = pytest.StashKey[_Reports]()


def _name_phase(config: pytest.Config, report: pytest.TestReport) -> None:
    """Has JUnit's report not say that the setup failed. What it has is not public, so that it may be missing."""
    try:
        from _pytest.junitxml import xml_key

        reporter = config.stash.get(xml_key, None)
        if reporter is None:
            return
        for node in reporter.node_reporter(report).nodes:
            message = node.get("message", "")
            if node.tag == "error" and message.startswith("failed on setup with "):
                node.set("message", message[len("failed on setup with ") :].strip('"'))
    except (ImportError, AttributeError, TypeError):
        pass


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


