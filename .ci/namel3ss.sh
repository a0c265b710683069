#!/bin/sh
# Makes the real namel3ss in the target folder, and prints the interpreter that has it:
#   RIGLINE_NAMEL3SS_PYTHON=$(.ci/namel3ss.sh) cargo test -p rigline-cli --test suite namel3ss::
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
venv=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/namel3ss-venv
version=0.1.0a15
if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('namel3ss') == '$version'" 2>/dev/null; then
    python3 -m venv --clear "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check "namel3ss==$version" >&2
fi
echo "$venv/bin/python"
