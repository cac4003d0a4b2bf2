#!/usr/bin/env bash
# parent.sh SOURCE_DIR BUILD_DIR: a project that adds the source tree keeps its own build: its build type and kind of libraries, and
# what it installs.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(parent C)
set(KNET_PARTS alloc)
add_subdirectory("$source" knet)
file(WRITE mine.c "int main(void) { return 0; }\n")
add_library(mine mine.c)
add_executable(program mine.c)
install(TARGETS mine program)
get_target_property(type knet_alloc TYPE)
file(WRITE type "\${type}")
END
configure() {
  cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" \
        >"$work/log" 2>&1 || fail "$(cat "$work/log")"
}
command_of() { grep '"command"' "$work/build/compile_commands.json" | grep -- "$1" | head -n 1; }
installed() {
  cmake --build "$work/build" >"$work/log" 2>&1 || fail "$(tail -n 40 "$work/log")"
  cmake --install "$work/build" --prefix "$work/prefix" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
  (cd "$work/prefix" && find . -type f | sort)
}

configure -DCMAKE_BUILD_TYPE=Debug -DBUILD_SHARED_LIBS=OFF   # the parent's are ours
command_of alloc/pool/pool | grep -q -- ' -g ' || fail "the parent's build type is not ours"
[ "$(cat "$work/type")" = STATIC_LIBRARY ] || fail "not static: $(cat "$work/type")"

rm -rf "$work/build"
configure   # ours are not the parent's
! command_of mine.c | grep -E -- '-O[1-3]|NDEBUG' || fail "the parent's build type"
command_of alloc/pool/pool | grep -q -- ' -O3 ' || fail 'not optimised'
[ "$(cat "$work/type")" = SHARED_LIBRARY ] || fail "not shared: $(cat "$work/type")"
! grep -E '^(BUILD_SHARED_LIBS|CMAKE_BUILD_TYPE):[A-Z]*=.' "$work/build/CMakeCache.txt" || fail "in the parent's cache"
got=$(installed)
[ "$got" = $'./bin/program\n./lib/libmine.a' ] || fail "installed: $got"

configure -DKNET_INSTALL=ON
got=$(installed)
for file in include/knet/pool.h libknet_alloc.so.* KnetCConfig.cmake KnetC-alloc.cmake KnetC-alloc-noconfig.cmake knetc-alloc.pc; do
  grep -q "/$file$" <<<"$got" || fail "no $file installed: $got"
done
