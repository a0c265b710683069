#!/usr/bin/env python3
"""The figures of the READMEs; .ci/numbers.sh calls it.

    figures.py check firmware TABLE     compares what tests/emulator/table.mjs printed to the file TABLE with the table
    figures.py check boards TABLE       compares what .ci/sizes.py printed to the file TABLE with the table
    figures.py check bench BENCH        compares the counts that the bench printed to the file BENCH with the tables
    figures.py check growth CSV         compares the counts that `rigline-growth measure` printed to the file CSV with growth.csv
    figures.py check plot FOLDER        compares what `rigline-growth draw` made of growth.csv, in FOLDER, with what is committed
    figures.py update firmware TABLE
    figures.py update boards TABLE
    figures.py update bench BENCH [TIMES]   TIMES has further rows for the second table, as the other benches print them
    figures.py update plot FOLDER
    figures.py update mcp TIMES         writes the table that tests/mcp/bench.py printed into tests/bench/README.md
    figures.py update load RESULT       writes what tests/load/run.sh printed to the file RESULT there
    figures.py update lab RESULT        writes the tables that the lab's long tests printed to the file RESULT into std-adapter/lab/README.md
    figures.py update hosts RESULT      the same for the tests of several hosts
    figures.py conformance REQUIREMENTS EXPECTED REVISION WAY    prints a row of .ci/mcp.sh's table: how many scenarios of a revision pass
    figures.py check conformance TSV    compares these rows with the table in tests/bench/README.md
    figures.py update conformance TSV
    figures.py update summary           makes README.md's tables anew from those of tests/bench/README.md
    figures.py self-test                changes each count of ours by 3 %, in both directions, and expects a failure that names it

Counts (instructions, cycles, bytes, allocations) repeat; one that is more than 2 % off, up or down, fails. The instructions of another
library are printed, and do not fail: memchr, simd-json and sonic-rs choose their code by the processor. Times are written and never compared. The tables of README.md are made from those of tests/bench/README.md, and must be equal to them.
"""
import csv
import pathlib
import re
import shutil
import sys
import textwrap

TOLERANCE = 0.02
BENCH = "tests/bench/README.md"
FIRMWARE = "firmware-example/README.md"
BOARDS = "firmware-example/boards/README.md"
LAB = "std-adapter/lab/README.md"
GROWTH = "tests/bench/growth.csv"
PLOTS = ["growth-light.svg", "growth-dark.svg"]
README = "README.md"


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def region(path, name=""):
    """A file's text before, within and after the marks of these figures."""
    text = read(path)
    found = re.search(rf"(<!-- figures{name} -->\n)(.*?)(<!-- /figures{name} -->)", text, re.S)
    if not found:
        sys.exit(f"{path} has no <!-- figures{name} --> … <!-- /figures{name} -->")
    return text[: found.end(1)], found.group(2), text[found.start(3):]


def write(path, name, within):
    before, _, after = region(path, name)
    pathlib.Path(path).write_text(before + within + after, encoding="utf-8")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(text):
    """The number at the start of a cell, such as 1,400 B; None if there is none."""
    found = re.match(r"[\d,]+", text)
    return int(found[0].replace(",", "")) if found else None


# What is counted, by its name.


def firmware_counts(table):
    rows = [cells(line) for line in table.splitlines() if line.startswith("|")]
    return {row[0]: number(row[1]) for row in rows if number(row[1]) is not None}


def bench_counts(tables):
    found = {}
    for line in tables.splitlines():
        row = cells(line)
        if len(row) == 3 and row[1].isdigit():
            found[f"instructions of {row[0]}"] = int(row[1])
        elif len(row) == 6 and "allocations" in row[0]:
            found[row[0]] = int(row[2])
    return found


def growth_counts(text):
    rows = csv.DictReader(text.splitlines())
    return {f"{row['series']} of {row['size']}, {who}": int(row[who]) for row in rows for who in ("rigline", "serde_json") if row[who]}


# The tables that are made from others.


def summary(tables):
    """README.md's tables: the comparisons with other libraries, and those with the least that the work can cost."""
    faster = ["| beside another library | theirs | rigline | times as fast |", "|---|---:|---:|---:|"]
    dearer = ["| beside the least possible | the least | rigline | times the least |", "|---|---:|---:|---:|"]
    for row in map(cells, tables.splitlines()):
        if len(row) == 6 and row[1] != "theirs" and not row[1].startswith("---"):
            grouped = lambda text: re.sub(r"\d{4,}", lambda digits: f"{int(digits[0]):,}", text)
            table = dearer if ", beside " in row[0] else faster
            table.append(f"| {row[0]} | {grouped(row[1])} | {grouped(row[2].split(': ')[-1])} | {row[3]} |")
    return "\n".join([*faster, "", *dearer, "", *conforms()]) + "\n"


def conforms():
    """README.md's sentence about the conformance suite of MCP, from the table."""
    head, _, *rows = map(cells, region(BENCH, ": conformance")[1].splitlines())
    of = [re.fullmatch(r"(\S+), of (\d+)", cell).groups() for cell in head[1:]]
    each = [[row[nth] for row in rows] for nth in range(1, len(head))]
    nouns = [" scenarios", *[""] * len(of)]
    texts = [
        f"{', '.join(some)} and {last} of {count}{noun} of {revision}"
        for (revision, count), (*some, last), noun in zip(of, each, nouns)
    ]
    text = (
        "Of MCP's [conformance suite](tests/bench/README.md#mcp), an extension, `rigline serve` and `rigline mcp` "
        f"pass {', '.join(texts)}."
    )
    return textwrap.wrap(text, 100, break_on_hyphens=False)


def cycles(table):
    """The rows of the firmware's table that tests/bench/README.md has, too."""
    rows = [line for line in table.splitlines() if line.startswith("| cycles: ")]
    return "\n".join(["| RP2040, in the emulator | cycles | goal |", "|---|---:|---:|"] + [row.replace("cycles: ", "", 1) for row in rows]) + "\n"


def is_of_another_library(name):
    return name.startswith("instructions of ") and not name.startswith("instructions of rigline")


def scenarios(requirements, expected):
    """How many of the scenarios pass that a revision requires of a server, and how many it requires."""
    server = re.search(r"^server:\n((?:  - .*\n|\s*#.*\n|\n)+)", requirements, re.M)
    required = set(re.findall(r"^  - ([\w-]+)", server[1] if server else "", re.M))
    # The suite fails if one of these passes, or if another one does not.
    failing = {name.split(":")[0] for name in re.findall(r"^  - (\S+)", expected, re.M)}
    if not required or not failing <= required:
        sys.exit(f"the suite does not require {', '.join(sorted(failing - required)) or 'any scenario'}")
    return len(required - failing), len(required)


WAYS = {"directly": "an extension over HTTP", "serve": "`rigline serve` in front of it", "mcp": "`rigline mcp` in front of it"}


def conformance(tsv):
    """The table of the conformance suite."""
    found = {(row[0], row[1]): (row[2], row[3]) for row in csv.reader(tsv.splitlines(), delimiter="\t")}
    revisions = list(dict.fromkeys(revision for revision, _ in found))
    lines = [f"| scenarios that pass | {' | '.join(f'{revision}, of {found[revision, next(iter(WAYS))][1]}' for revision in revisions)} |"]
    lines.append("|---|" + "---:|" * len(revisions))
    lines += [f"| {text} | {' | '.join(found[revision, way][0] for revision in revisions)} |" for way, text in WAYS.items()]
    return "\n".join(lines) + "\n"


def differences(known, now, path):
    """One line for each count, and those that fail."""
    lines, failed = [], []
    for name in dict.fromkeys([*known, *now]):
        before, after = known.get(name), now.get(name)
        if before is None:
            change = f"{after:,}, and {path} does not have it"
        elif after is None:
            change = f"{path} has it as {before:,}, and it was not measured"
        else:
            percent = (after - before) / before * 100 if before else 100.0 * (after > 0)
            direction = "grown" if after > before else "fallen"
            change = f"{after:,}, in {path} {before:,}" + (f": {direction} by {abs(percent):.1f} %" if after != before else "")
        is_same = None not in (before, after) and (is_of_another_library(name) or abs(after - before) <= TOLERANCE * before)
        lines.append(f"{'  ' if is_same else '! '}{name}: {change}")
        if not is_same:
            failed.append(name)
    return lines, failed


def compare(known, now, path):
    lines, failed = differences(known, now, path)
    print("\n".join(lines))
    return [f"{path}: {name}" for name in failed]


def is_equal(made, written, what):
    if made != written:
        print(f"! {what}")
    return [] if made == written else [what]


def check(what, file):
    if what == "firmware":
        table = region(FIRMWARE)[1]
        failed = compare(firmware_counts(table), firmware_counts(read(file)), FIRMWARE)
        failed += is_equal(cycles(table), region(BENCH, ": rp2040")[1], f"the cycles in {BENCH} are not those in {FIRMWARE}")
    elif what == "boards":
        failed = compare(firmware_counts(region(BOARDS)[1]), firmware_counts(read(file)), BOARDS)
    elif what == "bench":
        tables = region(BENCH)[1]
        failed = compare(bench_counts(tables), bench_counts(read(file)), BENCH)
        failed += is_equal(summary(tables), region(README, ": bench")[1], f"the tables of {README} are not those of {BENCH}")
    elif what == "growth":
        failed = compare(growth_counts(read(GROWTH)), growth_counts(read(file)), GROWTH)
    elif what == "conformance":
        failed = is_equal(conformance(read(file)), region(BENCH, ": conformance")[1], f"the table of the conformance suite in {BENCH}")
    elif what == "plot":
        failed = []
        for name in PLOTS:
            failed += is_equal(read(f"{file}/{name}"), read(f"tests/bench/{name}"), f"tests/bench/{name} is not drawn from {GROWTH}")
        failed += is_equal(read(f"{file}/table.md"), region(BENCH, ": growth")[1], f"the table of the growth in {BENCH} is not made from {GROWTH}")
    else:
        sys.exit(__doc__)
    if failed:
        sys.exit(
            f"figures that differ from what is written (counts by more than 2 %): {len(failed)}. "
            "If the change is intended, run .ci/numbers.sh --update, and give the reason in the commit message."
        )


def update(what, file, *more):
    if what == "firmware":
        write(FIRMWARE, "", read(file))
        write(BENCH, ": rp2040", cycles(read(file)))
    elif what == "boards":
        write(BOARDS, "", read(file))
    elif what == "bench":
        rows = [line for path in more for line in read(path).splitlines() if line.startswith("|") and len(cells(line)) == 6]
        tables = read(file).strip() + "\n" + "".join(f"{row}\n" for row in rows)
        write(BENCH, "", tables)
        write(README, ": bench", summary(tables))
    elif what == "plot":
        for name in PLOTS:
            shutil.copy(f"{file}/{name}", f"tests/bench/{name}")
        write(BENCH, ": growth", read(f"{file}/table.md"))
    elif what == "mcp":
        rows = [line for line in read(file).splitlines() if line.startswith("|") and len(cells(line)) == 4]
        if len(rows) < 4:
            sys.exit(f"{file} has no table of tests/mcp/bench.py")
        write(BENCH, ": mcp", "".join(f"{row}\n" for row in rows))
    elif what == "conformance":
        write(BENCH, ": conformance", conformance(read(file)))
        write(README, ": bench", summary(region(BENCH)[1]))
    elif what == "load":
        ratio = re.search(r"median ([\d.]+), from ([\d.]+) to ([\d.]+); errors: (\d+)", read(file))
        if not ratio:
            sys.exit(f"{file} has no result of tests/load/run.sh")
        median, least, most, errors = ratio.groups()
        text = f"The last run gave a median of {median} times the twin's requests per second, from {least} to {most}, and {errors} errors.\n"
        write(BENCH, ": load", text)
    elif what in ("lab", "hosts"):
        # A table each, wherever it begins in what the tests print.
        tables = re.findall(r"(?:^\|.*\n)+", read(file), re.M)
        if len(tables) < 2:
            sys.exit(f"{file} has no two tables")
        write(LAB, f": {what}", "\n".join(tables))
    else:
        sys.exit(__doc__)


def self_test():
    """With the counts that are in the files, one of them changed: a change of 3 % fails, one of 1 % does not."""
    written = [
        (FIRMWARE, firmware_counts(region(FIRMWARE)[1])),
        (BOARDS, firmware_counts(region(BOARDS)[1])),
        (BENCH, bench_counts(region(BENCH)[1])),
        (GROWTH, growth_counts(read(GROWTH))),
    ]
    for path, known in written:
        assert len(known) > 5, f"{path} has only {len(known)} counts"
        assert differences(known, known, path)[1] == []
        for name, count in known.items():
            if count < 1000:
                continue
            for factor, word in [(1.03, "grown by 3.0 %"), (0.97, "fallen by 3.0 %")]:
                lines, failed = differences(known, known | {name: round(count * factor)}, path)
                told = [line for line in lines if line.startswith("! ")]
                if is_of_another_library(name):
                    assert failed == told == [] and any(name in line and word in line for line in lines), (name, lines)
                    continue
                assert failed == [name] and len(told) == 1 and name in told[0] and word in told[0], (name, told)
            assert differences(known, known | {name: round(count * 1.01)}, path)[1] == [], name
            missing = {other: value for other, value in known.items() if other != name}
            assert differences(known, missing, path)[1] == differences(missing, known, path)[1] == [name]
    assert differences({"allocations": 0}, {"allocations": 1}, BENCH)[1] == ["allocations"]
    print("figures.py: a count of ours that changes by 3 % fails, up and down")


def main(arguments):
    match arguments:
        case ["check", what, file]:
            check(what, file)
        case ["update", "summary"]:
            write(README, ": bench", summary(region(BENCH)[1]))
        case ["update", what, file, *more]:
            update(what, file, *more)
        case ["conformance", requirements, expected, revision, way]:
            print(revision, way, *scenarios(read(requirements), read(expected)), sep="\t")
        case ["self-test"]:
            self_test()
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
