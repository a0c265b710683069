#!/usr/bin/env bash
# Reports of `rigline eval run`, read by other people's programs: JUnit by PyPI's `junitparser`, CTRF by the schema of npm's package `ctrf`, TAP by npm's `tap-parser`, and the
# page by Chromium, where these are. From a fresh clone: bash .ci/reports.sh [FOLDER FOR WHAT IS MADE]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-$(mktemp -d)}
mkdir -p "$out"
cargo build -q -p rigline-cli --bin rigline
rigline=${CARGO_TARGET_DIR:-target}/debug/rigline

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
for _ in 1 2 3; do
  code=0
  "$rigline" eval run firmware-example/evals/rails firmware-example/evals/broken "$out/hostile" --target sim --runs "$out/runs" -q \
    --ctrf "$out/report.ctrf.json" --tap "$out/report.tap" --html "$out/report.html" --junit "$out/report.xml" >/dev/null || code=$?
  [ "$code" = 1 ] || { echo "eval run ended with $code" && exit 1; }
done

if python3 -m venv "$out/venv" && "$out/venv/bin/pip" install -q --disable-pip-version-check junitparser; then
  "$out/venv/bin/python" - "$out/report.xml" <<'PY'
import sys
from junitparser import JUnitXml

cases = [(case.classname, case.name, case.result) for suite in JUnitXml.fromfile(sys.argv[1]) for case in suite]
if len(set((classname, name) for classname, name, _ in cases)) != len(cases):
    raise SystemExit("JUnit: two cases have one class name and name")
failed = sum(1 for _, _, result in cases if result)
print(f"JUnit is valid: {len(cases)} tests, {failed} of them not passed")
PY
else
  echo "skipped: junitparser cannot be installed"
fi

if command -v npm >/dev/null 2>&1; then
  (cd "$out" && npm install --silent --no-audit --no-fund ctrf ajv ajv-formats tap-parser)
  (cd "$out" && node --input-type=module - <<'JS'
import { readFileSync } from "node:fs";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { Parser } from "tap-parser";
const schema = JSON.parse(readFileSync("node_modules/ctrf/dist/ctrf-schema-0.0.json", "utf8"));
const ajv = new Ajv({ allErrors: true, strict: false });
addFormats(ajv);
const report = JSON.parse(readFileSync("report.ctrf.json", "utf8"));
if (!ajv.validate(schema, report)) throw new Error(`CTRF: ${ajv.errorsText()}`);
const { tests, passed, failed } = report.results.summary;
console.log(`CTRF is valid: ${tests} tests, ${passed} passed, ${failed} failed`);
const tap = new Parser({ strict: true });
const results = new Promise((done) => tap.on("complete", done));
tap.end(readFileSync("report.tap"));
const { count, pass, fail, failures, bailout } = await results;
// Strict: whatever is no TAP is a failure of its own.
if (count !== tests || pass !== passed || bailout || failures.some((it) => it.tapError)) throw new Error(`TAP: ${JSON.stringify({ count, pass, fail })}`);
console.log(`TAP is valid: ${count} tests, ${pass} passed, ${fail} failed`);
JS
  )
else
  echo "skipped: there is no npm, which has the readers of CTRF and TAP"
fi

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
  page() { timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars "$@" "file://$(realpath "$out")/report.html" 2>/dev/null; }
  page --dump-dom >"$out/dom.html"
  ! grep -qi '<script\|<img\|onerror="' "$out/dom.html" || { echo "the page holds foreign markup" && exit 1; }
  page --window-size=1100,2400 --screenshot="$out/light.png"
  page --window-size=1100,2400 --blink-settings=preferredColorScheme=0 --screenshot="$out/dark.png"
  page --print-to-pdf="$out/report.pdf"
  [ -s "$out/light.png" ] && [ -s "$out/dark.png" ] && [ -s "$out/report.pdf" ]
  echo "the page opens and prints: $out/light.png, dark.png, report.pdf"
else
  echo "skipped: there is no Chromium"
fi
