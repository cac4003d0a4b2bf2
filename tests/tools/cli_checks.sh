# shellcheck shell=bash
# Sourced by the tests of the command: runs a program and asks its exit code, stdout and stderr.

fail() { printf '%s\n--- stdout\n%s\n--- stderr\n%s\n' "$1" "$(cat out)" "$(cat err)" >&2; exit 1; }
want() {
  local code=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got, expected $code: $*"
}
out_has() { grep -qE -- "$1" out || fail "not on stdout: $1"; }
err_has() { grep -qE -- "$1" err || fail "not on stderr: $1"; }
json() { "$json_get" "$1" <"${2:-out}" || fail "no $1 in the JSON"; }
