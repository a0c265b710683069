#!/usr/bin/env bash
# An image does not depend on the computer: builds it here, and in a copy of this checkout with another cargo home, and compares
# the two files byte for byte.
#   .ci/same-image.sh       the rig on a board of QEMU, which is built from 40 crates
#   .ci/same-image.sh rig   the rig on an RP2040, with embassy
# An image holds its commit, so that both are built from one: the checkout must not change meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
"") image=qemu-stm32f405 target=thumbv7em-none-eabi && build=(image -q -p rigline-boards --target "$target" --features "$image" --bin "$image") ;;
rig) image=rig target=thumbv6m-none-eabi && build=(firmware -q --bin rig) ;;
*) echo "usage: .ci/same-image.sh [rig]" >&2 && exit 2 ;;
esac
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
copy="$place/somebody else/rigline" home="$place/home of somebody else"
mkdir -p "$home" "${copy%/*}"

# The commit, and what is not committed yet, which is meant, too.
state() { git rev-parse HEAD && git diff HEAD | sha256sum && git status --porcelain; }

before=$(state)
git clone -q --shared . "$copy"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; else rm -f "$copy/$file"; fi
done | tar --null --files-from=- --create | tar --extract --directory "$copy"

cargo "${build[@]}"
# The packages as they were loaded. Cargo unpacks them into the other home, as it does on another computer: by a link to the sources, the
# compiler would find their real folder.
packages=${CARGO_HOME:-$HOME/.cargo}/registry
mkdir "$home/registry"
for part in index cache; do
  if [ -e "$packages/$part" ]; then ln -s "$(realpath "$packages/$part")" "$home/registry/$part"; fi
done
(cd "$copy" && env -u CARGO_TARGET_DIR CARGO_HOME="$home" cargo "${build[@]}")
if [ "$(state)" != "$before" ]; then
  echo "same-image: the checkout changed while the images were built: start again" >&2 && exit 1
fi

file=$target/firmware/$image
here=${CARGO_TARGET_DIR:-target}/$file there=$copy/target/$file
if ! cmp "$here" "$there"; then
  echo "same-image: $image depends on the folder that it is built in; the sections and texts that differ:" >&2
  diff <(readelf --wide --section-headers "$here") <(readelf --wide --section-headers "$there") >&2 || true
  diff <(strings -n 8 "$here" | sort -u) <(strings -n 8 "$there" | sort -u) | head -n 40 >&2 || true
  exit 1
fi
for folder in "$place" "$packages" "$PWD/"; do
  if grep -qaF "$folder" "$there"; then echo "same-image: $image names $folder" >&2 && exit 1; fi
done
echo "same-image: $image is the same, $(stat -c %s "$there") bytes with the debugger's tables"
