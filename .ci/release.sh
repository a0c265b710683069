#!/usr/bin/env bash
# The files of a release, in one folder. Each is tried as a stranger has it: in a fresh folder, with an environment that has nothing of
# this checkout, `rigline call sim self-test` must answer. What cannot be run here is listed with the reason.
#   release.sh [PART…]   all parts, or these:
#                        linux-x64 linux-arm64 windows-x64 macos-arm64 macos-x64   archive, wheel and npm package of a system
#                        npm      the package that installs the one for the system, and rigline-web
#                        crates   the packages of crates.io, each built from its file
#                        sbom     the crates in the command, as CycloneDX
#   release.sh programs  installs, as the superuser, what runs the files of other systems
#   release.sh list      only what each run ends with: SHA256SUMS, artefacts.json and the table, of all that is in the folder, to
#                        which several computers may have added their parts
# RIGLINE_RELEASE_FOLDER names the folder [default: target/release-files].
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh

# part | Rust's target | npm's system | pip's platform
SYSTEMS='linux-x64|x86_64-unknown-linux-musl|linux-x64|manylinux2014_x86_64
linux-arm64|aarch64-unknown-linux-musl|linux-arm64|manylinux2014_aarch64
windows-x64|x86_64-pc-windows-gnu|win32-x64|win_amd64
macos-arm64|aarch64-apple-darwin|darwin-arm64|macosx_11_0_arm64
macos-x64|x86_64-apple-darwin|darwin-x64|macosx_11_0_x86_64'
PARTS='linux-x64 linux-arm64 windows-x64 macos-arm64 macos-x64 npm crates sbom'

root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
folder=${RIGLINE_RELEASE_FOLDER:-$target/release-files}
tools=$target/release-tools
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
epoch=$(git log -1 --format=%ct)
host=$(uname -s)-$(uname -m)
place=$(mktemp -d)
registry=
# shellcheck disable=SC2317  # A trap calls it.
clean_up() {
  if [ -n "$registry" ]; then kill "$registry" 2>/dev/null || true; fi
  if [ -d "$place/wine" ]; then WINEPREFIX=$place/wine WINEDEBUG=-all wineserver -k >/dev/null 2>&1 || true; fi
  rm -rf "$place"
}
trap clean_up EXIT

# Notes of what was tried, a file for each part.
note() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$folder/trials/$part.tsv"; }

# tried FILE HOW COMMAND…: a trial of a file, whose result is noted.
tried() {
  local file=$1 how=$2 log code
  shift 2
  log=$(mktemp -p "$place")
  printf -- '--- %s: %s\n' "$file" "$how"
  set +e
  (set -e; "$@") >"$log" 2>&1 </dev/null
  code=$?
  set -e
  if [ $code = 0 ]; then
    note "$file" "$how" passed
  else
    cat "$log"
    note "$file" "$how" "FAILED: exit $code"
  fi
}

not_run() { note "$1" "$2" "not run: $3"; } # FILE HOW WHY
not_made() { echo "not made: $1: $2"; note "$1" - "$2"; } # WHAT WHY

# stranger FOLDER COMMAND…: runs a command there, with an environment of its own.
stranger() {
  local home=$1
  shift
  (cd "$home" && exec env -i HOME="$home" PATH="${stranger_path:-/usr/local/bin:/usr/bin:/bin}" LANG=C.UTF-8 WINEPREFIX="$place/wine" WINEDEBUG=-all "$@")
}

fresh() { # NAME
  mktemp -d -p "$place" "$1.XXXXXX"
}

# self_test FOLDER SIM COMMAND…: the command has the release's version, and the simulated rig passes its own test. SIM is the target.
self_test() {
  local home=$1 sim=$2
  shift 2
  stranger "$home" "$@" --version | tr -d '\r' | grep -Fx "rigline $version"
  stranger "$home" "$@" call "$sim" self-test | grep "checks passed"
}

use_tools() {
  [ -x "$tools/bin/maturin" ] && return
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check 'maturin>=1.7,<2' wheel ziglang uv
}

# What runs a system's programs here, in `runner`; false, with the reason in `why`, if nothing does.
runner_of() { # PART
  runner=() sim=sim why=
  case $1-$host in
  linux-x64-Linux-x86_64 | linux-arm64-Linux-aarch64 | macos-arm64-Darwin-arm64 | macos-x64-Darwin-*) ;;
  linux-arm64-Linux-*)
    install qemu-aarch64 qemu-user || { why="there is no qemu-aarch64"; return 1; }
    runner=(qemu-aarch64)
    ;;
  windows-x64-Linux-*)
    install wine wine wine64 || { why="there is no Wine"; return 1; }
    runner=(wine)
    [ -d "$place/wine" ] || windows
    ;;
  *) why="a $1 program does not run on $host"; return 1 ;;
  esac
}

# Windows as Wine has it.
windows() {
  mkdir "$place/wine"
  WINEPREFIX=$place/wine WINEDEBUG=-all timeout 300 wine wineboot --init >/dev/null 2>&1
  # Rust's library takes random numbers from this one, which Wine has since its version 9.
  if ! find /usr/lib -name bcryptprimitives.dll 2>/dev/null | grep -q .; then
    printf '%s\n' '#include <windows.h>' 'BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);' \
      '__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T count) { return SystemFunction036(to, (ULONG)count); }' >"$place/random.c"
    x86_64-w64-mingw32-gcc -shared -O1 -o "$place/wine/drive_c/windows/system32/bcryptprimitives.dll" "$place/random.c" -ladvapi32
    echo "release: this Wine lacks bcryptprimitives.dll, and gets one for the trials"
  fi
}

# The target of a system's command that calls the built-in rig. Under QEMU a program cannot start itself by its path.
sim_of() { # PROGRAM
  if [ "${runner[*]:-}" = qemu-aarch64 ]; then echo "exec:qemu-aarch64 $1 rig"; else echo sim; fi
}

# A system's archive, wheel and npm package.
system() { # PART TARGET NPM PIP
  local triple=$2 npm=$3 platform=$4 program=rigline name=rigline-$version-$2 pack suffix=.tar.gz zig=() wheel
  if ! add_target "$triple"; then
    not_made "$part" "rustup cannot install the target $triple"
    return
  fi
  case $part-$host in
  windows-x64-Linux-*)
    program=rigline.exe suffix=.zip
    install x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64 || { not_made "$part" "there is no x86_64-w64-mingw32-gcc"; return; }
    ;;
  macos-*-Darwin-*) ;;
  linux-*-Linux-* | macos-*-Linux-*) zig=(--zig) ;;
  *)
    not_made "$part" "it is not built on $host"
    return
    ;;
  esac
  use_tools
  rm -f "$folder/$name$suffix" "$folder/rigline-$npm-$version.tgz"
  mkdir "$place/wheel-$part"
  # A released command knows no checkout, and names no path of this computer.
  (
    cd std-adapter/python
    export RIGLINE_RELEASE=1 PATH=$tools/bin:$PATH
    export RUSTFLAGS="--remap-path-prefix=$root=rigline --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
    maturin build --locked --target "$triple" "${zig[@]}" --out "$place/wheel-$part"
  ) || {
    # For macOS a cross build is tried, and not promised.
    case $part-$host in macos-*-Linux-*) not_made "$part" "it does not link here; the hosted workflow makes it"; return ;; esac
    exit 1
  }
  # A static program runs beside each C library, which maturin does not say.
  case $part in linux-*) "$tools/bin/python" -m wheel tags --remove --platform-tag="+$platform" "$place/wheel-$part"/*.whl >/dev/null ;; esac
  wheel=$(basename "$place/wheel-$part"/*.whl)
  mv "$place/wheel-$part/$wheel" "$folder/"

  local binary=$target/$triple/dist/$program own stage=$place/$name
  own=$binary
  if ! runner_of "$part"; then
    # Another system's command writes the same pages.
    own=$target/x86_64-unknown-linux-musl/dist/rigline runner=()
    [ -x "$own" ] || { not_made "$part" "its manual pages are written by the command of linux-x64: make that part first"; return; }
  fi
  mkdir -p "$stage/completions" "$stage/man"
  cp -L "$binary" LICENSE-APACHE LICENSE-MIT CHANGELOG.md std-adapter/cli/README.md "$stage/"
  local shell
  while read -r shell file; do
    stranger "$place" "${runner[@]}" "$own" completions "$shell" | tr -d '\r' >"$stage/completions/$file"
  done <<<$'bash rigline.bash\nzsh _rigline\nfish rigline.fish\nelvish rigline.elv\npowershell _rigline.ps1'
  (cd "$stage" && stranger "$stage" "${runner[@]}" "$own" man man/man1)
  .ci/release.py archive "$stage" "$folder/$name$suffix" "$epoch"

  local package=$place/npm-$part
  mkdir -p "$package/bin"
  cp -L "$binary" "$package/bin/$program"
  cp -L LICENSE-APACHE LICENSE-MIT "$package/"
  echo "The command of rigline for $npm. Install the package \`rigline\`, which installs this one where it is needed." >"$package/README.md"
  cat >"$package/package.json" <<JSON
{
  "name": "@rigline/$npm",
  "version": "$version",
  "description": "The command of rigline for $npm",
  "license": "MIT OR Apache-2.0",
  "repository": { "type": "git", "url": "git+https://github.com/rigline/rigline.git" },
  "os": ["${npm%-*}"],
  "cpu": ["${npm#*-}"],
  "files": ["bin", "LICENSE-*"],
  "preferUnplugged": true
}
JSON
  (cd "$package" && npm pack --silent --pack-destination "$folder" >/dev/null)

  pack=$name$suffix
  local home
  home=$(fresh archive)
  case $suffix in .zip) (cd "$home" && python3 -m zipfile -e "$folder/$pack" .) ;; *) tar -xzf "$folder/$pack" -C "$home" ;; esac
  chmod +x "$home/$name/$program"
  tried "$pack" "completions and manual pages" pages "$home/$name"
  case $part in linux-*) tried "$pack" "the program is static, and names no path of this computer" static "$home/$name/rigline" ;; esac
  if ! runner_of "$part"; then
    not_run "$pack" "call sim self-test" "$why"
    not_run "$wheel" "call sim self-test" "$why"
    tried "$wheel" "pip takes it for $platform" wheel_elsewhere "$wheel" "$platform" "$program"
    return
  fi
  local by=${runner[*]:+by ${runner[*]}: }
  tried "$pack" "${by}call sim self-test" self_test "$home/$name" "$(sim_of ./rigline)" "${runner[@]}" "./$program"
  case $part-$host in
  linux-x64-Linux-x86_64)
    if unshare --user --map-root-user --mount --pid --fork true 2>/dev/null; then
      tried "$pack" "the same in an empty root" in_empty_root "$home/$name/rigline"
    else
      not_run "$pack" "the same in an empty root" "this system has no name spaces of users"
    fi
    ;;
  windows-x64-*)
    local what
    for what in document mcp tcp http check eval new; do
      tried "$pack" "by wine: $what" "on_windows_$what" "$home/$name"
    done
    ;;
  esac
  if [ "${#runner[@]}" = 0 ]; then
    tried "$wheel" "pip install: call sim self-test, python -m rigline, pytest" wheel_here "$wheel"
    tried "$wheel" "uvx rigline call sim self-test" by_uvx "$wheel"
  else
    tried "$wheel" "pip takes it for $platform; ${by}call sim self-test" wheel_elsewhere "$wheel" "$platform" "$program"
  fi
}

pages() { # FOLDER
  local page shell
  [ "$(find "$1/man/man1" -name 'rigline*.1' | wc -l)" -ge 14 ]
  for page in "$1"/man/man1/*.1; do grep -q '^\.TH' "$page"; done
  for shell in rigline.bash _rigline rigline.fish rigline.elv _rigline.ps1; do grep -q RIGLINE_COMPLETE "$1/completions/$shell"; done
  # shellcheck disable=SC2016
  bash -c 'source "$1/completions/rigline.bash" && complete -p rigline' - "$1"
  if [ -x /usr/bin/man ]; then man -l "$1/man/man1/rigline-call.1" | grep -q rigline; fi
}

static() { # PROGRAM
  if readelf -l "$1" | grep INTERP; then return 1; fi
  if grep -aoE "${root}[ -~]{0,60}|${CARGO_HOME:-$HOME/.cargo}/[ -~]{0,60}" "$1"; then return 1; fi
}

in_empty_root() { # PROGRAM
  local empty
  empty=$(fresh root)
  mkdir "$empty/proc" "$empty/dev" "$empty/tmp"
  cp "$1" "$empty/rigline"
  # shellcheck disable=SC2016
  unshare --user --map-root-user --mount --pid --fork sh -c \
    'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /rigline call sim self-test' - "$empty"
}

wheel_here() { # WHEEL
  local home
  home=$(fresh pip)
  python3 -m venv "$home/venv"
  "$home/venv/bin/pip" install -q --disable-pip-version-check --no-index "$folder/$1"
  self_test "$home" sim "$home/venv/bin/rigline"
  stranger "$home" "$home/venv/bin/python" -m rigline call sim self-test
  "$home/venv/bin/pip" show -f rigline | grep -i license-mit
  "$home/venv/bin/pip" install -q --disable-pip-version-check pytest
  printf '%s\n' 'def test_3v3(rig, measure):' '    rig.power(rail="3V3", on=True)' \
    '    measure("3V3", rig.measure(channel="3V3").number("volts"), "V", low=3.135, high=3.465)' >"$home/test_board.py"
  stranger "$home" "$home/venv/bin/python" -m pytest -q --rigline-target sim | grep "1 passed"
}

by_uvx() { # WHEEL
  local home
  home=$(fresh uvx)
  stranger_path=$tools/bin:/usr/bin:/bin stranger "$home" "$tools/bin/uv" tool run --offline --no-index --python "$(command -v python3)" --find-links "$folder" rigline call sim self-test
}

# A wheel of another system: pip unpacks it, and its program is run.
wheel_elsewhere() { # WHEEL PLATFORM PROGRAM
  local home
  home=$(fresh pip)
  "$tools/bin/pip" install -q --disable-pip-version-check --no-index --no-deps --only-binary=:all: --platform "$2" --target "$home/there" "$folder/$1"
  [ -f "$home/there/rigline/pytest_plugin.py" ]
  if runner_of "$part"; then self_test "$home" "$(sim_of "$home/there/bin/rigline")" "${runner[@]}" "$home/there/bin/$3"; fi
}

on_windows_document() { # FOLDER
  cat >"$1/lines" <<'LINES'
{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"self-test","args":{},"context":{"workdir":"C:/","phase":"setup"}}}
LINES
  stranger "$1" python3 "$root/.ci/release.py" rpc lines wine rigline.exe rig
}

mcp_lines() {
  cat <<'LINES'
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"release","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"measure","arguments":{"channel":"3V3"}}}
LINES
}

on_windows_mcp() { # FOLDER
  mcp_lines >"$1/lines"
  stranger "$1" python3 "$root/.ci/release.py" rpc lines wine rigline.exe mcp sim
}

# served FOLDER OPTION TARGET: a server on Windows, called by the command there and by that of this computer, if it is built.
served() {
  local log=$1/served port server
  (cd "$1" && exec env -i HOME="$1" PATH="$PATH" WINEPREFIX="$place/wine" WINEDEBUG=-all wine rigline.exe serve sim "$2" 127.0.0.1:0) >"$log" 2>&1 </dev/null &
  server=$!
  for _ in $(seq 100); do
    port=$(grep -aoE '127\.0\.0\.1:[0-9]+' "$log" | head -n 1 | cut -d : -f 2 || true)
    if [ -n "$port" ]; then break; fi
    sleep 0.2
  done
  local code=0
  stranger "$1" wine rigline.exe call "$3:$port${4:-}" self-test || code=1
  if [ -x "$target/x86_64-unknown-linux-musl/dist/rigline" ]; then
    stranger "$1" "$target/x86_64-unknown-linux-musl/dist/rigline" call "$3:$port${4:-}" measure channel=3V3 || code=1
  fi
  kill "$server"
  wait "$server" || true
  cat "$log"
  return $code
}
on_windows_tcp() { served "$1" --tcp tcp:127.0.0.1; }
on_windows_http() { served "$1" --http http://127.0.0.1 /mcp; }
on_windows_check() { stranger "$1" wine rigline.exe check sim; }
on_windows_eval() { # FOLDER
  cp -r firmware-example/evals/rails "$1/"
  stranger "$1" wine rigline.exe eval run rails --target sim --runs runs
}
on_windows_new() { # FOLDER
  stranger "$1" wine rigline.exe new greeter
  grep -Fx "rigline = \"$version\"" "$1/greeter/Cargo.toml"
}

# The package `rigline` of npm, which installs that of the system, from a registry on this computer; and the parser for browsers.
npm_packages() {
  command -v npm >/dev/null 2>&1 || { not_made npm "there is no npm"; return; }
  local stage=$place/npm pack=rigline-$version.tgz web=rigline-web-$version.tgz
  mkdir "$stage"
  cp -r std-adapter/js/bin std-adapter/js/src std-adapter/js/package.json std-adapter/js/README.md LICENSE-APACHE LICENSE-MIT "$stage/"
  rm -f "$folder/$pack" "$folder/$web"
  .ci/release.py npm "$stage" "$folder"
  (cd "$stage" && npm pack --silent --pack-destination "$folder" >/dev/null)
  (cd std-adapter/web && npm pack --silent --pack-destination "$folder" >/dev/null)

  mkfifo "$place/until"
  .ci/release.py registry "$folder" <"$place/until" >"$place/address" &
  registry=$!
  exec 8>"$place/until"
  while ! [ -s "$place/address" ] && kill -0 "$registry"; do sleep 0.1; done
  export npm_registry npm_path
  npm_registry=$(cat "$place/address") npm_path=$(dirname "$(command -v npm)"):$(dirname "$(command -v node)"):/usr/bin:/bin
  tried "$web" "npm install, and Node reads a message with it" web_here
  local system name file
  while IFS='|' read -r -u 3 system _ name _; do
    file=rigline-$name-$version.tgz
    [ -f "$folder/$file" ] || continue
    if ! runner_of "$system"; then
      tried "$file" "npm installs it on $name, and no other" npm_elsewhere "$name"
      not_run "$file" "call sim self-test" "$why"
    elif [ "${#runner[@]}" -gt 0 ]; then
      tried "$file" "npm installs it on $name, and no other; by ${runner[*]}: call sim self-test" npm_elsewhere "$name"
    else
      tried "$pack" "npm install: npx rigline call sim self-test, connect('sim') in Node, npx rigline mcp sim" npm_here
      tried "$pack" "npx rigline call sim self-test in an empty folder" by_npx
      tried "$file" "npm install of the two files" npm_files "$pack" "$file"
    fi
  done 3<<<"$SYSTEMS"
  exec 8>&-
}

npm_run() { # FOLDER COMMAND…
  stranger_path=$npm_path stranger "$1" env npm_config_registry="$npm_registry" npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false "${@:2}"
}

npm_here() {
  local home
  home=$(fresh npm)
  npm_run "$home" npm init -y
  npm_run "$home" npm install rigline
  npm_run "$home" npx rigline --version | grep -Fx "rigline $version"
  npm_run "$home" npx rigline call sim self-test
  cat >"$home/example.mjs" <<'JS'
import { connect } from 'rigline/node';
const rig = await connect('sim');
await rig.call('power', { rail: '3V3', on: true });
console.log((await rig.call('measure', { channel: '3V3' })).message);
await rig.close();
JS
  npm_run "$home" node example.mjs | grep "3V3 is at 3"
  mcp_lines >"$home/lines"
  npm_run "$home" python3 "$root/.ci/release.py" rpc lines npx rigline mcp sim
}

by_npx() {
  local home
  home=$(fresh npx)
  npm_run "$home" npx --yes rigline call sim self-test
}

npm_files() { # FILE FILE
  local home
  home=$(fresh npm-files)
  npm_run "$home" npm init -y
  npm_registry=http://127.0.0.1:9/ npm_run "$home" npm install --offline "$folder/$1" "$folder/$2"
  npm_run "$home" npx rigline call sim self-test
}

npm_elsewhere() { # SYSTEM
  local home program
  home=$(fresh npm)
  npm_run "$home" npm init -y
  npm_run "$home" npm install --os="${1%-*}" --cpu="${1#*-}" rigline
  [ "$(ls "$home/node_modules/@rigline")" = "$1" ]
  program=$(echo "$home/node_modules/@rigline/$1/bin"/rigline*)
  if runner_of "$system"; then self_test "$home" "$(sim_of "$program")" "${runner[@]}" "$program"; fi
}

web_here() {
  local home
  home=$(fresh web)
  npm_run "$home" npm init -y
  npm_run "$home" npm install rigline-web
  cp std-adapter/web/consumer/consumer.mjs "$home/"
  npm_run "$home" node consumer.mjs
}

# What crates.io would get. `cargo package` builds each from its file, with the others before it.
crates() {
  local names=(rigline rigline-macros rigline-rig rigline-std rigline-host rigline-eval rigline-lab rigline-cli rigline-embassy) name file
  rm -f "$folder"/*.crate "$target/package"/*.crate
  cargo package --quiet --allow-dirty "${names[@]/#/--package=}"
  for name in "${names[@]}"; do
    file=$name-$version.crate
    cp "$target/package/$file" "$folder/"
    note "$file" "built from its file by cargo package" passed
    tried "$file" "licences and README inside" crate_contents "$file"
  done
}

crate_contents() { # FILE
  local list
  list=$(tar -tzf "$folder/$1")
  for file in LICENSE-APACHE LICENSE-MIT Cargo.toml; do grep -q "/$file\$" <<<"$list"; done
}

# The crates of the command on Linux, as maturin has written them into the wheel.
sbom() {
  local file=rigline-$version.cdx.json wheel=
  for wheel in "$folder/rigline-$version"-py3-none-*linux*x86_64*.whl; do break; done
  [ -f "$wheel" ] || { not_made "$file" "it comes from the wheel of linux-x64: make that part first"; return; }
  .ci/release.py bom "$wheel" "$folder/$file"
  cargo tree -p rigline-cli --target x86_64-unknown-linux-musl --edges normal,build --prefix none --no-dedupe | sort -u >"$place/tree"
  tried "$file" "it has each crate that cargo tree names, with its licence" .ci/release.py sbom "$folder/$file" "$place/tree"
}

mkdir -p "$folder/trials"
if [ "${1:-}" = programs ]; then
  install x86_64-w64-mingw32-gcc gcc-mingw-w64-x86-64 || skip windows-x64 "apt-get cannot install its linker"
  install wine wine wine64 || skip "trials of windows-x64" "apt-get cannot install Wine"
  install qemu-aarch64 qemu-user || skip "trials of linux-arm64" "apt-get cannot install QEMU"
  finish
  exit
fi
if [ "${1:-}" = list ]; then exec .ci/release.py list "$folder"; fi
for part in "$@"; do
  if [[ " $PARTS " != *" $part "* ]]; then
    echo "release: $part: unknown; the parts are: $PARTS"
    exit 2
  fi
done
use_pinned
for part in $PARTS; do
  if [ $# -gt 0 ] && [[ " $* " != *" $part "* ]]; then continue; fi
  from=$SECONDS
  printf '\n=== release: %s\n' "$part"
  : >"$folder/trials/$part.tsv"
  case $part in
  npm) npm_packages ;;
  crates) crates ;;
  sbom) sbom ;;
  *)
    IFS='|' read -r _ triple npm platform < <(grep "^$part|" <<<"$SYSTEMS")
    system "$part" "$triple" "$npm" "$platform"
    ;;
  esac
  printf '=== release: %s: %d s\n' "$part" $((SECONDS - from))
done
printf '\n'
.ci/release.py list "$folder"
