#!/usr/bin/env python3
"""Writes the source of the site for mdBook, from the Markdown of the repository. `.ci/site.sh` calls it.

    pages.py FOLDER

A link to a file that is a page leads to that page, also if the link has the address of the repository or of docs.rs, where readers of the single
packages find the same text. A link to another file leads to the repository. The parts are those of README.md's table "Where to read on"; a chapter
that a package's `guide.rs` has, and the site has not, is an error.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REPOSITORY = "https://github.com/rigline/rigline"
RAW = "https://raw.githubusercontent.com/rigline/rigline/main/"
# Pages besides those of README.md's table: the part, the file, the page's address, and its title if that is not its first heading.
MORE = [
    ("Run it on a board", "firmware-example/README.md", "boards/rig.md", "The rig: wiring, flashing, figures"),
    ("Run it on a board", "firmware-example/boards/README.md", "boards/images.md", "Boards that are built and tested"),
    ("Run it on a board", "firmware-example/embassy/README.md", "boards/embassy.md", "Firmware on embassy"),
    ("Run it on a board", "tests/emulator/README.md", "boards/emulator.md", "The emulator"),
    ("Use it from other languages", "std-adapter/python/README.md", "clients/python.md", "Python and pytest"),
    ("Use it from other languages", "std-adapter/js/README.md", "clients/javascript.md", "JavaScript"),
    ("Use it from other languages", "std-adapter/go/README.md", "clients/go.md", "Go"),
    ("Use it from other languages", "std-adapter/web/README.md", "clients/web.md", "WebAssembly"),
    ("Change rigline", "std-adapter/web/page/README.md", "project/page.md", "The web page, from inside"),
    ("Change rigline", "tests/bench/README.md", "project/bench.md", "Figures beside other libraries"),
    ("Change rigline", "tests/outcomes/README.md", "project/outcomes.md", None),
    ("Change rigline", ".github/SECURITY.md", "project/security.md", None),
    ("Change rigline", "CHANGELOG.md", "project/changelog.md", None),
]
LINK = re.compile(
    r"(?P<before>\]\(|^\[[^\]\n]+\]: |\b(?:src|srcset|href)=\")(?P<link>[^)\s\"]+)",
    re.M,
)
FENCED = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)\n|`[^`\n]+`(?!\])", re.S | re.M)


def text(file):
    return (ROOT / file).read_text(encoding="utf-8")


def heading(file):
    return re.search(r"^# (.*)", text(file), re.M)[1].replace("`", "")


def address(file):
    """The page of a file that README.md's table names: PACKAGE/CHAPTER.md, or project/NAME.md."""
    chapter = re.fullmatch(r"std-adapter/(?:(\w+)/)?src/guide/(\w+)\.md", file)
    if chapter:
        return f"{chapter[1] or 'extension'}/{chapter[2]}.md"
    return f"project/{pathlib.PurePath(file).stem.lower()}.md"


def parts():
    """The parts of the site with their pages: {part: [(file, page, title)]}."""
    table = text("README.md").split("## Where to read on", 1)[1].split("\n\nrigline is tested")[0]
    found = {}
    for part, links in re.findall(r"^\| ([a-z][^|]*) \| (.*) \|$", table, re.M):
        for file in re.findall(r"\]\(([^)]+\.md)\)", links):
            found.setdefault(part.strip().capitalize(), []).append((file, address(file), heading(file)))
    for part, file, page, title in MORE:
        found.setdefault(part, []).append((file, page, title or heading(file)))
    # What a contributor reads comes last.
    found["Change rigline"] = found.pop("Change rigline")
    return found


def chapters():
    """The chapters of the guide that the packages have, each with its module at docs.rs."""
    for guide in sorted([ROOT / "std-adapter/src/guide.rs", *ROOT.glob("std-adapter/*/src/guide.rs")]):
        folder = guide.parent.relative_to(ROOT)
        package = tomllib.loads((guide.parent.parent / "Cargo.toml").read_text())["package"]["name"]
        for name in re.findall(r'include_str!\("guide/(\w+)\.md"\)', guide.read_text()):
            if name != "links":
                crate = package.replace("-", "_")
                yield f"{folder}/guide/{name}.md", f"https://docs.rs/{package}/latest/{crate}/guide/{name}/index.html"


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.parts = parts()
        self.pages = {"README.md": "index.md"} | {file: page for part in self.parts.values() for file, page, _ in part}
        self.at_docs_rs = {address: file for file, address in chapters()}
        missing = sorted(set(self.at_docs_rs.values()) - set(self.pages))
        if missing:
            sys.exit("\n".join(f"site: {file} is a chapter of its package, and not in README.md's table" for file in missing))
        twice = len(self.pages) - len(set(self.pages.values()))
        if twice:
            sys.exit(f"site: {twice} pages have the address of another one: {sorted(self.pages.values())}")

    def write(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for file in self.pages:
            self.put(self.pages[file], self.converted(file))
        self.put("api.md", api())
        summary = ["# Summary", "", "[rigline](index.md)"]
        for part, pages in self.parts.items():
            summary += ["", f"# {part}", ""] + [f"- [{title}]({page})" for _, page, title in pages]
            if part == "Change rigline":
                summary.append("- [The packages and their API](api.md)")
        self.put("SUMMARY.md", "\n".join(summary) + "\n")
        return len(self.pages) + 1

    def put(self, page, content):
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def converted(self, file):
        """The Markdown of a file with links for the site, and with languages of code that mdBook knows."""
        kept, at = [], 0
        markdown = text(file)
        for code in FENCED.finditer(markdown):
            kept += [self.linked(file, markdown[at:code.start()]), known_language(code[0])]
            at = code.end()
        return "".join(kept) + self.linked(file, markdown[at:])

    def linked(self, file, prose):
        return LINK.sub(lambda found: found["before"] + self.link(file, found["link"]), prose)

    def link(self, file, link):
        path, _, anchor = link.partition("#")
        anchor = f"#{anchor}" if anchor else ""
        if not path:
            return link
        if path in self.at_docs_rs:
            target = self.at_docs_rs[path]
        elif here := re.match(f"{REPOSITORY}/(?:blob|tree|raw)/main/(.+)|{RAW}(.+)", path):
            target = here[1] or here[2]
        elif re.match(r"[a-z]+:", path):
            return link
        else:
            target = os.path.normpath(os.path.join(os.path.dirname(file), path))
        if target in self.pages:
            return self.from_page(file, self.pages[target]) + anchor
        if not (ROOT / target).exists():
            sys.exit(f"site: {file}: there is no {target}")
        if re.search(r"\.(svg|png|cast)$", target):
            picture = f"pictures/{os.path.basename(target)}"
            self.put("pictures/.keep", "")
            shutil.copyfile(ROOT / target, self.folder / picture)
            return self.from_page(file, picture)
        return f"{REPOSITORY}/{'tree' if (ROOT / target).is_dir() else 'blob'}/main/{target}{anchor}"

    def from_page(self, file, target):
        return os.path.relpath(target, os.path.dirname(self.pages[file]) or ".")


def known_language(code):
    """Rustdoc takes code without a language for Rust, and `no_run` for an attribute of it."""
    if re.match(r"`{3}(no_run|ignore|should_panic|compile_fail)\b", code):
        return code.replace("```", "```rust,", 1)
    return code.replace("```\n", "```rust\n", 1) if code.startswith("```\n") else code


def api():
    """The page with the packages: what each has, and where its API is described."""
    told = subprocess.run(["git", "ls-files", "*Cargo.toml"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    lines = ["# The packages and their API", "", "Each package has its API at docs.rs. In a checkout, `cargo doc --no-deps --open` shows the same pages.", ""]
    lines += ["| package | contents | API |", "|---|---|---|"]
    for file in told:
        package = tomllib.loads(text(file)).get("package", {})
        if package and package.get("publish", True):
            name = package["name"]
            lines.append(f"| [{name}](https://crates.io/crates/{name}) | {package['description']} | [docs.rs/{name}](https://docs.rs/{name}) |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site = Site(pathlib.Path(sys.argv[1]))
    print(f"site: {site.write()} pages, {len(site.at_docs_rs)} of them chapters of the guide")


main()
