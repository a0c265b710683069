#!/usr/bin/env python3
"""Speaks rigline's binary link over TCP, from the page of `rigline::link` alone, with nothing but the standard library.

    link.py PORT SESSION LINE...      sends each line as a request, and prints the lines that come of it

Each request is damaged once on its way, so that the device has to ask for it again.
"""
import socket
import sys
import zlib

HELLO, REQUEST, CANCEL, REPLY, LOG, DAMAGED, UNKNOWN, TOO_LONG = range(1, 9)


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data, at):
    number, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def stuff(data):
    """Each block: a code byte n, and n - 1 bytes other than zero. It stands for these and a zero; n = 255 for these only."""
    out, block = bytearray(), bytearray()
    for byte in data:
        if byte:
            block.append(byte)
        if not byte or len(block) == 254:
            out += bytes([len(block) + 1]) + block
            block.clear()
    return bytes(out + bytes([len(block) + 1]) + block)


def unstuff(data):
    out, at = bytearray(), 0
    while at < len(data):
        code = data[at]
        if code == 0 or at + code > len(data):
            return None
        out += data[at + 1 : at + code]
        at += code
        if code != 255 and at < len(data):
            out.append(0)
    return bytes(out)


def encode(kind, sequence, payload=b""):
    body = bytes([kind]) + varint(sequence) + varint(len(payload)) + payload
    return stuff(body + zlib.crc32(body).to_bytes(4, "little")) + b"\0"


def decode(frame):
    data = unstuff(frame)
    if data is None or len(data) < 7 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    sequence, at = read_varint(data, 1)
    length, at = read_varint(data, at)
    return data[0], sequence, data[at : at + length]


class Link:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(20)
        self.buffer = b""

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        while True:
            while b"\0" not in self.buffer:
                data = self.socket.recv(4096)
                if not data:
                    raise SystemExit("the wire is gone")
                self.buffer += data
            frame, self.buffer = self.buffer.split(b"\0", 1)
            if frame and (decoded := decode(frame)):
                return decoded


def main():
    port, session, lines = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    link = Link(port)
    link.send(b"\0" + encode(HELLO, session))
    while link.receive()[:2] != (HELLO, session):
        pass
    for sequence, line in enumerate(lines, 1):
        request = encode(REQUEST, sequence, line.encode())
        damaged = bytearray(request)
        damaged[len(damaged) // 2] ^= 4 if damaged[len(damaged) // 2] != 4 else 8
        link.send(damaged)
        while True:
            kind, number, payload = link.receive()
            if kind == DAMAGED:
                link.send(request)
            elif kind == LOG:
                print(payload.decode())
            elif kind == REPLY and number == sequence:
                print(payload.decode(), flush=True)
                break
            else:
                raise SystemExit(f"unexpected: kind {kind}, sequence {number}")


if __name__ == "__main__":
    main()
