#!/usr/bin/env bash
# The recorded session of the README and the site.
#   session.sh           runs its commands in a pseudo-terminal, and fails unless each does what it should
#   session.sh --write   records it anew: .ci/site/pictures/session.cast and session.svg
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null 2>&1 || { echo "there is no python3"; exit 77; }
cargo build --quiet --bin rigline
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
PATH=$target/debug:$PATH
export PATH
case ${1:-} in
'') python3 .ci/site/session.py check ;;
--write)
  # It draws what a terminal would show.
  [ -d "$target/session-tools" ] || python3 -m venv "$target/session-tools"
  "$target/session-tools/bin/pip" install --quiet --disable-pip-version-check pyte
  "$target/session-tools/bin/python" .ci/site/session.py write
  ;;
*) sed -n '2,4s/^# //p' "$0"; exit 2 ;;
esac
