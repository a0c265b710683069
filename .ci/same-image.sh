#!/usr/bin/env bash
# An image does not depend on the computer: builds it here, and in a copy of this checkout with another cargo home, and compares
# the two files byte for byte.
#   .ci/same-image.sh       the rig on a board of QEMU, which is built from 40 crates
#   .ci/same-image.sh rig   the rig on an RP2040, with embassy
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
# The commit is in the image. What is not committed yet is meant, too.
git clone -q --shared . "$copy"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; else rm -f "$copy/$file"; fi
done | tar --null --files-from=- --create | tar --extract --directory "$copy"

cargo "${build[@]}"
# The packages that were loaded, under another name.
packages=${CARGO_HOME:-$HOME/.cargo}/registry
ln -s "$packages" "$home/registry"
(cd "$copy" && env -u CARGO_TARGET_DIR CARGO_HOME="$home" cargo "${build[@]}")

file=$target/firmware/$image
cmp "${CARGO_TARGET_DIR:-target}/$file" "$copy/target/$file" || { echo "same-image: $image depends on the folder that it is built in" >&2; exit 1; }
for folder in "$place" "$packages"; do
  if grep -qaF "$folder" "$copy/target/$file"; then echo "same-image: $image names $folder" >&2 && exit 1; fi
done
echo "same-image: $image is the same, $(stat -c %s "$copy/target/$file") bytes with the debugger's tables"
