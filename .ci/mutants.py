#!/usr/bin/env python3
"""What the tests of the core did with the mutants that cargo-gamma made, by the names that cargo-mutants has for them.

mutants.py REPORT FOLDER: reads cargo-gamma's REPORT and FOLDER/mutants.json, the list of cargo-mutants, and adds the names to the files caught,
missed, timeout and unviable of the folder, as .ci/mutants.sh counts them. The two differ in where they say that a change is: cargo-gamma names the
expression, cargo-mutants the operator in it.
"""
import collections, json, pathlib, re, sys

OPERATORS = dict(add="+", sub="-", mul="*", div="/", rem="%", shl="<<", shr=">>", lt="<", le="<=", gt=">", ge=">=", eq="==", ne="!=")
OPERATORS |= {"and": "&", "or": "|", "xor": "^"}


def place(of):
    return of["line"], of["column"]


def operators(family, change):
    """The operators before and after a change such as `lt_to_le`."""
    pair = [OPERATORS.get(name) for name in change.split("_to_")]
    if len(pair) != 2 or None in pair or family not in ("relational", "arith", "bitwise", "shift", "assign", "logical"):
        return None
    if family == "logical":
        return tuple(2 * operator for operator in pair)
    return tuple(operator + "=" * (family == "assign") for operator in pair)


def squeezed(text):
    return re.sub(r"\s+", "", text)


def is_same(wanted, made):
    """Whether a mutant of cargo-gamma makes the change that one of cargo-mutants makes."""
    family, _, change = made["mutatorName"].partition(".")
    begin, end = place(made["location"]["start"]), place(made["location"]["end"])
    start, stop = place(wanted["span"]["start"]), place(wanted["span"]["end"])
    is_around = begin <= start and stop <= end
    match wanted["genre"]:
        case "FnValue":
            return family == "fn_value" and is_around and squeezed(made["replacement"]) == squeezed(wanted["replacement"])
        case "MatchArmGuard":
            return family == "match_guard" and begin == start and change == f"always_{wanted['replacement']}"
        case "MatchArm":
            return family == "match_arm" and begin == start
        case "UnaryOperator":
            return family == "unary" and begin == start
        case "StructField":
            return family == "struct_field" and is_around and field_of(wanted) not in squeezed(made["replacement"])
        case "BinaryOperator":
            before = re.search(r": replace (\S+) with ", wanted["name"])
            return is_around and before is not None and operators(family, change) == (before[1], wanted["replacement"])
    return False


def field_of(wanted):
    return re.search(r"delete field (\w+) ", wanted["name"])[1] + ":"


def outcome(made):
    reason = made.get("statusReason") or ""
    if made["status"] == "Survived":
        return "timeout" if reason.startswith(("timed out: ", "out of memory: ")) else "missed"
    return {"Killed": "caught", "Timeout": "timeout", "NoCoverage": "missed", "CompileError": "unviable"}.get(made["status"])


report, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
files = {name: file["mutants"] for name, file in json.loads(report.read_text())["files"].items()}
names, others = collections.defaultdict(list), 0
for wanted in json.loads((folder / "mutants.json").read_text()):
    # Of several expressions around an operator, the innermost is the one whose operator it is.
    made = min(
        (made for made in files.get(wanted["file"], []) if is_same(wanted, made)),
        key=lambda made: (-place(made["location"]["start"])[0], -place(made["location"]["start"])[1], place(made["location"]["end"])),
        default=None,
    )
    if found := made and outcome(made):
        names[found].append(re.sub(r"^([^:]+):\d+:\d+: ", r"\1: ", wanted["name"]))
    else:
        others += 1
for kind, lines in names.items():
    with (folder / kind).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
print(f"mutants: {others} of cargo-mutants' are not among those that cargo-gamma makes: its shards have them")
