#!/usr/bin/env bash
# docs.sh SOURCE_DIR: runs the commands of README.md and docs/ as a newcomer types them: in a fresh clone, an empty home and
# an empty environment. A fenced block of C or CMake whose first line names a file is written to that file; a block of sh
# runs. Each program also compiles, and runs, as C++11.
# Stand-ins: URL is SOURCE_DIR; the installer of packages lists them; the demo trains on made-up images; tests/run.sh,
# which runs this test, prints its usage; nsys runs the program that it should trace. The last section, on Arm, has a test
# of its own.
set -euo pipefail
source=$1 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/home" "$work/bin"
cp "$source/tests/package/snapshot.pickle" "$work/home/"

# The compilers; programs that link ours get warnings as errors. A C program is also compiled as C++ and run.
warnings="-Wall -Wextra -Wpedantic -Werror"
cc=$(command -v "${CC:-cc}") cxx=$(command -v c++ || true)
cat >"$work/bin/cc" <<END
#!/bin/sh -e
case "\$*" in *-lknet_*) ;; *) exec $cc "\$@" ;; esac
[ -z "$cxx" ] || { $cxx -std=c++11 $warnings -x c++ "\$@" -o "$work/as_cxx"; "$work/as_cxx" >/dev/null; }
exec $cc -std=c11 $warnings "\$@"
END
cat >"$work/bin/c++" <<END
#!/bin/sh
case "\$*" in *-lknet_*) exec $cxx $warnings "\$@" ;; esac
exec $cxx "\$@"
END
cat >"$work/bin/nsys" <<'END'
#!/bin/sh
while [ "${1#./}" = "$1" ]; do shift; done
exec "$@"
END
# All this builds in a tenth of the time without optimisation, with one instruction set, and without the tests and
# benchmarks, which the build that runs this test has.
cat >"$work/bin/cmake" <<END
#!/bin/bash
case " \$* " in *" -B "*) set -- "\${@/%=Release/=Debug}" -DKNET_ONE_ISA=ON -DCMAKE_C_FLAGS_DEBUG=-O0 \\
  -DKNET_TESTS=OFF -DKNET_BENCH=OFF ;; esac
exec $(command -v cmake) "\$@"
END
chmod +x "$work"/bin/*

# blocks FILE: its blocks as one script.
blocks() {
  echo "echo '== $1'"
  awk '
    /^```$/ && inside { if (name != "") print "END_OF_FILE"; inside = 0; next }
    /^```/ {
      inside = 1; name = $2
      shown = $1 == "```sh" || name != ""
      if (name != "") print "cat >" name " <<\"END_OF_FILE\""
      next
    }
    inside && shown' "$source/$1"
}
{
  echo 'set -euxo pipefail'
  blocks README.md
  blocks docs/guide.md
  echo 'cd knet.c'
  blocks docs/install.md | sed '/install-deps.sh aarch64/,$d'
} | sed -e "s#git clone URL#git clone -q file://$source#" -e 's#^tools/install-deps.sh.*#tools/install-deps.sh --list#' \
        -e 's#^tools/demo.sh.*#tools/demo.sh --epochs 1 --synthetic --quiet#' -e 's#^tests/run.sh.*#tests/run.sh --help#' >"$work/script.sh"
[ "$(grep -c 'git clone' "$work/script.sh")" -ge 1 ] && [ "$(wc -l <"$work/script.sh")" -gt 250 ]
cd "$work/home"
if ! env -i HOME="$work/home" PATH="$work/bin:/usr/local/bin:/usr/bin:/bin" TERM=dumb CUDACXX=/nonexistent CMAKE_BUILD_TYPE=Debug \
     GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' \
     ${CMAKE_C_COMPILER_LAUNCHER:+CMAKE_C_COMPILER_LAUNCHER="$CMAKE_C_COMPILER_LAUNCHER"} CCACHE_DIR="${CCACHE_DIR:-$HOME/.cache/ccache}" \
     bash "$work/script.sh" >"$work/log" 2>&1 </dev/null; then
  tail -n 60 "$work/log"
  echo "a command of the README or of docs/ failed"
  exit 1
fi
# The guide's table, and the table of the timed program.
for text in 'load batch' 'Tot / % measured' 'loss 0.0' 'the frame ends all the same'; do
  grep -q "$text" "$work/log" || { echo "no '$text' in the output"; exit 1; }
done
