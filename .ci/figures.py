#!/usr/bin/env python3
"""The figures of tests/bench/README.md and README.md; .ci/numbers.sh calls it.

    figures.py BENCH            compares the counts that the bench printed to the file BENCH with the tables
    figures.py BENCH --update   writes the tables
    figures.py --load RESULT    writes what tests/load/run.sh printed to the file RESULT into README.md

Counts (instructions, allocations) repeat; one that is off by more than 2 % fails. Times are written and never compared. The table
of README.md is made from that of tests/bench/README.md, and must be equal to it.
"""
import re
import sys

TOLERANCE = 0.02
BENCH = "tests/bench/README.md"
README = "README.md"


def region(path, name):
    """A file's text before, within and after the marks of these figures."""
    text = open(path, encoding="utf-8").read()
    found = re.search(rf"(<!-- figures{name} -->\n)(.*?)(<!-- /figures{name} -->)", text, re.S)
    if not found:
        sys.exit(f"{path} has no <!-- figures{name} --> … <!-- /figures{name} -->")
    return text[: found.end(1)], found.group(2), text[found.start(3):]


def write(path, name, within):
    before, _, after = region(path, name)
    open(path, "w", encoding="utf-8").write(before + within + after)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def counts(tables):
    """The counts in the bench's tables, by their names."""
    found = {}
    for line in tables.splitlines():
        row = cells(line)
        if len(row) == 3 and row[1].isdigit():
            found[f"instructions of {row[0]}"] = int(row[1])
        elif len(row) == 6 and "allocations" in row[0]:
            found[row[0]] = int(row[2])
    return found


def summary(tables):
    """README.md's table: the comparisons alone."""
    lines = ["| | theirs | rigline | ratio |", "|---|---:|---:|---:|"]
    for line in tables.splitlines():
        row = cells(line)
        if len(row) != 6 or row[1] == "theirs" or row[1].startswith("---"):
            continue
        what, theirs, ours, ratio = row[:4]
        unit = " ns" if "wall clock" in what else ""
        number = lambda text: re.sub(r"\d+$", lambda digits: f"{int(digits[0]):,}{unit}", text)
        lines.append(f"| {what} | {number(theirs)} | {number(ours.split(': ')[-1])} | {ratio} |")
    return "\n".join(lines) + "\n"


def compare(measured):
    written = region(BENCH, "")[1]
    known, now, failed = counts(written), counts(measured), 0
    for name in sorted(known.keys() | now.keys()):
        before, after = known.get(name), now.get(name)
        is_same = None not in (before, after) and abs(after - before) <= TOLERANCE * before
        failed += not is_same
        print(f"{'  ' if is_same else '! '}{name}: {after}, in the table {before}")
    if region(README, ": bench")[1] != summary(written):
        print(f"! the table of {README} is not that of {BENCH}")
        failed += 1
    if failed:
        sys.exit(f"figures that differ: {failed}; run .ci/numbers.sh --update, and say why in the commit")


def main(arguments):
    if arguments[:1] == ["--load"] and len(arguments) == 2:
        ratio = re.search(r"median ([\d.]+), from ([\d.]+) to ([\d.]+); errors: (\d+)", open(arguments[1]).read())
        if not ratio:
            sys.exit(f"{arguments[1]} has no result of tests/load/run.sh")
        median, least, most, errors = ratio.groups()
        text = f"The last run gave a median of {median} times the twin's requests per second, from {least} to {most}, and {errors} errors.\n"
        write(README, ": load", text)
        return
    if not arguments or arguments[1:] not in ([], ["--update"]):
        sys.exit(__doc__)
    measured = open(arguments[0], encoding="utf-8").read().strip() + "\n"
    if "skipped" in measured:
        print(measured.strip().splitlines()[-1])
        return
    if arguments[1:]:
        write(BENCH, "", measured)
        write(README, ": bench", summary(measured))
    else:
        compare(measured)


main(sys.argv[1:])
