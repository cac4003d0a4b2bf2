#!/usr/bin/env bash
# report_cli.sh KNET JSON_GET: `knet report` and `knet diff` on profiles of a training run, and on bad files.
set -euo pipefail
export LC_ALL=C.UTF-8   # for the patterns below
knet=$1 json_get=$2
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
cd "$work"

want 0 env KNET_TIMER=1,out=table.txt,json=a.json "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet

# It says in which math mode; knet diff warns about another one.
grep -q '"notes":"math=strict, batch=128"' a.json || fail 'no math mode in a.json'
sed 's/math=strict/math=tf32/' a.json >tf32.json
grep -q '^ run: math=strict, batch=128$' table.txt || fail 'no math mode in the table'
want 0 "$knet" report tf32.json;                        out_has '^ run: math=tf32, batch=128$'
want 0 "$knet" diff a.json tf32.json;                   out_has "unlike runs: the program's notes are math=strict, batch=128, then math=tf32"

# What a profile shows is what the timer printed.
want 0 "$knet" report a.json
cmp out table.txt || fail 'the table read back differs from the one printed at exit'
want 0 "$knet" report a.json --columns 2018 --depth 1;  out_has '^ forward +100 '
want 0 "$knet" report a.json --columns spread --ascii;  out_has ' sd +first'
want 0 "$knet" report a.json --filter 'fc1$' --depth 2 --min 0; out_has '^   fc1 '; ! grep -q fc2 out || fail 'filtered'
want 0 "$knet" report a.json --filter 'fc1$' --depth 2; out_has '^ forward +- '
want 0 "$knet" report a.json --filter 'fc1$' --json;    cp out part.json; want 0 "$knet" report part.json --min 0; out_has '^   fc1 +100 '
want 0 "$knet" report a.json --min 20%;                 out_has '^ \([0-9]+ below 20 %\) '; out_has ': small rows summed up'
want 2 "$knet" report a.json --min 101;                 err_has "is '101', but must be a number from 0 to 100"
want 0 "$knet" report a.json --top 1;                   out_has '\([0-9]+ more\)'
want 0 "$knet" report a.json --flatten --sort calls;    out_has '^ linear '
want 0 "$knet" report a.json --memory;                  out_has 'high-water mark [0-9.]+ MiB, [0-9.]+m?s after the start'
out_has 'owned then by'; out_has '█'; out_has '└─+\^'
want 0 "$knet" report a.json --memory --fits 1GiB;      out_has '^ live then, by role and layer'
out_has '^ +[0-9.]+KiB +[0-9.]+%  weights$'; out_has '^ in 1.00 GiB a batch of about [0-9]{4,} would fit$'
# The batch that it names fits.
want 0 env KNET_TIMER=1,out=lenet.txt,json=lenet.json "$knet" train lenet --synthetic --epochs 1 --batch 64 --quiet
for limit in 20MiB 100MiB; do
    want 0 "$knet" report lenet.json --memory --fits "$limit"
    fits=$(sed -n 's/.* a batch of about \([0-9]*\) would fit$/\1/p' out)
    [ "$fits" -ge 64 ] || fail "$limit: a batch of $fits"
    want 0 "$knet" train lenet --synthetic --epochs 1 --batch "$fits" --limit "$limit" --quiet
done
sed 's/, batch=128//' a.json >other.json
want 1 "$knet" report other.json --memory --fits 1GiB;  err_has '^knet report: other.json has no batch size, which --fits needs: '
[ ! -s out ] || fail 'half a report'
want 2 "$knet" report a.json --fits 1GiB;               err_has '--memory'
want 0 "$knet" report a.json --memory --top 2;          ! grep -q ' more)' out || fail 'an owner that is a sum'
want 0 "$knet" report a.json --memory --ascii;          out_has '#'; ! grep -qP '[^\x00-\x7f]' out || fail 'ASCII alone'

# The other formats: stacks add up to the time measured, JSON comes back as it was.
want 0 "$knet" report a.json --format csv;    [ "$(head -n 1 out | cut -d, -f1-4)" = path,depth,kind,n_calls ] || fail head
want 0 "$knet" report a.json --format flame;  out_has '^<svg'
want 0 "$knet" report a.json --format folded
sum=$(awk '{ sum += $NF } END { printf "%.0f", sum }' out) all=$(json measured_ns a.json)
awk -v a="$sum" -v b="$all" 'BEGIN { exit !(a >= b * 0.999 && a <= b * 1.001) }' || fail "stacks: $sum of $all"
want 0 "$knet" report a.json --format speedscope; out_has '"unit":"nanoseconds"'
want 0 "$knet" report a.json --format hatchet;    out_has '"name":"forward","type":"function"'
want 0 "$knet" report a.json --format html;       out_has '^<!doctype html>'
want 0 "$knet" report a.json --json;          cmp out a.json || fail 'JSON read and written differs'
want 0 "$knet" report a.json --json --flatten; [ "$(json schema)" = knet.prof ] || fail schema

# Two runs: the same file has not moved; a row made slower by hand has.
want 0 "$knet" diff a.json a.json;            out_has 'no row moved'
sed -i 's/"sigma_ns":[0-9.e+]*/"sigma_ns":0/' a.json # a busy machine's
sed -E '/"label":"forward"/{s/"(time|min|max|ended)_ns":([0-9]+)/"\1_ns":9\2/g}' a.json >slow.json
want 1 "$knet" diff a.json slow.json;         out_has '^ time .* forward$'
want 0 "$knet" diff slow.json a.json;         out_has '0 for the worse, 1 for the better'
want 1 "$knet" diff a.json slow.json --json;  [ "$(json changes.0.path)" = forward ] || fail path
want 0 "$knet" diff a.json slow.json --threshold 100000
want 0 "$knet" diff a.json a.json --threshold 0 --share 0
want 2 "$knet" diff a.json a.json --share -1; err_has "--share is '-1', but must be 0 or a number above it"
want 0 "$knet" report a.json slow.json a.json --depth 1;  out_has ' in all of 3 runs,'; out_has 'least +mean +most +imbal +in '; out_has '^ forward +300 .* 1 '
want 0 "$knet" report a.json slow.json --json;            [ "$(json run.n_runs)" = 2 ] && [ "$(json scopes.0.n_runs)" = 2 ] || fail 'runs'
want 1 "$knet" report a.json none.json;                   err_has 'none.json: No such file'
want 0 "$knet" diff a.json a.json -- a.json slow.json;    out_has '\(means of 2 and 2 runs\)'
want 1 "$knet" diff a.json -- slow.json slow.json;        out_has '^ time .* forward$'
want 2 "$knet" diff a.json a.json slow.json;              err_has '3 profiles need a -- between those before and those after'
sed 's/"host":"[^"]*"/"host":"another"/' a.json >other.json
want 0 "$knet" diff a.json other.json;                    out_has 'unlike runs: the host is .*, then another'

# Bad files: exit code 1, of diff 2; the name, and what is wrong.
head -c 5000 a.json >cut.json
echo '{"traceEvents":5}' >foreign.json
sed 's/"version":1/"version":9/' a.json >newer.json
: >empty.json
for line in "1 report FILE" "2 diff a.json FILE" "2 diff FILE a.json"; do
  code=${line%% *} command=${line#* }
  want $code "$knet" ${command/FILE/cut.json};      err_has 'cut.json is .*cut off'
  want $code "$knet" ${command/FILE/foreign.json};  err_has 'foreign.json is no profile of the timer'
  want $code "$knet" ${command/FILE/newer.json};    err_has 'newer.json is of version 9 .* reads version 1'
  want $code "$knet" ${command/FILE/empty.json};    err_has 'empty.json is empty'
  want $code "$knet" ${command/FILE/missing.json};  err_has 'missing.json: No such file'
done
want 2 "$knet" diff missing.json empty.json;  err_has 'missing.json'; err_has 'empty.json'
want 2 "$knet" report;                        err_has 'FILE is missing'
want 2 "$knet" diff a.json;                   err_has 'AFTER is missing'
want 2 "$knet" report a.json --sort tme;      err_has "did you mean 'time'"
want 1 "$knet" report a.json --filter nothing; err_has "no row of a.json matches 'nothing'"
want 0 "$knet" report --help;                 out_has '--memory'
want 0 "$knet" diff --help;                   out_has 'Exit codes'

# A report that can't be written is not lost.
code=0
"$knet" report a.json >/dev/full 2>err || code=$?
[ $code -eq 1 ] || fail "exit code $code on a full disk"
err_has 'cannot write standard output: No space left'; err_has '^ forward'
