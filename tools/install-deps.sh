#!/usr/bin/env bash
# Installs what Knet.c needs. usage: tools/install-deps.sh [--required] [build|test|bench|aarch64]...
#   build    to compile everything and train            test     to run the tests too
#   bench    to compare with PyTorch, under valgrind    aarch64  to cross-compile for 64-bit Arm and test under qemu
#   --required skips the optional packages. --list prints the packages of Debian, Fedora and Arch.
# On Debian and its relatives it installs with apt-get, as root or through sudo. Elsewhere, and without root, it prints the
# command to run. The exit code is 1 if a required package is missing at the end; a missing optional package costs only
# what the list says. The CUDA toolkit and cuDNN are used where nvcc is found; no package of these systems has them.
set -euo pipefail

# group need Debian Fedora Arch, then what an optional package is for. "-": the system has no such package.
packages='
build   required gcc                  gcc                  gcc
build   required libc6-dev            glibc-devel          glibc
build   required make                 make                 make
build   required cmake                cmake                cmake
build   required pkg-config           pkgconf-pkg-config   pkgconf
build   required libdnnl-dev          onednn-devel         onednn
build   required zlib1g-dev           zlib-devel           zlib
test    required ninja-build          ninja-build          ninja
test    required libcjson-dev         cjson-devel          cjson
test    required libcmocka-dev        libcmocka-devel      cmocka
test    required git                  git                  git
test    required procps               procps-ng            procps-ng
aarch64 required gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
aarch64 required qemu-user            qemu-user            qemu-user
aarch64 required libc6-dev-arm64-cross -                   aarch64-linux-gnu-glibc
aarch64 required libcmocka-dev:arm64  -                    -
aarch64 required libcjson-dev:arm64   -                    -
build   optional ninja-build          ninja-build          ninja     faster builds; the presets and tests/run.sh need it
build   optional libcjson-dev         cjson-devel          cjson     knet report and knet diff read profiles
build   optional libjemalloc-dev      jemalloc-devel       jemalloc  the knet command allocates host memory faster
build   optional libsqlite3-dev       sqlite-devel         sqlite    knet report and knet diff read exports of Nsight Systems
build   optional libncurses-dev       ncurses-devel        ncurses   the screen of knet top; knet top --once works without it
build   optional liblapack3           lapack               lapack    kn_svd and kn_eigh on the host; libopenblas0-openmp is faster
build   optional libpng-dev           libpng-devel         libpng   images in folders, as PNG
build   optional libjpeg-dev          libjpeg-turbo-devel  libjpeg-turbo images in folders, as JPEG
build   optional libopenmpi-dev       openmpi-devel        openmpi  training by several processes, over MPI
build   optional openmpi-bin          openmpi              openmpi  mpirun, which starts them
build   optional dataset-fashion-mnist -                   -         images to train on; knet train --synthetic makes some up
test    optional g++                  gcc-c++              gcc       the plug-in for PyTorch; tests in C++ and of the CUDA sources
test    optional clang-format         clang-tools-extra    clang     the test of the formatting
test    optional clang-tidy           clang-tools-extra    clang     the test by static analysis
test    optional chromium             chromium             chromium  tests of the HTML page of a profile
test    optional doxygen              doxygen              doxygen   tests of the API reference
test    optional python3-prometheus-client python3-prometheus_client python-prometheus_client the test of metrics for Prometheus
test    optional python3-protobuf     python3-protobuf     python-protobuf      the test of Perfetto traces
test    optional python3-numpy        python3-numpy        python-numpy         the test of files and DLPack with NumPy
test    optional python3-h5py         python3-h5py         python-h5py          tools/convert/jld2.py, for files of Knet.jl, and its test
bench   optional python3-torch        python3-torch        python-pytorch       the comparison with PyTorch
bench   optional python3-numpy        python3-numpy        python-numpy         the comparison with PyTorch
bench   optional libopenblas0-openmp  openblas-openmp      openblas             the comparison with PyTorch
bench   optional valgrind             valgrind             valgrind             counts of instructions
'

case ${1:-} in
  -h | --help)
    echo "usage: tools/install-deps.sh [--required] [build|test|bench|aarch64]..., or --list"
    exit 0 ;;
  --list)
    printf '%-8s%-9s%-22s%-23s%-22s%s\n' group need Debian Fedora Arch for
    while read -r group need debian fedora arch for; do
      [ -z "$group" ] || printf '%-8s%-9s%-22s%-23s%-22s%s\n' "$group" "$need" "$debian" "$fedora" "$arch" "$for"
    done <<<"$packages"
    exit 0 ;;
esac

with_optional=1 groups=()
for word in "$@"; do
  case $word in
    --required) with_optional=0 ;;
    build | bench) groups+=(build "$word") ;;
    test | aarch64) groups+=(build test "$word") ;;
    *) echo "install-deps.sh: unknown group '$word' (build, test, bench, aarch64)" >&2; exit 2 ;;
  esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build)

# The system by its package manager: which column to read, and how to ask whether a package is installed.
column=0 install=
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  column=1 install="apt-get install --no-install-recommends"
elif command -v rpm >/dev/null && command -v dnf >/dev/null; then
  column=2 install="dnf install"
elif command -v pacman >/dev/null; then
  column=3 install="pacman -S --needed"
else
  echo "install-deps.sh: this system has neither apt-get, dnf nor pacman; tools/install-deps.sh --list names the packages" >&2
  exit 1
fi
has() {
  case $column in
    1) [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ] ;;
    2) rpm -q --whatprovides "$1" >/dev/null 2>&1 ;;
    3) pacman -Q "$1" >/dev/null 2>&1 ;;
  esac
}

required=() optional=() reasons=()
find_missing() {
  required=() optional=() reasons=()
  local group need names package for debian fedora arch
  while read -r group need debian fedora arch for; do
    [[ -n $group && " ${groups[*]} " == *" $group "* ]] || continue
    names=("" "$debian" "$fedora" "$arch")
    package=${names[$column]}
    if [ "$package" = - ] || has "$package" || [[ " ${required[*]} ${optional[*]} " == *" $package "* ]]; then continue; fi
    if [ "$need" = required ]; then
      required+=("$package")
    elif [ $with_optional = 1 ]; then
      optional+=("$package")
      reasons+=("$package: $for")
    fi
  done <<<"$packages"
}
report_optional() {
  [ ${#optional[@]} -gt 0 ] || return 0
  echo "Optional packages that are missing ($install ${optional[*]}):"
  printf '  %s\n' "${reasons[@]}"
}

find_missing
[ ${#required[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ] || exit 0

as_root=() cannot=
if [ $column != 1 ]; then
  cannot="only apt-get is used without asking"
elif [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  else
    cannot="not root, and no usable sudo"
  fi
fi
if [ -n "$cannot" ]; then
  report_optional
  [ ${#required[@]} -gt 0 ] || exit 0
  printf 'Required packages are missing and were not installed (%s). Run as root:\n  %s %s\n' \
    "$cannot" "$install" "${required[*]}" >&2
  exit 1
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"; }
if [[ " ${groups[*]} " == *" aarch64 "* ]]; then "${as_root[@]}" dpkg --add-architecture arm64; fi
apt update || true   # without a network the lists of before may do
if [ ${#required[@]} -gt 0 ]; then
  echo "Installing: ${required[*]}"
  apt install -y --no-install-recommends "${required[@]}" >/dev/null || {
    echo "install-deps.sh: apt-get could not install: ${required[*]}" >&2
    exit 1
  }
fi
if [ ${#optional[@]} -gt 0 ]; then
  echo "Installing, optional: ${optional[*]}"
  # One that can't be installed must not keep the others away.
  apt install -y --no-install-recommends "${optional[@]}" >/dev/null 2>&1 ||
    for package in "${optional[@]}"; do apt install -y --no-install-recommends "$package" >/dev/null 2>&1 || true; done
  find_missing
  report_optional
fi
