#!/usr/bin/env bash
# terminal_cli.sh KNET JSON_GET PAGES CASE: the command on terminals and without, as scripts and people use it.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1 json_get=$2 pages=$3 case=$4
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER KNET_ALLOC NO_COLOR
cd "$work"

is_colored() { grep -q $'\033\[' "$1"; }
small=(train mlp --synthetic --epochs 1 --threads 1)
profile() { want 0 env "KNET_TIMER=1,out=/dev/null,json=$1" "$knet" "${small[@]}" --quiet; }
# on_terminal COMMAND: runs it on a terminal; keeps what it printed in `out`.
on_terminal() {
  command -v script >/dev/null || exit 77
  : >err
  script -qec "$1" out </dev/null >/dev/null || fail "$1"
}

case $case in
  color)
    profile a.json
    cp a.json even.json
    sed -i 's/"sigma_ns":[0-9.e+]*/"sigma_ns":0/' even.json # a busy machine's
    sed -E '/"label":"forward"/{s/"(time|min|max|ended)_ns":([0-9]+)/"\1_ns":9\2/g}' even.json >slow.json
    want 0 "$knet" report a.json;                    ! is_colored out || fail 'colour in a file'
    want 0 "$knet" report a.json --color always;     is_colored out || fail 'no colour'
    [ "$(grep -o $'\033\[0m' out | wc -l)" -eq "$(grep -oE $'\033\[[1-9]' out | wc -l)" ] || fail 'a colour does not end'
    sed 's/\x1b\[[0-9]*m//g' out >plain
    want 0 "$knet" report a.json;                    cmp out plain || fail 'colour changes the text'
    want 1 "$knet" diff even.json slow.json --color always; grep -q $'^\033\[31m time .*forward' out || fail 'worse is red'
    want 0 "$knet" diff slow.json even.json --color always; grep -q $'^\033\[32m time .*forward' out || fail 'better is green'
    want 1 "$knet" report none --color=always;       is_colored err || fail 'no colour in the message'
    want 1 "$knet" report none --color never;        ! is_colored err || fail 'colour in the message'
    want 2 "$knet" report none --color sometimes;    err_has "unknown color 'sometimes'; there are: auto, always, never"
    want 0 "$knet" report a.json --json --color always;  cmp out a.json || fail 'colour in JSON'
    on_terminal "TERM=xterm '$knet' info";           is_colored out || fail 'no colour on a terminal'
    on_terminal "TERM=xterm NO_COLOR=1 '$knet' info";  ! is_colored out || fail 'NO_COLOR'
    on_terminal "TERM=xterm NO_COLOR= '$knet' info";   is_colored out || fail 'an empty NO_COLOR is none'
    on_terminal "TERM=dumb '$knet' info";            ! is_colored out || fail 'a dumb terminal'
    on_terminal "TERM=xterm '$knet' info --color never"; ! is_colored out || fail '--color never' ;;
  ascii) # where the locale has no UTF-8
    profile a.json
    sed -i 's/"sum_ns":[0-9]*/"sum_ns":9900000/' a.json # steps of 100 us
    for locale in LC_ALL=C LC_ALL=de_DE.ISO-8859-1; do
      for arguments in 'report a.json' 'report a.json --memory' 'report a.json --columns spread' 'diff a.json a.json' \
                       info help 'help report' 'help replay' version; do
        # shellcheck disable=SC2086  # arguments are words
        want 0 env "$locale" "$knet" $arguments
        ! LC_ALL=C grep -q '[^ -~]' out || fail "$locale $arguments: more than ASCII"
      done
      want 0 env "$locale" KNET_TIMER=1 "$knet" "${small[@]}"
      ! LC_ALL=C grep -q '[^ -~]' err || fail "$locale: the table of the timer"
      want 0 env "$locale" KNET_TIMER=1,unicode "$knet" "${small[@]}"; err_has '───'
    done
    want 0 env -u LC_ALL -u LC_CTYPE LANG=en_US.utf8 "$knet" report a.json; out_has '───'
    want 0 env -u LC_ALL LC_CTYPE=C LANG=en_US.UTF-8 "$knet" report a.json; ! grep -q '─' out || fail 'LC_CTYPE'
    want 0 env LC_ALL=C.UTF-8 LC_CTYPE=C "$knet" report a.json;             out_has '───'
    want 0 env KNET_TIMER=1 "$knet" "${small[@]}";                          err_has '───'
    on_terminal "TERM=xterm LC_ALL=C '$knet' train mlp --synthetic --epochs 1 --batch 1"
    grep -aq '\[#* *\] \[[0-9.]*%' out || fail 'no bar'
    ! LC_ALL=C grep -aq $'[\x80-\xff]' out || fail 'the bar'
    on_terminal "TERM=dumb '$knet' train mlp --synthetic --epochs 1 --batch 1"
    ! is_colored out || fail 'escape sequences on a dumb terminal' ;;
  width)
    for variable in TIMER ALLOC; do
      want 0 env "KNET_$variable=help" "$knet" --version
      sed -i '/^ / { /^  /!d }' err # the table
      widest=$(wc -L <err)
      [ "$widest" -le 80 ] || fail "KNET_$variable=help has $widest columns"
    done
    for columns in 40 60 80 200; do
      for topic in '' train report diff replay info version help; do
        on_terminal "stty cols $columns; '$knet' help $topic"
        sed -i 's/\r$//; s/\x1b\[[0-9]*m//g; /^Script /d' out
        [ "$columns" -ge 80 ] || sed -i '/^Examples:/,$d' out # for copying: whole
        widest=$(wc -L <out)
        [ "$widest" -le $((columns < 80 ? columns : 80)) ] || fail "help $topic: $widest columns on a terminal of $columns"
      done
    done ;;
  input) # - is standard input; gzip is read everywhere
    profile a.json
    gzip -k a.json
    want 0 "$knet" report a.json;                 cp out table
    want 0 "$knet" report a.json.gz;              cmp out table || fail 'gzip'
    want 0 "$knet" report - <a.json;              cmp out table || fail 'standard input'
    want 0 "$knet" report - <a.json.gz;           cmp out table || fail 'gzip on standard input'
    want 0 "$knet" diff - a.json <a.json.gz;      out_has 'no row moved'
    want 2 "$knet" diff - - <a.json;              err_has 'standard input .* only once'
    want 1 "$knet" report - </dev/null;           err_has 'standard input is empty'
    want 1 "$knet" report - <&-;                  err_has 'standard input'
    head -c 1000 a.json.gz >cut.gz
    want 1 "$knet" report cut.gz;                 err_has 'cut.gz: the gzip data end early'
    want 1 "$knet" report .;                      err_has '\.: Is a directory'
    want 1 "$knet" report none.json;              err_has 'none.json: No such file'
    want 2 "$knet" report '';                     err_has "FILE is ''"
    { echo Thread,Time,Action,Pointer,Size,Stream; echo 1,00:00:00:000000,allocate,0x100,4096,0x0; } >t.csv
    want 0 "$knet" replay --repeats 1 - <t.csv;   out_has '^standard input: RMM CSV, 1 events'
    gzip -c t.csv | want 0 "$knet" replay --repeats 1 -; out_has '^standard input: RMM CSV'
    echo oops >>t.csv
    want 1 "$knet" replay --repeats 1 - <t.csv;   err_has '^knet replay: standard input:3: '
    # Never more than the largest profile, whatever gzip makes of it.
    head -c 1100000000 /dev/zero | gzip -1 >bomb.gz
    want 1 "$knet" report bomb.gz;                err_has 'bomb.gz is larger than any profile: more than 1024 MiB' ;;
  output)
    profile a.json
    want 0 "$knet" report a.json;                          cp out table
    want 0 "$knet" report a.json --output new;             [ ! -s out ] || fail 'stdout is not empty'
    cmp new table || fail 'other text'
    want 0 "$knet" report a.json --output -;               cmp out table || fail '--output -'
    echo old >new; ln -s new link
    want 0 "$knet" report a.json --output=link;            cmp new table || fail 'through a link'; [ -L link ] || fail 'no link'
    want 0 "$knet" report a.json --output 'r.%p.%r.txt';   ls r.[0-9]*.0.txt >/dev/null || fail 'no %p'
    want 0 "$knet" info --json --output info.json;         json devices.0.name info.json
    # The file that is stdout: what is written there stays, and the result follows.
    { echo first; "$knet" report a.json --output /dev/stdout; echo last; } >out 2>err
    { echo first; cat table; echo last; } >all;            cmp out all || fail '--output /dev/stdout'
    { KNET_TIMER=json=/dev/stdout,out=/dev/null "$knet" "${small[@]}" --quiet; echo last; } >out 2>err
    out_has '^loss '; out_has '^last$'; out_has '"scopes"'
    { KNET_TIMER=out=/dev/stdout "$knet" "${small[@]}" --quiet; echo last; } >out 2>err
    out_has '^loss '; out_has '^last$'; out_has '^ +forward'
    want 0 "$knet" "${small[@]}" --output train.txt;       grep -q '^epoch 1/1' train.txt || fail 'no result'
    [ ! -s out ] || fail 'stdout is not empty'
    want 0 "$knet" "${small[@]}" --json --output train.json;  [ "$(json status train.json)" = ok ] || fail status
    # What cannot be written is told before the work.
    want 1 timeout 60 "$knet" train mlp --synthetic --epochs 1000000 --output /nonexistent/x;  err_has 'cannot write /nonexistent/x: No such file'
    want 1 timeout 60 "$knet" train mlp --synthetic --epochs 1000000 --output .;   err_has 'cannot write \.: Is a directory'
    want 2 "$knet" info --output '';                        err_has "output is ''"
    if [ -e /dev/full ]; then
      want 1 "$knet" report a.json --output /dev/full;     err_has 'cannot write /dev/full: No space left on device$'
      err_has 'the result:$'; err_has '^ forward'
      want 1 "$knet" report a.json --json --output /dev/full;  [ "$(json error)" = 'cannot write /dev/full: No space left on device' ] || fail "$(json error)"
    fi
    # Interrupted: the file has the result up to there.
    "$knet" train mlp --synthetic --epochs 100000 --output stopped.txt 2>err &
    pid=$!
    until grep -q knet /proc/$pid/comm && # not the shell any more, and it catches SIGINT
      [ $((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$pid/status") & 2)) -ne 0 ]; do
      kill -0 $pid 2>/dev/null || fail 'ended by itself'
      sleep 0.05
    done
    kill -INT $pid
    got=0
    wait $pid || got=$?
    [ "$got" -eq 130 ] || fail "exit code $got, expected 130"
    grep -q '^interrupted in epoch' stopped.txt || fail 'no result of an interrupted training'
    # Two at once, and one that is killed: a whole file, and none beside it.
    "$knet" report a.json --output new & "$knet" report a.json --output new & wait
    cmp new table || fail 'two at once'
    [ -z "$(find . -name '*.tmp')" ] || fail 'a file is left beside the result' ;;
  json_failures) # a failure is a JSON object, whatever it is
    failure() { # CODE PATTERN ARGUMENT...
      local code=$1 pattern=$2
      shift 2
      want "$code" "$knet" "$@"
      [ "$(json status)" = failed ] && [ "$(json exit_code)" = "$code" ] || fail "status and exit code of $*"
      json error | grep -qE -- "$pattern" || fail "$*: the error is not '$pattern'"
      err_has "$pattern"
      [ "$(wc -l <out)" -eq 1 ] || fail "$*: more than one object"
    }
    failure 2 'MODEL is missing' train --json
    failure 2 "unknown model 'none'" train none --json
    failure 2 "is '0', but must be" train mlp --epochs 0 --json
    failure 2 'unknown option' train --nothing --json
    failure 2 'device sim computes nothing' train mlp --json --device sim
    failure 1 '/nonexistent: No such file' train mlp --json --data /nonexistent
    failure 3 'limit' train lenet --synthetic --limit 1MiB --json
    failure 1 'none.json: No such file' report none.json --json
    failure 1 'none.json: No such file' report none.json --format json
    failure 1 'none.json: No such file' report none.json --format=json
    failure 2 'none.json: No such file' diff none.json none.json --json
    failure 2 "unknown command 'tran'" tran --json
    failure 1 'cannot write /nonexistent/x' info --json --output /nonexistent/x
    [ ! -e /dev/full ] || failure 1 'cannot write /dev/full: No space left' info --json --output /dev/full
    want 1 "$knet" replay none.csv --json
    [ "$(json status)" = failed ] && [ "$(json file)" = none.csv ] || fail 'replay'
    profile a.json
    sed 's/"live_bytes_max":/"live_bytes_max":9/' a.json >more.json
    want 1 "$knet" diff a.json more.json --json # a result, not a failure
    ! grep -q '"status":"failed"' out || fail 'a result and a failure'
    echo '{"old":1}' >result.json
    want 3 "$knet" train lenet --synthetic --limit 1MiB --json --output result.json
    [ "$(json status result.json)" = failed ] || fail 'the file has no failure' ;;
  not_ignored) # options that cannot apply
    want 2 "$knet" report a --weight gpu;               err_has '--weight applies only with --format folded or flame'
    want 2 "$knet" report a --format csv --depth 2;     err_has '--depth applies only with --format table'
    want 2 "$knet" report a --json --ascii;             err_has '--ascii does not apply with --json'
    want 2 "$knet" diff a b --json --top 3;             err_has '--top does not apply with --json'
    want 2 "$knet" train mlp --synthetic --data .;      err_has '--data does not apply with --synthetic'
    want 2 "$knet" train mlp --synthetic --math tf32;   err_has '--math tf32 applies only with --device cuda'
    want 2 "$knet" train mlp --synthetic --math bf16 --device cpu,cpu; err_has '--math bf16 applies only with --device cuda'
    for option in --shard --sync-batchnorm; do
      want 2 "$knet" train mlp --synthetic $option;     err_has "$option applies only to several ranks"
    done
    want 2 "$knet" train mlp --synthetic --device sim;  err_has 'device sim computes nothing, it only counts memory'
    want 2 "$knet" help --json;                         err_has "unknown option '--json'"
    want 2 "$knet" version --quiet;                     err_has "unknown option '--quiet'" ;;
  version)
    want 0 "$knet" version;   out_has '^knet [0-9]+\.[0-9]+\.[0-9]+$'; out_has '^  compiler +(gcc|clang) [0-9]'
    out_has '^  commit +([0-9a-f]{12}|unknown)'; out_has '^  cuda +(yes|no) '
    want 0 "$knet" version --json
    want 0 "$knet" version --json;  json commit; json compiler; json features.cuda; json version >v
    want 0 "$knet" --version;       [ "knet $(cat v)" = "$(cat out)" ] || fail 'two versions'
    want 0 "$knet" help;            out_has '^  138 +ended by SIGUSR1'
    want 0 "$knet" help version;    out_has '^knet version \[OPTION\]'
    want 0 "$knet" help;            cp out all
    want 0 "$knet" --help;          cmp out all || fail 'two helps'
    want 0 "$knet" help train;      cp out all
    want 0 "$knet" train --help;    cmp out all || fail 'two helps'
    want 2 "$knet" help trian;      err_has "unknown command 'trian'; did you mean 'train'" ;;
  pages)
    for page in $("$knet" --page); do [ -s "$pages/$page" ] || fail "$page is missing"; done
    # Each word that the variables' help lists has an entry.
    : >out
    for variable in TIMER ALLOC; do
      env "KNET_$variable=help" "$knet" --version 2>err >/dev/null
      n=0
      while read -r word; do
        grep -qF "\\fB$(sed 's/-/\\-/g' <<<"$word")\\fR" "$pages/knet_${variable,,}.7" || fail "KNET_$variable: no entry $word"
        n=$((n + 1))
      done < <(sed -nE '/^  KNET_/d; s/^  ([^ ]+)(  .*)?$/\1/p' err)
      [ "$n" -gt 9 ] || fail "KNET_$variable: only $n words"
    done
    if command -v groff >/dev/null; then
      for page in "$pages"/*.[17]; do
        groff -man -ww -Tutf8 -K utf8 "$page" >/dev/null 2>>err.groff
      done
      cp err.groff err; [ ! -s err ] || fail 'groff warns'
    fi
    bash -n "$pages/knet.bash"
    ! command -v zsh >/dev/null || zsh -n "$pages/_knet"
    ! command -v fish >/dev/null || fish -n "$pages/knet.fish"
    # complete LINE: what bash offers for the last word.
    # shellcheck disable=SC1091
    source "$pages/knet.bash"
    complete_words() {
      read -ra COMP_WORDS <<<"$1"
      [[ $1 != *' ' ]] || COMP_WORDS+=('')
      COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
      _knet || true # nothing fits
      echo "${COMPREPLY[*]}" >out
    }
    touch file.json
    : >err
    complete_words 'knet tr';                      out_has '^train$'
    complete_words 'knet train ';                  out_has '^linear softmax mlp lenet '
    complete_words 'knet train mlp --ep';          out_has '^--epochs$'
    complete_words 'knet train mlp --optimizer a'; out_has '^adam adamw adagrad adadelta$'
    complete_words 'knet train --optimizer = mo';  out_has '^momentum$'
    complete_words 'knet train --epochs ';         out_has '^$'
    mkdir folder
    complete_words 'knet train --data f';          out_has '^folder$'
    complete_words 'knet train --output f';        out_has '^file.json folder$'
    complete_words 'knet report fi';               out_has '^file.json$'
    complete_words 'knet report file.json --format f';   out_has '^folded flame$'
    complete_words 'knet run --ti';                out_has '^--timer$'
    complete_words 'knet run bas';                 out_has '(^| )bash( |$)'
    complete_words 'knet run bash --ti';           out_has '^$' # an option of bash
    complete_words 'knet run --timer 1 bash fi';   out_has '^file.json$'
    complete_words 'knet run --timer = 1 ba';      out_has '(^| )bash( |$)'
    complete_words 'knet run --timer = 1 bash fi'; out_has '^file.json$'
    complete_words 'knet help di';                 out_has '^diff$' ;;
  bare) # no home, no terminal type, closed streams, odd names
    want 0 env -i "$knet" help
    want 0 env -i "$knet" version
    want 0 env -i HOME=/nonexistent "$knet" "${small[@]}" --quiet
    profile '中文 profile.json'
    want 0 "$knet" report '中文 profile.json' --output '表.txt';  [ -s 表.txt ] || fail 'no file'
    want 2 "$knet" train $'a\e[31mb\x7f';                         err_has "unknown model 'a\?\[31mb\?'"
    want 1 "$knet" report '没有.json';                           err_has '没有.json: No such file'
    for arguments in help version info 'report 中文*' 'train mlp --synthetic --epochs 1 --quiet'; do
      got=0
      # shellcheck disable=SC2086  # arguments are words
      "$knet" $arguments >&- 2>err || got=$?
      : >out
      [ "$got" -eq 1 ] || fail "$arguments with a closed stdout: exit code $got"
      err_has 'cannot write standard output'
      # shellcheck disable=SC2086
      want 0 "$knet" $arguments <&-
      # shellcheck disable=SC2086
      "$knet" $arguments >out 2>&- <&- || fail "$arguments with closed streams"
    done ;;
  *) echo "no case '$case'"; exit 1 ;;
esac
