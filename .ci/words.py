#!/usr/bin/env python3
"""Holds the prose to the rules of CONTRIBUTING.md. Prints a count for each rule, and each place that breaks one. All counts must be 0.

    words.py            checks
    words.py --write    writes the tests of each case into tests/cases.md, and then checks
"""
import functools
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
FILES = [file for file in FILES if file and (ROOT / file).is_file() and "/dist/" not in file]
NAMES = {pathlib.PurePath(file).name for file in FILES}
CASES = "tests/cases.md"
REPOSITORY = "https://github.com/rigline/rigline"
# Files that programs of other people have.
FOREIGN = {"SKILL.md", "AGENTS.md", "CLAUDE.md", "README.md", "mcp-configuration.md", "mcp-server.md"}


def text(file):
    return (ROOT / file).read_text(encoding="utf-8", errors="replace")


def ending(*ends):
    return [file for file in FILES if file.endswith(ends)]


def first_lines():
    """Doc comments whose first line begins with What, Who or Whose."""
    for file in ending(".rs"):
        before = ""
        for number, line in enumerate(text(file).split("\n"), 1):
            found = re.match(r"\s*(///|//!) (.*)", line)
            is_first = found and not before.strip().startswith(found[1])
            if is_first and re.match(r"(What|Who|Whose)\b", found[2]):
                yield f"{file}:{number}: {found[2]}"
            before = line


def prefixes():
    """Tests whose names begin with letters and a number."""
    for file in ending(".rs", ".mjs", ".js", ".py", ".go"):
        for number, line in enumerate(text(file).split("\n"), 1):
            if re.search(r"""\b(?:trial|Trial::test)\(\s*"[a-z]{1,2}_?\d\d\b|\bname: "[a-z]{1,2}_?\d\d |\bfn [a-z]{1,2}_\d\d_|\bfn [b-z]_[a-z]|\bdef test_[a-z]{1,2}_\d\d_|\b(?:test|it)\(\s*['"`][a-z]{1,2}_\d\d_""", line):
                yield f"{file}:{number}: {line.strip()}"


def missing_files():
    """Doc comments that name a Markdown file which is not in the repository."""
    for file in ending(".rs"):
        for number, line in enumerate(text(file).split("\n"), 1):
            if re.match(r"\s*//[/!]", line):
                for name in re.findall(r"\b([\w-]+\.md)\b", line):
                    if name not in NAMES | FOREIGN:
                        yield f"{file}:{number}: {name}"


def long_readme():
    """Lines of README.md beyond 200."""
    yield from (f"README.md:{number}" for number, _ in enumerate(text("README.md").split("\n")[:-1], 1) if number > 200)


def long_changelog():
    """Lines of CHANGELOG.md beyond 40 that describe the version which is not out yet."""
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", text("CHANGELOG.md"), re.S | re.M)
    yield from (line for line in list(filter(None, unreleased[1].split("\n") if unreleased else []))[40:])


def without_code(markdown):
    return re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), markdown, flags=re.S | re.M)


def anchors(markdown):
    for heading in re.findall(r"^#+ (.*)$", without_code(markdown), re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
        yield plain.strip().replace(" ", "-")


def links_of(markdown):
    prose = without_code(markdown)
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r"^\[[^\]]+\]: (\S+)$", prose, re.M)


def dead_links():
    """Links of Markdown files that lead to no file, or to no heading."""
    for file in ending(".md"):
        if pathlib.PurePath(file).name == "links.md":
            continue
        for link in links_of(text(file)):
            here = re.match(f"{REPOSITORY}/(?:blob|tree|raw)/main/(.+)", link)
            if not here and (re.match(r"[a-z]+:|crate|rigline|`", link) or "::" in link):
                continue
            path, _, anchor = (here[1] if here else link).partition("#")
            target = (ROOT if here else (ROOT / file).parent) / path if path else ROOT / file
            if not target.exists():
                yield f"{file}: {link}"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                yield f"{file}: {link}: there is no such heading"


def chapters():
    return [file for file in ending(".md") if "/src/guide/" in file]


def unknown_in_rustdoc():
    """Links of the guide's chapters that rustdoc would not resolve: links.md beside them must have each."""
    for file in chapters():
        if file.endswith("/links.md"):
            continue
        beside = pathlib.PurePath(file).parent / "links.md"
        known = re.findall(r"^\[([^\]]+)\]: ", text(str(beside)), re.M) if str(beside) in FILES else []
        defined = [name.lower() for name in re.findall(r"^\[([^\]]+)\]: ", text(file), re.M)]
        for name in re.findall(r"\]\[([^\]]+)\]", without_code(text(file))):
            if name.lower() not in defined:
                yield f"{file}: [{name}] is not defined at the end"
        for name, link in re.findall(r"^\[([^\]]+)\]: (\S+)$", text(file), re.M):
            if not link.startswith("http") and name not in known:
                yield f"{file}: [{name}] is not in {beside}"
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text(file))):
            if not link.startswith("http"):
                yield f"{file}: {link}: write [text][name], with the name in the file and in {beside}"


def unlisted_chapters():
    """Chapters of the guide that README.md does not link."""
    readme = text("README.md")
    yield from (file for file in chapters() if not file.endswith("/links.md") and f"({file})" not in readme)


def tests_by_report():
    """The tests whose comments have the address of a public report, such as `owner/repo#12`: above the test, or in it."""
    found = {}
    for file in ending(".rs", ".mjs", ".py"):
        lines = text(file).split("\n")
        name = None
        # A list of tests has their names as strings.
        listed = r"""|(?:.*\btrial\(|.*Trial::test\(|\(|name: |)"([a-z][\w ,'-]+)",""" if "libtest_mimic" in text(file) or "/tests/host/" in file else ""
        starts = [re.match(r"""(\s*)(?:pub )?(?:async )?(?:fn (\w+)|def (test_\w+)|test\(\s*['"`]([^'"`]+)""" + listed + ")", line) for line in lines]
        for number, line in enumerate(lines):
            name = next(filter(None, starts[number].groups()[1:]), name) if starts[number] else name
            comment = re.search(r"(?://[/!]?|#) (.*)", line)
            reports = re.findall(r"[A-Za-z0-9][\w-]*/[\w.-]+#\d+", comment[1]) if comment else []
            if not reports:
                continue
            rest = number + 1
            while rest < len(lines) and re.match(r"\s*(//|#|@|.*\)\]$)", lines[rest]):
                rest += 1
            below = starts[rest] if rest < len(lines) else None
            of = next(filter(None, below.groups()[1:])) if below else name
            for report in reports:
                found.setdefault(report, []).append(f"{file}: {of}")
    return found


def rows():
    """The rows of tests/cases.md: case, reports, tests."""
    return re.findall(r"^\| ([A-Z]+-\d+) \| (.*?) \| (.*?) \|$", text(CASES), re.M)


def tests_of(reports, found):
    tests = {test for report in reports.split(", ") for test in found.get(report, [])}
    return "<br>".join(f"`{test}`" for test in sorted(tests))


def write_cases():
    found, lines = tests_by_report(), text(CASES)
    for case, reports, tests in rows():
        lines = lines.replace(f"| {case} | {reports} | {tests} |", f"| {case} | {reports} | {tests_of(reports, found)} |")
    (ROOT / CASES).write_text(lines, encoding="utf-8")


def cases():
    """Cases whose tests are not those of tests/cases.md (words.py --write writes them)."""
    found = tests_by_report()
    for case, reports, tests in rows():
        now = tests_of(reports, found)
        if not now:
            yield f"{CASES}: {case} has no test: no comment has the address {reports.replace(', ', ' or ')}"
        elif now != tests:
            yield f"{CASES}: {case} has the tests {now}"


@functools.cache
def packages():
    told = subprocess.run(["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(told.stdout)["packages"]


def published():
    """The packages that are published as crates, each with its folder."""
    return [(package, pathlib.Path(package["manifest_path"]).parent) for package in packages() if package["publish"] is None]


def package_metadata():
    """What the manifests of published packages lack."""
    for package, folder in published():
        for member in ["description", "readme", "repository", "documentation", "license", "keywords", "categories", "rust_version"]:
            if not package[member]:
                yield f"{package['name']}: {member}"
        if package["readme"] and not (folder / package["readme"]).is_file():
            yield f"{package['name']}: there is no {package['readme']}"
        elif package["readme"] and ".." in package["readme"]:
            yield f"{package['name']}: {package['readme']} is not its own"
        if len(package["keywords"]) > 5 or any(len(keyword) > 20 for keyword in package["keywords"]) or len(package["categories"]) > 5:
            yield f"{package['name']}: crates.io takes 5 keywords of 20 letters, and 5 categories"
        if package["documentation"] != f"https://docs.rs/{package['name']}":
            yield f"{package['name']}: its documentation is at https://docs.rs/{package['name']}"
        if not ((package["metadata"] or {}).get("docs") or {}).get("rs", {}).get("all-features"):
            yield f"{package['name']}: [package.metadata.docs.rs] has no all-features"


def package_readmes():
    """READMEs of packages that do not stand alone: a relative link, no example, or an example that no file has."""
    files = [str((folder / package["readme"]).relative_to(ROOT)) for package, folder in published() if package["readme"]]
    sources = "\n".join(text(file) for file in ending(".rs"))
    for file in files + [f"std-adapter/{client}/README.md" for client in ("python", "js", "go", "web")]:
        readme = text(file)
        for link in links_of(readme):
            if not re.match(r"https?://|#", link):
                yield f"{file}: {link}: the address must be a whole one, since the file is read elsewhere"
        examples = re.findall(r"^```(\w[\w,]*)\n(.*?)^```", readme, re.S | re.M)
        if not any(kind.startswith(("rust", "console", "python", "js", "go")) for kind, _ in examples):
            yield f"{file}: there is no example"
        for kind, example in examples:
            if kind == "rust,ignore" and example not in sources:
                yield f"{file}: the example that is not compiled is in no source file: {example.splitlines()[0]}"


def pictures():
    """Pictures that are too large, have no description, load something, or have one colour for light and dark pages."""
    for file in ending(".svg"):
        if not file.startswith(".ci/site/pictures/"):
            continue
        drawing = text(file)
        names = {element.tag.partition("}")[2] for element in xml.etree.ElementTree.fromstring(drawing).iter()}
        if len(drawing.encode()) > 80_000:
            yield f"{file}: {len(drawing.encode())} bytes, of 80,000 at most"
        if not {"title", "desc"} <= names:
            yield f"{file}: it has no <title> or no <desc>"
        if {"script", "image", "foreignObject"} & names or re.search(r"(?:href|url|@import)\W+(?:https?:)?//", drawing):
            yield f"{file}: it has a script, or loads something"
        # A picture has its own ground, since the page's colour is not known: one that is dark in both, or one that follows the reader's choice.
        ground = re.search(r"<rect [^>]*fill[=:]\"?(#0d1117|var\(--ground\))", drawing)
        if not ground or ground[1].startswith("var") and "prefers-color-scheme:dark" not in drawing:
            yield f"{file}: it has no ground of its own for light and dark pages"


def test_programs():
    """Test programs beyond 12, of all packages."""
    programs = [f"{package['name']}: {target['name']}" for package in packages() for target in package["targets"] if target["kind"] == ["test"]]
    yield from programs if len(programs) > 12 else []


# The most functions that the list of rigline's public API may have: 860 at 358bd94.
PUBLIC_FUNCTIONS = 600
# Names that had several meanings, and how many types may have each. Others have a qualified name, such as HttpServer. The two drivers of the core
# are both `Server`.
ONE_MEANING = {"Server": 2, "Answer": 0, "Session": 1, "Place": 0, "Kind": 0, "Client": 1, "Check": 0}


def public_functions():
    """Functions of rigline's public API beyond 600."""
    functions = [line for line in text(".ci/api/rigline.txt").split("\n") if re.match(r"pub (?:const |async |unsafe )?fn ", line)]
    yield from functions[PUBLIC_FUNCTIONS:]


def double_paths():
    """Public types of rigline that have two paths: two paths of one name, with the same members."""
    for file in ending(".txt"):
        if file != ".ci/api/rigline.txt":
            continue
        types, members = {}, {}
        for line in text(file).split("\n"):
            declared = re.match(r"(?:#\[[^]]*\] )*pub (?:struct|enum|trait|type|union) ([\w:]+)", line)
            if declared:
                types.setdefault(declared[1].split("::")[-1], set()).add(declared[1])
            member = re.match(r"pub (?:(?:const |async |unsafe )?fn |const |type )?((?:\w+::)+\w+)(?:<[^(]*>)?::(\w+)", line)
            if member:
                members.setdefault(member[1], set()).add(member[2])
        for paths in types.values():
            seen = {}
            for path in sorted(paths):
                same = seen.setdefault(frozenset(members.get(path, ())), path)
                if same != path and members.get(path):
                    yield f"{file}: {same} and {path}"


def names_of_several_things():
    """Names of types that stand for several things."""
    for name, most in ONE_MEANING.items():
        found = []
        for file in ending(".rs"):
            if "/src/" in file and not file.startswith("tests/"):
                found += [f"{file}: {name}" for _ in re.findall(rf"\b(?:struct|enum|trait|type|union) {name}\b", text(file))]
        yield from found[most:]


RULES = [double_paths, names_of_several_things, first_lines, prefixes, missing_files, long_readme, long_changelog, dead_links, unknown_in_rustdoc, unlisted_chapters, cases, test_programs, package_metadata, package_readmes, pictures]


def main():
    if sys.argv[1:] == ["--write"]:
        write_cases()
    elif sys.argv[1:]:
        sys.exit(__doc__)
    broken = 0
    for rule in RULES:
        places = list(rule())
        broken += len(places)
        print(f"{len(places):4} {rule.__doc__.split(chr(10))[0]}")
        for place in places[:20]:
            print(f"       {place}")
    sys.exit(broken != 0)


main()
