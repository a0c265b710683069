#!/usr/bin/env python3
"""What .ci/release.sh needs besides a shell.

    release.py archive FOLDER FILE SECONDS    packs a folder: the same bytes from the same files, dated SECONDS after 1970
    release.py npm FOLDER RELEASE             completes package.json in FOLDER: version, and the packages of the systems in RELEASE
    release.py registry RELEASE               serves npm's packages in RELEASE on loopback, prints the address, ends with standard input
    release.py bom WHEEL FILE                 writes the SBOM that maturin has put into a wheel, without paths of this computer
    release.py sbom FILE TREE                 compares an SBOM with the crates that `cargo tree` lists in TREE
    release.py rpc FILE WORD...               sends the lines of FILE to a program, and prints its answers until one has each id
    release.py list RELEASE                   writes SHA256SUMS and artefacts.json, prints the table; exit 1 if a trial has failed
"""
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import threading
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# npm's names of the systems that have a command.
SYSTEMS = ["linux-x64", "linux-arm64", "win32-x64", "darwin-arm64", "darwin-x64"]


def version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]


def archive(folder, file, seconds):
    folder, seconds = pathlib.Path(folder), int(seconds)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if file.endswith(".zip"):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
            for path in files:
                entry = zipfile.ZipInfo(str(path.relative_to(folder.parent)), date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (path.stat().st_mode & 0o777) << 16
                pack.writestr(entry, path.read_bytes())
        return
    with open(file, "wb") as out, gzip.GzipFile("", "wb", mtime=seconds, fileobj=out) as pressed, tarfile.open(fileobj=pressed, mode="w") as pack:
        for path in files:
            entry = tarfile.TarInfo(str(path.relative_to(folder.parent)))
            entry.size, entry.mtime = path.stat().st_size, seconds
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            pack.addfile(entry, io.BytesIO(path.read_bytes()))


def npm(folder, release):
    path = pathlib.Path(folder, "package.json")
    package = json.loads(path.read_text())
    if package["version"] != version():
        sys.exit(f"release: package.json of {package['name']} has version {package['version']}, and Cargo.toml {version()}")
    package.pop("scripts", None)
    there = [system for system in SYSTEMS if pathlib.Path(release, f"rigline-{system}-{version()}.tgz").exists()]
    package["optionalDependencies"] = {f"@rigline/{system}": version() for system in there}
    path.write_text(json.dumps(package, indent=2) + "\n")
    missing = [system for system in SYSTEMS if system not in there]
    print(f"release: the package of npm installs one of {', '.join(there)}" + (f"; not made: {', '.join(missing)}" if missing else ""))


def packed(file):
    """package.json of a package of npm."""
    with tarfile.open(file) as pack:
        return json.load(pack.extractfile("package/package.json"))


def registry(release):
    files = {path.name: path for path in pathlib.Path(release).glob("*.tgz")}
    packages = {}
    for path in files.values():
        packages[packed(path)["name"]] = path

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.split("?")[0].lstrip("/").replace("%2f", "/").replace("%2F", "/")
            if name.startswith("-/files/") and name[8:] in files:
                return self.answer(200, files[name[8:]].read_bytes(), "application/octet-stream")
            if name not in packages:
                return self.answer(404, b"{}", "application/json")
            path, package = packages[name], packed(packages[name])
            digest = hashlib.sha1(path.read_bytes()).hexdigest()
            package["dist"] = {"tarball": f"http://{self.headers['Host']}/-/files/{path.name}", "shasum": digest}
            about = {"name": name, "dist-tags": {"latest": package["version"]}, "versions": {package["version"]: package}}
            return self.answer(200, json.dumps(about).encode(), "application/json")

        # npm asks for known faults of what it installs.
        def do_POST(self):
            self.answer(200, b"{}", "application/json")

        def answer(self, code, body, kind):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
    sys.stdin.read()


def bom(wheel, file):
    with zipfile.ZipFile(wheel) as pack:
        name = next(name for name in pack.namelist() if name.endswith(".dist-info/sboms/rigline-cli.cyclonedx.json"))
        pathlib.Path(file).write_bytes(pack.read(name).replace(f"file://{ROOT}".encode(), b"file://"))


def sbom(file, tree):
    bom = json.loads(pathlib.Path(file).read_text())
    assert bom["bomFormat"] == "CycloneDX", bom["bomFormat"]
    listed = {(part["name"], part["version"]) for part in [*bom["components"], bom["metadata"]["component"]]}
    used = {(name, number) for name, number in re.findall(r"^(\S+) v(\S+)", pathlib.Path(tree).read_text(), re.M)}
    missing, more = sorted(used - listed), sorted(listed - used)
    unlicensed = [part["name"] for part in bom["components"] if not part.get("licenses")]
    print(f"{len(used)} crates, {len(listed)} in the SBOM; missing {missing}; more {more}; without a licence {unlicensed}")
    sys.exit(bool(missing or unlicensed))


def rpc(file, *command):
    lines = pathlib.Path(file).read_text().splitlines()
    wanted = {json.loads(line)["id"] for line in lines if "id" in json.loads(line)}
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdin.write("".join(line + "\n" for line in lines))
    child.stdin.flush()
    for line in child.stdout:
        print(line.rstrip())
        answer = json.loads(line)
        if "id" in answer:
            if "error" in answer or answer["result"].get("success") is False or answer["result"].get("isError"):
                sys.exit("an error")
            wanted.discard(answer["id"])
        if not wanted:
            break
    child.stdin.close()
    child.wait(20)
    sys.exit(bool(wanted))


def binstall(release, note):
    """Whether the files that `cargo binstall` would take for each system are there, with the program where it looks for it."""
    about = json.loads(subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, capture_output=True, check=True).stdout)
    package = next(package for package in about["packages"] if package["name"] == "rigline-cli")
    data = package["metadata"]["binstall"]
    for target in ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl",
                   "x86_64-pc-windows-gnu", "x86_64-pc-windows-msvc", "aarch64-apple-darwin", "x86_64-apple-darwin"]:
        own = {**data, **data["overrides"].get(target, {})}
        known = {"repo": package["repository"], "version": package["version"], "target": target, "bin": "rigline",
                 "binary-ext": ".exe" if "windows" in target else ""}
        address, program = (re.sub(r"\{ ([\w-]+) \}", lambda found: known[found[1]], own[key]) for key in ("pkg-url", "bin-dir"))
        name = address.rsplit("/", 1)[1]
        path = pathlib.Path(release, name)
        if not path.exists():
            continue
        packs = {"tgz": lambda: tarfile.open(path).getnames(), "zip": lambda: zipfile.ZipFile(path).namelist()}
        note(name, f"cargo binstall finds the program for {target}", "passed" if program in packs[own["pkg-fmt"]]() else f"FAILED: no {program}")


KINDS = [("-py3-", "wheel"), (".cdx.json", "SBOM"), (".crate", "crate"), (".tgz", "npm package"), (".tar.gz", "archive"), (".zip", "archive")]


def list_all(release):
    release = pathlib.Path(release)
    trials, not_made = {}, []

    def note(name, how, result):
        state = result.split(":")[0]
        trials.setdefault(name, []).append({"how": how, "result": {"FAILED": "failed"}.get(state, state), "why": result.partition(": ")[2] or None})

    for path in sorted((release / "trials").glob("*.tsv")):
        for line in path.read_text().splitlines():
            name, how, result = line.split("\t")
            if how == "-":
                not_made.append({"what": name, "why": result})
            else:
                note(name, how, result)
    binstall(release, note)
    files, sums = [], []
    for path in sorted(release.iterdir()):
        kind = next((kind for sign, kind in KINDS if sign in path.name), None)
        if not path.is_file() or kind is None:
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sums.append(f"{digest}  {path.name}\n")
        files.append({"name": path.name, "kind": kind, "bytes": path.stat().st_size, "sha256": digest, "trials": trials.pop(path.name, [])})
    (release / "SHA256SUMS").write_text("".join(sums))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip() or None
    everything = {"version": version(), "commit": commit, "files": files, "not_made": not_made}
    (release / "artefacts.json").write_text(json.dumps(everything, indent=2) + "\n")

    width = max([len(file["name"]) for file in files], default=4)
    problems = 0
    print(f"{'file':{width}}  {'size':>9}  tried how: result")
    for file in files:
        name, size = file["name"], f"{file['bytes'] / 1e6:.2f} MB"
        for trial in file["trials"] or [{"how": "-", "result": "not tried", "why": None}]:
            print(f"{name:{width}}  {size:>9}  {trial['how']}: {trial['result']}" + (f" ({trial['why']})" if trial["why"] else ""))
            problems += trial["result"] in ("failed", "not tried")
            name = size = ""
    for name in trials:
        print(f"{name}: tried, and not there any more")
        problems += 1
    for missing in not_made:
        print(f"not made: {missing['what']}: {missing['why']}")
    print(f"release: {len(files)} files in {release}; {problems} problems")
    sys.exit(bool(problems))


def main():
    verbs = {"archive": archive, "npm": npm, "registry": registry, "bom": bom, "sbom": sbom, "rpc": rpc, "list": list_all}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](*sys.argv[2:])


main()
