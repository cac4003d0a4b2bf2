#!/usr/bin/env bash
# deb.sh BUILD_DIR: makes the Debian packages of a build, installs them into a root of their own, uses every part, removes
# them, and looks that no file is left. dpkg works on the private root, with a database of its own.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
for tool in dpkg dpkg-deb dpkg-query dpkg-shlibdeps file cpack; do
  command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
# dpkg gives the files to root: as any other user, in a namespace or a shell where we seem to be root.
if [ "$(id -u)" -ne 0 ]; then
  if unshare -r true 2>/dev/null; then exec unshare -r "$0" "$@"; fi
  if command -v fakeroot >/dev/null; then exec fakeroot "$0" "$@"; fi
  echo 'neither root, nor user namespaces, nor fakeroot'
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
unset KNET_TIMER KNET_ALLOC LD_LIBRARY_PATH
fail() { echo "$1"; exit 1; }

# --- build ---
(cd "$build" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/debs") >"$work/cpack.log" 2>&1 ||
  { cat "$work/cpack.log"; exit 1; }
mapfile -t debs < <(find "$work/debs" -maxdepth 1 -name '*.deb' | sort)
field() { dpkg-deb -f "$1" "$2"; }
names=()
for deb in "${debs[@]}"; do names+=("$(field "$deb" Package)"); done
all=$(printf '%s\n' "${names[@]}")
for part in alloc profiler ops autograd comm; do
  grep -qx "libknetc-${part}[0-9]*" <<<"$all" || fail "no package of $part: ${names[*]}"
done
for name in knetc-tools libknetc-dev; do
  grep -qx "$name" <<<"$all" || fail "no package $name: ${names[*]}"
done

# What each depends on: the packages to its left, and those of the libraries that it links.
deb_of() { local i; for i in "${!names[@]}"; do [[ ${names[$i]} != $1 ]] || echo "${debs[$i]}"; done; }
depends_on() { field "$(deb_of "$1")" Depends | grep -qE "$2" || fail "$1 does not depend on $2: $(field "$(deb_of "$1")" Depends)"; }
depends_on 'libknetc-alloc[0-9]' 'libc6 \(>='
depends_on 'libknetc-profiler[0-9]' 'libknetc-alloc[0-9] \(= '
depends_on 'libknetc-ops[0-9]' 'libdnnl'
depends_on 'libknetc-ops[0-9]' 'libknetc-profiler[0-9] \(= '
depends_on 'libknetc-autograd[0-9]' 'libknetc-ops[0-9] \(= '
depends_on 'libknetc-comm[0-9]' 'libknetc-autograd[0-9] \(= '
depends_on knetc-tools 'libknetc-comm[0-9] \(= '
depends_on knetc-tools 'zlib1g'
depends_on libknetc-dev 'knetc-tools \(= '
! field "$(deb_of 'libknetc-alloc[0-9]')" Depends | grep -qE 'dnnl|zlib|cjson' || fail 'the allocator depends on too much'
# No file is in two packages, and all of them belong to root.
for deb in "${debs[@]}"; do dpkg-deb -c "$deb"; done >"$work/contents"
twice=$(awk '$1 !~ /^d/ { print $6 }' "$work/contents" | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
! awk '$2 != "root/root"' "$work/contents" | grep . || fail 'files of other owners'

# --- install ---
# The private database has what the packages depend on as the machine has it, so that dpkg checks the dependencies.
mkdir -p "$root/var/lib/dpkg/"{info,updates,triggers}
: >"$root/var/lib/dpkg/available"
for deb in "${debs[@]}"; do field "$deb" Depends | tr ',|' '\n\n' | sed 's/ *(.*//; s/^ *//; s/ *$//'; done |
  sort -u | grep -vE '^(lib)?knetc-' | while read -r name; do
    dpkg-query -W -f='Package: ${Package}\nStatus: install ok installed\nArchitecture: ${Architecture}\nVersion: ${Version}\nMaintainer: none\nDescription: of this machine\n\n' \
               "$name" 2>/dev/null || echo "the machine lacks $name" >&2
  done >"$root/var/lib/dpkg/status"
sed -n 's/^Package: //p' "$root/var/lib/dpkg/status" | while read -r name; do : >"$root/var/lib/dpkg/info/$name.list"; done
chmod -R u+rwX "$root"
dpkg() {
  command dpkg --root="$root" --force-bad-path --log="$work/dpkg.log" "$@" >"$work/dpkg.out" 2>&1 ||
    { cat "$work/dpkg.out"; return 1; }
}
(cd "$root" && find . -path ./var -prune -o -print) | sort >"$work/before"
# Not in any order: without what it needs, a package is not configured.
if dpkg -i "$(deb_of 'libknetc-ops[0-9]')" 2>/dev/null >"$work/out"; then fail 'ops was installed without the profiler'; fi
dpkg --purge "$(field "$(deb_of 'libknetc-ops[0-9]')" Package)"
dpkg -i "${debs[@]}"
[ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f='${Package} ${db:Status-Status}\n' '*knetc*' | grep -c ' installed$')" -eq "${#debs[@]}" ] ||
  fail 'not all packages are installed'

# --- use ---
lib=$(dirname "$(find "$root" -name 'libknet_alloc.so.*' | head -n 1)")
export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$lib/pkgconfig
knet=$root/usr/bin/knet
"$knet" version >"$work/out" && grep -q '^knet [0-9]' "$work/out"
KNET_TIMER=1,json=$work/run.json,out=/dev/null "$knet" train mlp --synthetic --epochs 1 --quiet >"$work/out"
"$knet" report "$work/run.json" >"$work/out"
grep -q forward "$work/out" || fail 'no table'
for file in usr/share/man/man1/knet.1 usr/share/man/man1/knet-train.1 usr/share/man/man7/knet_timer.7 \
            usr/share/man/man7/knet_alloc.7 usr/share/bash-completion/completions/knet \
            usr/share/zsh/vendor-completions/_knet usr/share/fish/vendor_completions.d/knet.fish \
            usr/share/doc/knetc/LICENSE usr/share/doc/knetc/CHANGELOG.md; do
  [ -s "$root/$file" ] || fail "$file is missing"
done
# shellcheck disable=SC2046  # flags are words
"${CC:-cc}" -std=c11 -o "$work/all" "$here/consumer/all.c" $(pkg-config --cflags --libs knetc-train)
"$work/all" >"$work/out"
# Each library finds what it links in the packages and in the machine alone.
while read -r library; do
  ! ldd "$library" | grep -E "not found|$build" || fail "$library"
  ! readelf -d "$library" | grep -E "R(UN)?PATH.*$build" || fail "$library knows the build folder"
done < <(find "$root/usr" -name '*.so.*' -type f ! -name '*_cuda.so*'; echo "$knet") # CUDA's libraries are of no package

# The Python package of the plug-ins loads, and finds its libraries where the packages put them.
if command -v python3 >/dev/null && [[ " ${names[*]} " == *" knetc-plugins "* ]]; then
  depends_on knetc-plugins 'libknetc-alloc[0-9] \(= '
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/usr/lib/python3/dist-packages python3 -c '
import knetc, knetc._lib
assert knetc._lib.load("torch").knet_torch_oom_type, knetc.__file__' || fail 'the Python package does not load'
fi

# --- remove ---
dpkg --remove knetc-tools libknetc-dev
[ -e "$lib/libknet_alloc.so.0" ] && [ ! -e "$knet" ] || fail 'removed too much, or too little'
mapfile -t installed < <(printf '%s\n' "${names[@]}")
dpkg --purge "${installed[@]}"
(cd "$root" && find . -path ./var -prune -o -print) | sort >"$work/after"
cmp "$work/before" "$work/after" || fail "left behind: $(comm -13 "$work/before" "$work/after")"
ls "$root/var/lib/dpkg/info" | grep -E knetc && fail 'the database still has files of the packages'
exit 0
