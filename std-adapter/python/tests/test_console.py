"""The console of the simulated rig's board, by `rig.uart`."""

from __future__ import annotations

from typing import Iterator

import pytest

import rigline
from conftest import Script


@pytest.fixture
def uart() -> Iterator[rigline.Uart]:
    with rigline.connect("sim", timeout=20) as rig:
        rig.power(rail="3V3", on=True)
        rig.uart.expect("> ", within=5)
        yield rig.uart


def test_a_board_is_read_and_written() -> None:
    with rigline.connect("sim", timeout=20) as rig:
        rig.power(rail="3V3", on=True)
        ready = rig.uart.expect(pattern="dut #.#.# ready", within=5)
        assert ready.match == "dut 1.2.0 ready"
        assert ready.before == "\r\ndut boot loader 1.0\r\nimage ok, starting\r\nrails ok\r\n"
        assert (ready.before_count, ready.missed) == (len(ready.before), 0)
        assert "uart: dut boot loader 1.0" in [log.message for log in ready.result.logs]
        rig.uart.expect("> ")
        rig.uart.write("ver\r")
        assert rig.uart.expect("\r\n> ").before == "ver\r\ndut 1.2.0"


def test_a_text_that_does_not_come_fails_the_board_and_says_what_came(uart: rigline.Uart) -> None:
    uart.write("hang\r")
    with pytest.raises(rigline.OperationFailed, match=r"`login:` did not come in \d+ ms: 6 bytes came") as failed:
        uart.expect("login:", within=0.2)
    assert failed.value.result.text("before") == "hang\r\n"
    assert uart.expect("ang").before == "h", "what came is still there"


def test_bytes_that_are_no_text_come_and_go_unchanged(uart: rigline.Uart) -> None:
    everything = bytes(byte for byte in range(256) if byte not in (3, 8, 10, 13, 127))
    for start in range(0, len(everything), 50):
        part = everything[start : start + 50]
        uart.write(b"echo " + part + b"\r")
        echoed = uart.expect("\r\n")
        assert echoed.before_bytes == b"echo " + part
        uart.expect("> ")
    uart.write("echo a\\b\\x41\r")
    assert uart.expect("\r\n").before == "echo a\\b\\x41", "a backslash is a backslash"


def test_a_mark_reads_again_and_a_break_is_sent(uart: rigline.Uart) -> None:
    mark = uart.write("ver\r").integer("mark")
    uart.expect("> ")
    heard = uart.read(since=mark)
    assert (heard.text, heard.missed) == ("ver\r\ndut 1.2.0\r\n> ", 0)
    assert uart.read().data == b""
    uart.send_break(0.01)
    assert uart.expect(b"> ").before_bytes == b"break\r\n"
    uart.write("baud 9600\r")
    uart.expect("> ")
    uart.write("ver\r", speed=9600)
    uart.expect("dut 1.2.0")


def test_what_cannot_be_asked_is_an_error(uart: rigline.Uart, script: Script) -> None:
    for arguments in ({}, {"text": "a", "pattern": "b"}):
        with pytest.raises(TypeError, match="either a text or pattern="):
            uart.expect(**arguments)  # type: ignore[arg-type]
    with pytest.raises(rigline.BadArguments, match="above the maximum 3000000"):
        uart.write("", speed=3_000_001)
    with rigline.connect(script.target("reply(request)")) as rig, pytest.raises(rigline.UnknownOperation, match="uart"):
        _ = rig.uart
