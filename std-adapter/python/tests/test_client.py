"""The client against the simulated rig, and against extensions that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

import rigline
from conftest import Script, volts
from rigline import _connection, _json, _protocol, _target

is_posix = pytest.mark.skipif(os.name != "posix", reason="signals and fork are POSIX's")
NEVER: Dict[str, Any] = {"channel": "3V3", "min": 9, "max": 10, "within_ms": 60000}


def test_an_operation_is_found_in_either_spelling_and_an_ambiguous_one_is_refused(script: Script) -> None:
    operations = repr({name: {"params": True} for name in ("set-target", "read_pin", "a-b", "a_b", "x-y_z", "x_y-z")})
    with rigline.connect(script.target("reply(request, outputs={'name': operation})", operations)) as rig:
        for written, own in [
            ("set_target", "set-target"),
            ("set-target", "set-target"),
            ("read-pin", "read_pin"),
            ("read_pin", "read_pin"),
            ("a-b", "a-b"),
            ("a_b", "a_b"),
        ]:
            assert rig.call(written).outputs["name"] == own
        with pytest.raises(rigline.UnknownOperation, match="'x_y_z' may be x-y_z or x_y-z; write one of them"):
            rig.call("x_y_z")


def test_operations_are_methods_and_results_are_typed() -> None:
    @dataclass
    class Reading:
        volts: float
        samples: int
        note: Optional[str] = "none"

    with rigline.connect("sim") as rig:
        assert rig.manifest.name == "rig"
        assert {"measure", "self_test", "gpio_read"} <= set(dir(rig))
        assert rig.measure.__doc__ == "Measure a channel"
        rig.power(rail="3V3", on=True)
        result = rig.call("measure", channel="3V3", samples=4)
        assert result["volts"] == pytest.approx(3.3, abs=0.05)
        assert result.text("volts") == result.outputs["volts"]
        assert result.integer("samples") == 4
        reading = result.read(Reading)
        assert (reading.samples, reading.note) == (4, "none")
        assert rig.self_test().message == "all 6 checks passed"
        assert "LED" in rig.identify()["inputs"]
    assert rig.closed


def test_each_kind_of_failure_has_its_class(script: Script) -> None:
    body = """
code = args["code"]
if code:
    say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "so", "data": [1]}})
else:
    reply(request, success=False, error="not ready", outputs={"n": "1"})
"""
    table = {
        -32601: rigline.UnknownOperation,
        -32602: rigline.BadArguments,
        -32603: rigline.InternalError,
        -32000: rigline.Unreachable,
        -32001: rigline.CallTimeout,
        -32002: rigline.RequirementNotMet,
        -32700: rigline.ProtocolError,
    }
    with rigline.connect(script.target(body)) as rig:
        for code, kind in table.items():
            with pytest.raises(kind) as raised:
                rig.op(code=code)
            assert (raised.value.code, raised.value.data, raised.value.operation) == (code, [1], "op")
            assert isinstance(raised.value, rigline.RigError)
        with pytest.raises(rigline.OperationFailed) as failed:
            rig.op(code=0)
        assert failed.value.result["n"] == 1
        assert not isinstance(failed.value, rigline.RigError)


def test_errors_survive_another_process() -> None:
    with rigline.connect("sim") as rig:
        for call in (lambda: rig.measure(channel="X"), lambda: rig.wait_for(channel="3V3", min=9, max=10, within_ms=5)):
            with pytest.raises(rigline.RiglineError) as raised:
                call()
            again = pickle.loads(pickle.dumps(raised.value))
            assert (type(again), str(again), again.code) == (raised.type, str(raised.value), raised.value.code)


def test_wrong_names_and_arguments_are_named_before_anything_is_sent() -> None:
    with rigline.connect("sim") as rig:
        sent = len(rig.traffic)
        for call, text in [
            (lambda: rig.mesure(channel="3V3"), "no operation 'mesure'; did you mean 'measure'?"),
            (lambda: rig.call("fly"), "no operation 'fly'"),
            (lambda: rig.measure(chanel="3V3"), "no argument 'chanel'; did you mean 'channel'?"),
            (lambda: rig.measure(), "missing argument: channel"),
            (lambda: rig.power(), "missing arguments: rail, on"),
            (lambda: rig.measure("3V3"), "this is a str"),
            (lambda: rig.measure({"channel": "3V3"}, channel="3V3"), "given twice"),
            (lambda: rig.measure(channel={1}), "args.channel: set"),
            (lambda: rig.measure(channel=float("nan")), "args.channel: nan"),
        ]:
            with pytest.raises(rigline.RigError) as raised:
                call()
            assert text in str(raised.value)
        for bad in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                rig.measure(channel="3V3", timeout=bad)
        assert len(rig.traffic) == sent
        assert not hasattr(rig, "fly")


@pytest.mark.parametrize(
    "target, kind, text",
    [
        ("", rigline.TargetError, "the target is empty"),
        ("foo:bar", rigline.TargetError, "`foo:` is not a kind of target"),
        ("serial:", rigline.TargetError, "names no port"),
        ("tcp:7000", rigline.TargetError, "is not an address"),
        ("tcp:localhost:70000", rigline.TargetError, "is not an address"),
        ("exec:", rigline.TargetError, "names no program"),
        ("exec:a 'b", rigline.TargetError, "no closing quotation"),
        ("http://localhost", rigline.TargetError, "does not support HTTP"),
        ("serial:/dev/null?speed=9", rigline.TargetError, "unknown option `speed`"),
        ("/dev/null", rigline.TargetError, "write serial:/dev/null"),
        ("/", rigline.TargetError, "it is a folder"),
        ("exec:no-such-program", rigline.ConnectFailed, "no program `no-such-program` in PATH"),
        ("no-such-program", rigline.ConnectFailed, "other targets are: sim, serial:PORT"),
        ("serial:/dev/no-such-port", rigline.ConnectFailed, "No such file"),
        ("serial:auto/no-such-device", rigline.ConnectFailed, "plugged in"),
        ("tcp:127.0.0.1:1", rigline.ConnectFailed, "Connection refused"),
    ],
)
@is_posix
def test_a_wrong_target_is_explained(target: str, kind: Any, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(kind) as raised:
        rigline.connect(target)
    assert text in str(raised.value)
    assert time.monotonic() - began < 8


def test_a_program_that_ends_before_all_threads_run_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_slowly(thread: threading.Thread) -> None:
        time.sleep(0.3)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_slowly)
    began = time.monotonic()
    with pytest.raises(rigline.ConnectFailed, match="exit status 3"):
        rigline.connect(f'exec:{sys.executable} -c "raise SystemExit(3)"')
    assert time.monotonic() - began < 8


def test_a_program_that_is_no_extension_is_explained() -> None:
    with pytest.raises(rigline.ConnectFailed, match="exit status 3\nits standard error ends with:\n  oops"):
        rigline.connect(f"exec:{sys.executable} -c \"import sys; sys.exit(print('oops', file=sys.stderr) or 3)\"")
    mute = f"exec:{sys.executable} -c \"print('Hello'); import time; time.sleep(60)\" -u"
    with pytest.raises(rigline.ConnectFailed, match="did not answer within"):
        rigline.connect(mute, start_timeout=0.5)


def test_a_missing_command_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RIGLINE_BINARY", str(tmp_path / "nothing"))
    with pytest.raises(rigline.ConnectFailed, match="RIGLINE_BINARY names"):
        rigline.connect("sim")


def test_logs_go_to_logging_and_to_the_result(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rigline")
    with rigline.connect("sim") as rig:
        result = rig.power(rail="3V3", on=True)
    assert [log.message for log in result.logs] == ["switching 3V3 on"]
    assert ("rigline.rig", logging.INFO, "switching 3V3 on") in caplog.record_tuples


def test_noise_unicode_numbers_and_size(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    body = r"""
say("booting \x1b[31m")
say('{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"\\u001b]0;x\\u0007 \\ud800"}}')
size = args.get("size", 0)
say('{"jsonrpc":"2.0","id":%d,"result":{"success":true,"message":"\u00b0C \U0001F600","outputs":{"big":"12345678901234567890","exact":"0.1000000000000000055","plain":"1.50","word":"true story","huge":"%s"}}}' % (request["id"], "x" * size))
"""
    caplog.set_level(logging.DEBUG, "rigline")
    with rigline.connect(script.target(body)) as rig:
        result = rig.op(size=9_000_000, number=2**80, exact=Decimal("0.10000000000000000555"))
        assert result.message == "°C 😀"
        assert result["big"] == result.integer("big") == 12345678901234567890
        assert result["exact"] == Decimal("0.1000000000000000055")
        assert (result["plain"], result.text("plain"), result["word"]) == (1.5, "1.50", "true story")
        assert result.decimal("plain") == Decimal("1.50")
        assert len(result["huge"]) == 9_000_000
        sent = next(line.text for line in rig.traffic if "execute" in line.text)
        assert f'"number":{2**80},"exact":0.10000000000000000555' in sent
        with pytest.raises(ValueError, match="the output word is not a number"):
            result.number("word")
        with pytest.raises(KeyError, match="known outputs: big"):
            result["volts"]
    # No escape sequence reaches a terminal.
    assert "\x1b" not in caplog.text and "\\x1b" in caplog.text


def test_a_line_without_end_ends_the_connection(script: Script) -> None:
    with rigline.connect(script.target('sys.stdout.write("x" * (18 << 20)); sys.stdout.flush(); time.sleep(60)')) as rig:
        with pytest.raises(rigline.ProtocolError, match="longer than 16777216 bytes"):
            rig.op()


def test_a_program_that_dies_in_mid_call_and_the_call_after_it(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    body = """
if args.get("die"):
    print("panic: no clock", file=sys.stderr, flush=True)
    os._exit(7)
reply(request)
"""
    with rigline.connect(script.target(body)) as rig:
        with pytest.raises(rigline.ConnectionLost, match="(?s)exit status 7.*panic: no clock"):
            rig.op(die=True)
        assert rig.op().operation == "op"
    assert "connecting again" in caplog.text


def test_a_program_that_does_not_answer_in_time_is_cut_off(script: Script) -> None:
    with rigline.connect(script.target("time.sleep(60)")) as rig:
        began = time.monotonic()
        with pytest.raises(rigline.CallTimeout, match="no answer within 2.2 s"):
            rig.op(timeout=0.2)
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("answer", ["success=True, message='done'", "success=False, error='no'"])
def test_an_answer_after_the_time_limit_does_not_count_and_the_session_goes_on(script: Script, answer: str) -> None:
    # zephyrproject-rtos/zephyr#45904
    with rigline.connect(script.target(f"time.sleep(args['pause'])\nreply(request, **dict({answer}))")) as rig:
        with pytest.raises(rigline.CallTimeout, match=r"after 0\.[5-9]\d* s, beyond the time limit of 0\.3 s; it said: (done|no)"):
            rig.op(pause=0.5, timeout=0.3)
        sent = len(rig.traffic)
        with pytest.raises(rigline.OperationFailed) if "no" in answer else contextlib.nullcontext():
            rig.op(pause=0, timeout=30)
        assert len(rig.traffic) == sent + 2, "it is the same session"


def test_the_extension_keeps_the_time_limit_itself() -> None:
    with rigline.connect("sim") as rig:
        with pytest.raises(rigline.CallTimeout, match="the operation did not end before its timeout"):
            rig.wait_for(NEVER, timeout=0.2)
        # The session goes on.
        assert rig.measure(channel="3V3")


def test_threads_take_turns() -> None:
    with rigline.connect("sim") as rig:
        wrong: List[str] = []

        def work(channel: str, low: float) -> None:
            for _ in range(20):
                if rig.measure(channel=channel).number("volts") < low:
                    wrong.append(channel)

        rig.power(rail="3V3", on=True)
        rig.power(rail="5V0", on=True)
        threads = [threading.Thread(target=work, args=pair) for pair in [("3V3", 3.0), ("5V0", 4.5)] * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert wrong == []


def test_cancel_from_another_thread_switches_outputs_off(served: str) -> None:
    with rigline.connect(served) as rig:
        rig.power(rail="3V3", on=True)
        threading.Timer(0.3, rig.cancel).start()
        with pytest.raises(rigline.Cancelled):
            rig.wait_for(NEVER, timeout=90)
        assert volts(served) < 0.5
        assert rig.measure(channel="3V3").number("volts") < 0.5


def test_close_switches_outputs_off_and_keep_does_not(served: str) -> None:
    with rigline.connect(served) as watch:
        rig = rigline.connect(served)
        rig.power(rail="3V3", on=True)
        rig.close(keep=True)
        assert watch.measure(channel="3V3").number("volts") > 3
    # It was the last one.
    assert volts(served) < 0.5
    rig.close()
    with pytest.raises(rigline.RigClosed):
        rig.measure(channel="3V3")


def test_a_rig_that_is_forgotten_is_closed(served: str) -> None:
    rig = rigline.connect(served)
    rig.power(rail="3V3", on=True)
    del rig
    gc.collect()
    assert volts(served) < 0.5


PROGRAM = """
import os, sys, rigline
rig = rigline.connect({target!r})
rig.power(rail="3V3", on=True)
print("on", flush=True)
{then}
"""


@is_posix
@pytest.mark.parametrize(
    "then, signals, code",
    [
        ("", [], 0),
        ("raise SystemExit(5)", [], 5),
        ("os._exit(6)", [], 6),
        ("rig.wait_for(channel='3V3', min=9, max=10, within_ms=60000, timeout=90)", [signal.SIGKILL], -signal.SIGKILL),
        ("rig.wait_for(channel='3V3', min=9, max=10, within_ms=60000, timeout=90)", [signal.SIGTERM], -signal.SIGTERM),
        ("rig.wait_for(channel='3V3', min=9, max=10, within_ms=60000, timeout=90)", [signal.SIGINT], -signal.SIGINT),
        ("import time; time.sleep(60)", [signal.SIGKILL], -signal.SIGKILL),
    ],
    ids=["end", "SystemExit", "_exit", "SIGKILL", "SIGTERM", "SIGINT", "SIGKILL idle"],
)
def test_however_a_program_ends_outputs_are_off(served: str, then: str, signals: List[int], code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(target=served, then=then)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    time.sleep(0.3)
    for number in signals:
        process.send_signal(number)
    assert process.wait(20) in (code, 130 if code == -signal.SIGINT else code)
    process.communicate()
    assert volts(served) < 0.5


@is_posix
def test_a_child_process_of_ours_goes_when_we_are_killed() -> None:
    then = "print(rig._box[0]._channel.process.pid, flush=True); import time; time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(target="sim", then=then)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    child = int(process.stdout.readline())
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the rig's process still runs")


@is_posix
def test_a_forked_child_neither_uses_nor_ends_the_session(served: str) -> None:
    rig = rigline.connect(served)
    rig.power(rail="3V3", on=True)
    child = os.fork()
    if child == 0:
        try:
            rig.measure(channel="3V3")
        except rigline.RigClosed:
            rig.close()
            del rig
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert rig.measure(channel="3V3").number("volts") > 3
    # A child that lives on does not keep the connection open.
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        rig.close()
        assert volts(served) < 0.5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_rig_cannot_be_pickled() -> None:
    with rigline.connect("sim") as rig, pytest.raises(TypeError, match="another process"):
        pickle.dumps(rig)


def test_asyncio_calls_cancel_and_time_out(served: str) -> None:
    async def main() -> None:
        async with rigline.connect_async(served) as rig:
            assert rig.manifest.name == "rig"
            await rig.power(rail="3V3", on=True)
            readings = await asyncio.gather(*(rig.measure(channel="3V3") for _ in range(10)))
            assert all(reading.number("volts") > 3 for reading in readings)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(rig.wait_for(NEVER, timeout=90), 0.3)
            assert (await rig.measure(channel="3V3")).number("volts") < 0.5
            await rig.power(rail="3V3", on=True)
            running = asyncio.create_task(rig.call("wait-for", NEVER, timeout=90))
            queued = asyncio.create_task(rig.measure(channel="3V3"))
            await asyncio.sleep(0.3)
            # What has not begun is left out, and does not cut off what runs.
            queued.cancel()
            await asyncio.sleep(0.1)
            assert not running.done()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            with pytest.raises(rigline.UnknownOperation):
                await rig.fly()
        with pytest.raises(rigline.RigClosed):
            await rig.measure(channel="3V3")
        with pytest.raises(rigline.ConnectFailed):
            await rigline.connect_async("exec:no-such-program")

    asyncio.run(main())
    assert volts(served) < 0.5


def test_the_event_loop_goes_on_during_a_call(script: Script) -> None:
    async def main() -> int:
        ticks = 0
        async with rigline.connect_async(script.target("time.sleep(0.5); reply(request)")) as rig:
            call = asyncio.ensure_future(rig.op())
            while not call.done():
                await asyncio.sleep(0.01)
                ticks += 1
            await call
        return ticks

    assert asyncio.run(main()) > 10


def test_numbers_keep_their_value() -> None:
    table = [("1", 1), ("-0", 0), ("1.5", 1.5), ("1e3", 1000.0), ("12345678901234567890123", 12345678901234567890123)]
    for text, value in table:
        assert _json.loads(text) == value
    assert isinstance(_json.loads("1e400"), Decimal)
    assert isinstance(_json.loads("0.10000000000000000555"), Decimal)
    for bad in ("NaN", "[1,]", "Infinity", "[" * 100_000):
        with pytest.raises(ValueError):
            _json.loads(bad)
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        _json.dumps(deep)


def test_stubs_name_the_operations_and_their_types(tmp_path: Path) -> None:
    path = tmp_path / "bench_rig.pyi"
    done = subprocess.run([sys.executable, "-m", "rigline.stubs", "sim", "-o", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text(encoding="utf-8")
    channels = "channel: Literal['3V3', '5V0', 'AUX', 'TEMP'],"
    assert f"    def measure(\n        self,\n        *,\n        {channels}\n        samples: int = ...,\n" in text
    assert "class AsyncRig(rigline.AsyncRig):" in text
    wrong = subprocess.run([sys.executable, "-m", "rigline.stubs", "nowhere"], capture_output=True, text=True)
    assert wrong.returncode == 3
    assert wrong.stderr.startswith("rigline: there is no program `nowhere`")


def test_the_command_comes_with_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "rigline", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("rigline ")


def test_a_manifest_with_odd_names_and_schemas(script: Script, tmp_path: Path) -> None:
    operations = """{
        "close": {"params": {"type": "object"}},
        "import": {"params": {"type": "object", "properties": {"from": {"type": "string"}, "timeout": {"type": "string"}}, "required": ["timeout"]}},
        "a b/c": {"description": 'quotes \\"\\"\\" and \\\\', "params": {"type": "object", "properties": {"x-y": {"enum": ["a", "b"]}, "n": {"type": ["integer", "null"]}}}},
        "odd": {"params": None}, "none": None,
    }"""
    with rigline.connect(script.target('reply(request, message=json.dumps([operation, args, context["timeout"]]))', operations)) as rig:
        assert json.loads(rig.import_({"timeout": "60s"}, from_="here", timeout=5).message) == [
            "import",
            {"timeout": "60s", "from": "here"},
            "5s",
        ]
        assert json.loads(rig.a_b_c(x_y="a").message)[:2] == ["a b/c", {"x-y": "a"}]
        assert json.loads(rig.call("close").message)[0] == "close"
        from rigline.stubs import stubs

        text = stubs(rig.manifest, "a target")
    compile(text, "stub", "exec")
    assert "x_y: Literal['a', 'b'] = ..." in text and "n: Union[int, None] = ..." in text
    assert '# close: only by call("close", ...)' in text


def test_g_a_deep_value_of_the_extension_stops_no_client(script: Script) -> None:
    body = """
deep = "[" * 200 + "1" + "]" * 200
say('{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":%s}}' % deep)
say('{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m","data":{"a":%s}}}' % deep)
if args["refuse"]:
    say('{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":%s}}' % (request["id"], deep))
else:
    reply(request, message=json.loads(deep), outputs={"a": json.loads(deep)})
"""
    with rigline.connect(script.target(body)) as rig:
        result = rig.call("op", refuse=False, timeout=10)
        assert result.message == "a value that is nested too deeply"
        assert result.text("a") == "[" * 200 + "1" + "]" * 200
        assert [log.message for log in result.logs] == ["a value that is nested too deeply", "m"]
        with pytest.raises(rigline.InternalError, match="nested too deeply"):
            rig.call("op", refuse=True, timeout=10)


def test_g_a_number_of_more_digits_than_python_reads() -> None:
    digits = "9" * 5000
    assert _json.loads(digits) == Decimal(digits)
    session = _protocol.Session()
    session.request("execute", "{}")
    line = '{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"n":%s}}}' % digits
    (reply,) = session.receive(line.encode())
    assert isinstance(reply, _protocol.Reply)
    assert (reply.answer.kind, reply.answer.outputs) == ("success", {"n": digits})


def test_g_a_long_output_takes_little_memory() -> None:
    # Where each character is looked at, tracing takes a minute for a few megabytes.
    long, short = 15 << 20, 1 << 19
    for piece, size in (("x", long), ("\\n", long), ("é", long), ('\\"', short), ("\\\\", short)):
        raw = piece * (size // len(piece.encode()))
        session = _protocol.Session()
        session.request("execute", "{}")
        line = f'{{"jsonrpc":"2.0","id":1,"result":{{"success":true,"outputs":{{"n":1.50,"a":"{raw}"}}}}}}'.encode()
        tracemalloc.start()
        (reply,) = session.receive(line)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert isinstance(reply, _protocol.Reply)
        assert reply.answer.outputs["n"] == "1.50"
        assert reply.answer.outputs["a"] == json.loads(f'"{raw}"')
        assert peak < 12 * len(line), piece


class OwnFloat(float):
    """As numpy's float64, whose `repr` is no number."""

    def __repr__(self) -> str:
        return f"own({float(self)})"


@pytest.mark.parametrize("timeout", [Decimal("5.5"), OwnFloat(5.5), 5.5])
def test_g_a_timeout_may_be_any_number(script: Script, timeout: Any) -> None:
    target = script.target('reply(request, message=context["timeout"])')
    with rigline.connect(target, timeout=timeout, start_timeout=Decimal(20), wait=Decimal(0)) as rig:  # type: ignore[arg-type]
        assert rig.op().message == "5.5s"
        assert rig.op(timeout=timeout).message == "5.5s"
        for wrong in (10**400, Decimal("1e30"), float("inf"), Decimal("NaN"), 0, -1):
            with pytest.raises(ValueError):
                rig.op(timeout=wrong)


def reconnecting(monkeypatch: pytest.MonkeyPatch, rig: rigline.Rig, then: Any) -> None:
    """The rig's connection is lost, and while it connects again, `then` happens."""
    rig.cancel()
    resolve = _target.resolve

    def resolving(*args: Any, **named: Any) -> Any:
        thread = threading.Thread(target=then)
        thread.start()
        thread.join(20)
        return resolve(*args, **named)

    monkeypatch.setattr(_target, "resolve", resolving)


def test_g_close_while_it_connects_again_leaves_nothing_open(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    rig = rigline.connect(script.target(f"open({str(called)!r}, 'w').close()\nreply(request)"))
    reconnecting(monkeypatch, rig, rig.close)
    with pytest.raises(rigline.RigClosed):
        rig.op()
    assert not called.exists()
    assert not [live for live in _connection._live if live.name == rig.target and live.is_alive]


def test_g_a_call_that_is_cancelled_while_it_connects_does_not_run(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    with rigline.connect(script.target(f"open({str(called)!r}, 'w').close()\nreply(request)")) as rig:
        with monkeypatch.context() as patched:
            reconnecting(patched, rig, rig.cancel)
            with pytest.raises(rigline.Cancelled):
                rig.op()
        assert not called.exists()
        rig.op()
        assert called.exists()


def test_g_an_awaited_call_that_is_cancelled_before_it_is_sent_does_not_run(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    target = script.target(f"open({str(called)!r}, 'w').close()\nreply(request)")

    async def main() -> None:
        async with rigline.connect_async(target) as rig:
            begun, go_on = threading.Event(), threading.Event()
            call = rigline.Rig._call

            def late(*args: Any, **named: Any) -> Any:
                # The worker has begun, and has not come as far as to the rig's turn.
                begun.set()
                assert go_on.wait(20)
                return call(*args, **named)

            with monkeypatch.context() as patched:
                patched.setattr(rigline.Rig, "_call", late)
                task = asyncio.ensure_future(rig.op())
                await asyncio.get_running_loop().run_in_executor(None, begun.wait, 20)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                go_on.set()
            # Calls take turns: when this has failed or ended, that one has too.
            with pytest.raises(rigline.UnknownOperation):
                await rig.call("none")
            assert not called.exists()
            await rig.op()
            assert called.exists()

    asyncio.run(main())


def test_logs_without_an_end_take_bounded_memory_and_the_dropped_ones_are_counted(script: Script) -> None:
    body = """
line = json.dumps({"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": "x" * 500}}) + "\\n"
for _ in range(400):
    sys.stdout.write(line * 100)
sys.stdout.flush()
reply(request)
"""
    with rigline.connect(script.target(body)) as rig:
        tracemalloc.start()
        try:
            logs = rig.call("op", timeout=60).logs
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(logs) == 4097
        assert logs[0].message == "x" * 500
        assert (logs[-1].level, logs[-1].message) == ("warn", "35904 further log lines were dropped, since there were too many")
        assert peak < 20 << 20, peak


def test_logs_between_calls_are_kept_by_nobody(script: Script) -> None:
    body = """
reply(request)
log = {"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": "y" * 2000}}
for _ in range(20000):
    say(log)
"""
    with rigline.connect(script.target(body)) as rig:
        tracemalloc.start()
        try:
            rig.call("op")
            rig.call("op", timeout=60)
            assert tracemalloc.get_traced_memory()[1] < 20 << 20
        finally:
            tracemalloc.stop()


def test_requests_of_a_peer_that_does_not_read_cost_bounded_memory(script: Script) -> None:
    body = """
for number in range(100000):
    sys.stdout.write('{"jsonrpc":"2.0","id":"%d","method":"%s"}\\n' % (number, "m" * 60))
sys.stdout.flush()
time.sleep(60)
"""
    with rigline.connect(script.target(body)) as rig:
        connection = rig._box[0]
        assert connection is not None
        with pytest.raises(rigline.CallTimeout, match="without reading the answers: [0-9]+ were not answered"):
            rig.call("op", timeout=4)
        assert connection._unwritten < 2 << 20
        assert connection._outgoing.qsize() < 20000
