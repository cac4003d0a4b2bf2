#!/usr/bin/env bash
# Installs what is missing, on Debian 12 and its relatives: tools/install-deps.sh build|test|bench …
#   build  to compile and train        test  also to test        bench  also to compare with PyTorch, and valgrind
# As root with apt-get, else through sudo; when neither is possible it prints the list and ends with 1.
# The CUDA toolkit and cuDNN are no Debian packages: they are used where nvcc is found, and not needed.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build pkg-config libdnnl-dev libjemalloc-dev zlib1g-dev libcjson-dev
       dataset-fashion-mnist)
test=(g++ libcmocka-dev git procps)
bench=(python3-torch python3-numpy libopenblas0-openmp valgrind)

want=()
for group in "${@:-build}"; do
  case $group in
    build) want+=("${build[@]}") ;;
    test) want+=("${build[@]}" "${test[@]}") ;;
    bench) want+=("${build[@]}" "${bench[@]}") ;;
    *) echo "install-deps.sh: unknown group '$group' (build, test, bench)" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${want[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  else
    cannot="not root, and no usable sudo"
  fi
fi
command -v apt-get >/dev/null || cannot="no apt-get here"
if [ -n "${cannot:-}" ]; then
  printf 'These packages are missing and could not be installed (%s):\n  %s\n' "$cannot" "${missing[*]}" >&2
  printf 'Install them, for example with:  apt-get install %s\n' "${missing[*]}" >&2
  exit 1
fi
echo "Installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
