"""What is kept of each test: its log file, its attachments, and what Allure and pytest-html show."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import threading
import time
from collections import deque
from typing import IO, Any, Deque, Dict, List, Optional, Tuple, Union

import pytest

from . import _json
from ._connection import Traffic
from ._measure import Collector, Measurement
from .result import Log

#: How many lines of traffic, and how many logs, of a test are kept in memory, and how many characters of each log.
_LINES = 5000
_TEXT = 2000
_UNFIT = re.compile(r"[^\w.,=+@\[\]-]+")


class Evidence:
    """What is known of one test. Each attempt at the test begins anew."""

    def __init__(self, nodeid: str, folder: Optional[str]) -> None:
        self.nodeid = nodeid
        self.attempt = 0
        self._folder = folder
        self._place = _place(nodeid)
        self._guard = threading.Lock()
        self._file: Optional[IO[str]] = None
        self._temporary: Optional[str] = None
        #: What was added to the item's properties.
        self.properties: List[Tuple[str, Any]] = []
        self._clear()

    def _clear(self) -> None:
        self.measurements: List[Measurement] = []
        self.attachments: List[Tuple[str, str]] = []
        self.logs: Deque[Tuple[float, str, Log]] = deque(maxlen=_LINES)
        #: How many logs there were, by rig.
        self.logged: Dict[str, int] = {}
        self.traffic: Deque[Tuple[str, Traffic]] = deque(maxlen=_LINES)
        self.lines = 0
        self.collector: Optional[Collector] = None

    def begin(self, item: pytest.Item) -> None:
        """Begins an attempt: what an earlier one measured is not this one's."""
        for added in self.properties:
            if added in item.user_properties:
                item.user_properties.remove(added)
        self.properties = []
        self._clear()
        self.attempt += 1
        if self._folder is not None:
            path = os.path.join(self._folder, self._place + ".log")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with self._guard:
                mode = "w" if self.attempt == 1 else "a"
                self._file = open(path, mode, encoding="utf-8", errors="backslashreplace", opener=_own)
        self.write(time.time(), f"test {self.nodeid}, attempt {self.attempt}, {time.strftime('%Y-%m-%dT%H:%M:%S%z')}")

    def end(self) -> None:
        """Ends the attempt's log."""
        with self._guard:
            if self._file is not None:
                self._file.close()
                self._file = None

    def write(self, at: float, text: str) -> None:
        """Adds a line to the log file, if there is one."""
        with self._guard:
            if self._file is not None:
                self._file.write(f"{clock(at)} {_json.printable(text)}\n")
                # A test that crashes the interpreter leaves its log.
                self._file.flush()

    def add_property(self, item: pytest.Item, name: str, value: str) -> None:
        self.properties.append((name, value))
        item.user_properties.append((name, value))

    def add_measurement(self, item: pytest.Item, measurement: Measurement) -> None:
        earlier = sum(1 for other in self.measurements if other.name == measurement.name)
        name = measurement.name if earlier == 0 else f"{measurement.name}#{earlier + 1}"
        self.measurements.append(measurement)
        self.add_property(item, f"measurement {name}", measurement.shown)
        for part, text in measurement.properties:
            self.add_property(item, f"measurement.{name}.{part}", text)
        self.write(time.time(), f"measurement {measurement}")

    def add_log(self, at: float, rig: str, log: Log) -> None:
        kept = dataclasses.replace(log, message=_json.shorten(log.message, _TEXT), data=None)
        self.logs.append((at, rig, kept))
        self.logged[rig] = self.logged.get(rig, 0) + 1
        self.write(at, f"{rig} {log.level:5} {log.message}")

    def add_traffic(self, rig: str, line: Traffic) -> None:
        self.lines += 1
        self.traffic.append((rig, line))
        self.write(line.time, f"{rig} {line.direction} {line.text}")

    def store(self, item: pytest.Item, name: str, data: Union[str, bytes, "os.PathLike[str]"]) -> str:
        """Keeps an attachment."""
        # Of several with one name, all are kept.
        used = {os.path.basename(path) for _, path in self.attachments}
        stem, ending = os.path.splitext(_fit(name))
        file, count = stem + ending, 1
        while file in used:
            count += 1
            file = f"{stem}-{count}{ending}"
        path = os.path.join(self._attachments(item), file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(data, os.PathLike):
            with open(data, "rb") as source, open(path, "wb", opener=_own) as copy:
                shutil.copyfileobj(source, copy)
        else:
            with open(path, "wb", opener=_own) as copy:
                copy.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
        self.attachments.append((_json.one_line(name), path))
        self.add_property(item, f"attachment.{_json.one_line(name)}", path)
        self.write(time.time(), f"attachment {name}: {path}")
        return path

    def _attachments(self, item: pytest.Item) -> str:
        name = self._place if self.attempt < 2 else f"{self._place}-{self.attempt}"
        if self._folder is not None:
            return os.path.join(self._folder, name)
        if self._temporary is None:
            # pytest keeps those of the last three runs.
            factory = item.session.config._tmp_path_factory  # type: ignore[attr-defined]
            self._temporary = str(factory.mktemp("rigline"))
        return os.path.join(self._temporary, name)

    def sections(self, shown: int) -> List[Tuple[str, str]]:
        """What a failure's report shows of each rig: its logs, and the last lines of its traffic."""
        sections = []
        names = list(dict.fromkeys([*(rig for _, rig, _ in self.logs), *(rig for rig, _ in self.traffic)]))
        for name in names:
            logs = [f"{clock(at)} {log.level:5} {_json.printable(log.message)}" for at, rig, log in self.logs if rig == name]
            if self.logged.get(name, 0) > len(logs):
                logs = [f"… {self.logged[name] - len(logs)} logs before", *logs]
            traffic = [str(line) for rig, line in self.traffic if rig == name]
            if len(traffic) > shown:
                traffic = [f"… {len(traffic) - shown} lines before", *traffic[-shown:]]
            for title, lines in ((f"{name} log", logs), (f"{name} traffic", traffic)):
                if lines:
                    sections.append((title, "\n".join(lines)))
        return sections

    def table(self) -> str:
        """The measurements as CSV."""
        rows = ["name,value,unit,low,high,verdict"]
        for measurement in self.measurements:
            parts = dict(measurement.properties)
            cells = [measurement.name, *(parts.get(part, "") for part in ("value", "unit", "low", "high", "verdict"))]
            rows.append(",".join('"' + cell.replace('"', '""') + '"' if re.search('[",\n]', cell) else cell for cell in cells))
        return "\n".join(rows) + "\n"

    def attach_to_allure(self, config: pytest.Config) -> None:
        """Adds measurements, logs, traffic and attachments to Allure's result of the test, if it makes one."""
        if not config.pluginmanager.hasplugin("allure_listener"):
            return
        import allure  # type: ignore[import-not-found,unused-ignore]

        if self.measurements:
            allure.attach(self.table(), "measurements", allure.attachment_type.CSV)
        for title, text in self.sections(_LINES):
            allure.attach(text, title, allure.attachment_type.TEXT)
        for name, path in self.attachments:
            extension = os.path.splitext(path)[1].lstrip(".") or "bin"
            attach_file: Any = allure.attach.file
            attach_file(path, name, extension=extension)

    def add_to_html(self, config: pytest.Config, report: pytest.TestReport) -> None:
        """Adds measurements and attachments to pytest-html's row of the test, if it writes one."""
        if not config.pluginmanager.hasplugin("html"):
            return
        try:
            from pytest_html import extras  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            return
        added = []
        if self.measurements:
            added.append(extras.text("\n".join(map(str, self.measurements)), name="measurements"))
        added += [extras.url(path, name=name) for name, path in self.attachments]
        if added:
            report.extras = [*getattr(report, "extras", []), *added]  # type: ignore[attr-defined]


def clock(at: float) -> str:
    """A time of the day, with milliseconds."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"


def _fit(name: str) -> str:
    """A name as a file's, of at most 120 characters. Names that have to be changed stay distinct by a hash."""
    fit = _UNFIT.sub("_", name).strip(".") or "_"
    if fit == name and len(fit) <= 120:
        return fit
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    stem, ending = os.path.splitext(fit)
    return f"{stem[:100]}-{digest}{ending[:12]}"


def _place(nodeid: str) -> str:
    """The path of a test's files below the folder of logs."""
    file, _, rest = nodeid.partition("::")
    parts = [_fit(part) for part in re.split(r"[/\\]", file) if part not in ("", ".", "..")]
    name = rest.replace("::", ".")
    return os.path.join(*parts, _fit(name)) if name else os.path.join(*parts)


def _own(path: str, flags: int) -> int:
    """Opens a file that only this user can read, also if it was there before: what a test says and gets may be a secret."""
    descriptor = os.open(path, flags, 0o600)
    if hasattr(os, "fchmod"):
        try:
            os.fchmod(descriptor, 0o600)
        except OSError:
            # It is another user's, or the file system has no modes.
            pass
    return descriptor
