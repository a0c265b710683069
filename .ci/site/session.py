#!/usr/bin/env python3
"""The session that the README and the site show: real commands in a pseudo-terminal.

    session.py check         runs the commands, and fails unless each ends and prints as it should, and pictures/session.cast has the same commands
    session.py write         runs them, and writes pictures/session.cast (the format of asciinema) and pictures/session.svg; it needs pyte

`rigline` is the one in PATH; `.ci/session.sh` calls this with the one of the checkout.
"""
import fcntl
import html
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "firmware-example"
CAST = HERE / "pictures" / "session.cast"
PICTURE = HERE / "pictures" / "session.svg"
COLUMNS, ROWS = 84, 24
# Each command, with texts that it prints.
COMMANDS = [
    ("rigline describe sim measure", ["channel", "samples", "Example:"]),
    ("rigline call sim measure channel=TEMP", ["TEMP is at"]),
    ("rigline call sim self-test", ["all 6 checks passed"]),
    ("rigline eval run evals/rails --target sim", ["3V3 within 5 %", "3 of 3 tasks passed"]),
    ("rigline check sim", ["manifest.schemas", "0 failed"]),
]
# The longest time that a command may take, and the longest pause that the recording keeps, in seconds.
LIMIT, PAUSE = 60, 1.2


class Terminal:
    """A shell in a pseudo-terminal, whose output is kept with its times."""

    def __init__(self, home):
        self.events, self.started = [], time.monotonic()
        self.codes = pathlib.Path(home, "codes")
        self.codes.touch()
        env = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": r"\[\e[32m\]$\[\e[0m\] "}
        # Without what a shell says to a terminal about pasted text.
        pathlib.Path(home, "inputrc").write_text("set enable-bracketed-paste off\n")
        env |= {"INPUTRC": f"{home}/inputrc", "HISTFILE": "", "PROMPT_COMMAND": f"echo $? >>{self.codes}"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(FOLDER)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds):
        """Reads for this long; returns what came."""
        until, came = time.monotonic() + seconds, ""
        while (left := until - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                break
            data = os.read(self.fd, 65536).decode(errors="replace")
            self.events.append((time.monotonic() - self.started, data))
            came += data
        return came

    def prompt(self, count):
        """Waits for this prompt, from 1; returns what came before it, and the exit code of the last command."""
        until, came = time.monotonic() + LIMIT, ""
        while True:
            came += self.read(0.05)
            codes = self.codes.read_text().split()
            if len(codes) >= count and came.rstrip("\x1b[0m ").endswith("$"):
                return came, int(codes[count - 1])
            if time.monotonic() > until:
                sys.exit(f"session: no end within {LIMIT} s; so far:\n{came}")

    def type(self, command, pause):
        for letter in command:
            os.write(self.fd, letter.encode())
            self.read(pause)
        self.read(pause * 8)
        os.write(self.fd, b"\r")

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGHUP)
        os.waitpid(self.pid, 0)


def run(pause, between):
    """Runs the commands, and returns the events."""
    with tempfile.TemporaryDirectory() as home:
        terminal = Terminal(home)
        terminal.prompt(1)
        for number, (command, texts) in enumerate(COMMANDS, 2):
            terminal.read(between if number > 2 else between / 4)
            terminal.type(command, pause)
            came, code = terminal.prompt(number)
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", came)
            missing = [text for text in texts if text not in plain]
            if code or missing:
                terminal.close()
                sys.exit(f"session: {command}: exit {code}, missing: {missing}\n{plain}")
            print(f"session: {command}: passed")
        terminal.read(0.1)
        terminal.close()
        return terminal.events


def shortened(events):
    """The events with pauses of at most PAUSE, and of at most 60 ms between letters that are typed, as on a machine with nothing else to do."""
    kept, before, last, now = [], 0.0, "", 0.0
    for at, data in events:
        now += min(at - before, 0.06 if len(data) == len(last) == 1 else PAUSE)
        before, last = at, data
        kept.append((round(now, 3), data))
    return kept


def check():
    run(0, 0)
    shown = "".join(json.loads(line)[2] for line in CAST.read_text().splitlines()[1:])
    lines = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "").split("\n") if line.startswith("$ ")]
    if [line[2:] for line in lines if line[2:].strip()] != [command for command, _ in COMMANDS]:
        sys.exit("session: the recording has other commands: .ci/session.sh --write makes it anew")


def write():
    events = shortened(run(0.03, PAUSE))
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "rigline with its simulated rig", "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"}}
    CAST.write_text("\n".join(map(json.dumps, [header, *([at, "o", data] for at, data in events)])) + "\n")
    PICTURE.write_text(picture(events))
    print(f"session: {CAST.stat().st_size} B, {PICTURE.stat().st_size} B, {events[-1][0]:.0f} s")


# The picture: each piece of a line is there from its time until the line changes, and the lines move up as the terminal scrolls.
WIDTH, HEIGHT, SIZE, LEFT, TOP = 8.4, 18, 14, 14, 40
COLOURS = {"green": "#7ee787", "red": "#ff7b72", "yellow": "#e3b341", "brown": "#e3b341", "blue": "#79c0ff", "cyan": "#76e3ea", "magenta": "#d2a8ff"}


def picture(events):
    import pyte

    # So many rows that nothing scrolls out: the picture scrolls by itself.
    screen = pyte.Screen(COLUMNS, 400)
    stream = pyte.Stream(screen)
    rows, pieces, moves, bottom = {}, [], [(0.0, 0)], 0
    for at, data in events:
        stream.feed(data)
        for number in sorted(screen.dirty):
            new = cells(screen, number)
            old, shown = rows.get(number, ([], []))
            if new == old:
                continue
            if new[: len(old)] == old:
                first = len(old)
            else:
                first = 0
                for piece in shown:
                    piece["until"] = at
                shown = []
            for start, text, style in runs(new, first):
                piece = {"row": number, "column": start, "text": text, "style": style, "from": at, "until": None}
                pieces.append(piece)
                shown.append(piece)
            rows[number] = (new, shown)
        screen.dirty.clear()
        bottom = max(bottom, screen.cursor.y)
        up = max(0, bottom - ROWS + 1)
        if up != moves[-1][1]:
            moves.append((at, up))
    return drawn(pieces, moves, events[-1][0] + 4)


def cells(screen, number):
    line = screen.buffer[number]
    row = [(line[column].data or " ", style(line[column])) for column in range(COLUMNS)]
    while row and row[-1][0] == " ":
        row.pop()
    return row


def style(cell):
    return (COLOURS.get(cell.fg, ""), cell.bold)


def runs(row, first):
    """The pieces of a row from this column, each of one style and without blanks at its ends."""
    start = first
    for end in range(first, len(row) + 1):
        if end == len(row) or row[end][1] != row[start][1]:
            text = "".join(letter for letter, _ in row[start:end])
            begin = start + len(text) - len(text.lstrip())
            if text.strip():
                yield begin, text.strip(), row[start][1]
            start = end


def drawn(pieces, moves, total):
    def percent(at):
        return f"{100 * at / total:.2f}%"

    width, height = round(COLUMNS * WIDTH + 2 * LEFT), TOP + ROWS * HEIGHT + 12
    spans, body, classes = [], [], {}
    for piece in pieces:
        if piece["until"] is not None and piece["until"] - piece["from"] < 0.02:
            continue
        span = (piece["from"], piece["until"])
        if span not in classes:
            classes[span] = name = f"t{len(classes)}"
            gone = "" if span[1] is None else f"{percent(span[1])},to{{visibility:hidden}}"
            spans.append(f"@keyframes {name}{{0%{{visibility:hidden}}{percent(span[0])}{{visibility:visible}}{gone}}}")
            spans.append(f".{name}{{animation-name:{name}{'' if span[1] is None else ';visibility:hidden'}}}")
        colour, bold = piece["style"]
        looks = (f' fill="{colour}"' if colour else "") + (' font-weight="700"' if bold else "")
        body.append(
            f'<text class="{classes[span]}" x="{LEFT + piece["column"] * WIDTH:.1f}" y="{TOP + 14 + piece["row"] * HEIGHT}"'
            f' textLength="{len(piece["text"]) * WIDTH:.1f}"{looks}>{html.escape(piece["text"], quote=False)}</text>'
        )
    scroll = "".join(f"{percent(at)}{{transform:translateY({-up * HEIGHT}px)}}" for at, up in moves)
    last = -moves[-1][1] * HEIGHT
    names = ", ".join(command for command, _ in COMMANDS)
    return f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="t d">
<title id="t">A terminal session with rigline and its simulated rig</title>
<desc id="d">The commands: {html.escape(names)}</desc>
<style>
text{{font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.s,.s text{{animation-duration:{total:.1f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}
.s{{animation-name:s;transform:translateY({last}px)}}
@keyframes s{{{scroll}}}
{"".join(spans)}
@media (prefers-reduced-motion:reduce){{.s,.s text{{animation:none}}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="none" stroke="#3d444d"/>
<circle cx="20" cy="18" r="5.5" fill="#ff5f57"/><circle cx="38" cy="18" r="5.5" fill="#febc2e"/><circle cx="56" cy="18" r="5.5" fill="#28c840"/>
<clipPath id="c"><rect x="0" y="{TOP - 1}" width="{width}" height="{ROWS * HEIGHT + 5}"/></clipPath>
<g clip-path="url(#c)" fill="#e6edf3"><g class="s">
{chr(10).join(body)}
</g></g>
</svg>
'''


if sys.argv[1:] == ["check"]:
    check()
elif sys.argv[1:] == ["write"]:
    write()
else:
    sys.exit(__doc__)
