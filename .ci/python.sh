#!/usr/bin/env bash
# The Python package: its wheel, built with the dev profile, in a fresh virtual environment; its tests, and mypy.
# Says "skipped:" and why where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
package=std-adapter/python

python=${PYTHON:-python3}
if ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  echo "skipped: there is no python3 of 3.9 or newer with venv"
  exit 0
fi
[ -x "$target/python-tools/bin/python" ] || "$python" -m venv "$target/python-tools"
if ! "$target/python-tools/bin/pip" install -q --disable-pip-version-check 'maturin>=1.7,<2' mypy pytest; then
  echo "skipped: maturin, mypy and pytest cannot be installed"
  exit 0
fi

rm -rf "$target/wheels" "$target/python-fresh"
(cd "$package" && "$target/python-tools/bin/maturin" build --profile dev --compatibility off --out "$target/wheels")
"$python" -m venv "$target/python-fresh"
"$target/python-fresh/bin/pip" install -q --disable-pip-version-check "$target"/wheels/rigline-*.whl \
  pytest pytest-xdist pytest-rerunfailures pytest-html allure-pytest

# Nothing but the wheel: the package's sources are not on the path.
unset PYTHONPATH RIGLINE_BINARY RIGLINE_TARGET
"$target/python-tools/bin/mypy" --config-file "$package/pyproject.toml" "$package/src"
"$target/python-fresh/bin/python" -m rigline.stubs sim -o "$target/bench_rig.pyi"
MYPYPATH=$package/src "$target/python-tools/bin/mypy" --strict "$target/bench_rig.pyi"
# The oldest syntax and library that is promised, where it is here.
for old in python3.9 "$HOME"/.pyenv/versions/3.9.*/bin/python; do
  if "$old" -c "" 2>/dev/null; then
    echo "the client on $("$old" --version)"
    PYTHONPATH=$package/src RIGLINE_BINARY=$target/python-fresh/bin/rigline "$old" -c '
import rigline, rigline.stubs
with rigline.connect("sim") as rig:
    rig.power(rail="3V3", on=True)
    assert 3 < rig.measure(channel="3V3").number("volts") < 3.6'
    break
  fi
done
if command -v node >/dev/null 2>&1 && [ -d tests/emulator/node_modules ]; then
  cargo build -q -p rigline-tests --bin emulator
  export RIGLINE_EMULATOR=$target/debug/emulator
else
  echo "skipped: the emulated board, as there is no node or no rp2040js"
fi
cd "$package"
# Most of them wait for programs.
"$target/python-fresh/bin/python" -m pytest -p no:cacheprovider -q -n 4 "$@"

# The command's test of one console from five doors, one of which is pytest.
cd "$OLDPWD"
PATH=$target/python-fresh/bin:$PATH cargo test -q -p rigline-cli --test suite five_doors::
