#!/usr/bin/env bash
# calls.sh SOURCE_DIR BUILD_DIR: no call of a GPU or mathematics library without a scope of its name.
# 1. Which objects of our libraries refer to such a library at all: the wrappers' alone.
# 2. In these, a call is written through a call macro (the name, then a comma) or stands in the list below.
set -euo pipefail
source=$1 build=$2 bad=0
libraries='^(cublas|cudnn|curand|cusolver|[sd]ge|[sd]sy|[sd]po|cuda[A-Z]|__cuda[A-Z]|cu[A-Z]|dnnl_|cblas_|openblas_)'
wrappers='knet_ops_objects\.dir/src/host/(conv/conv_dnnl|conv/conv_plan|conv/conv_weights|product/gemm)\.c\.o$|knet_ops_cuda\.dir/src/cuda/[a-z_/]+\.(c|cu)\.o$'

objects=$(find "$build" -path '*CMakeFiles/knet_*.dir/*' -name '*.o' ! -path '*verify_interface*' ! -path '*/tests/*' | sort)
[ -n "$objects" ] || { echo "no objects of our libraries under $build"; exit 1; }
seen=0
while read -r object; do
  names=$(nm -u "$object" 2>/dev/null | awk '{print $2}' | grep -E "$libraries" || true)
  [ -n "$names" ] || continue
  seen=$((seen + 1))
  if ! grep -qE "$wrappers" <<<"$object"; then
    echo "${object#"$build"/} calls a library past the wrappers: $(tr '\n' ' ' <<<"$names")"; bad=1
  fi
done <<<"$objects"
[ "$seen" -gt 0 ] || { echo "no object refers to any library: the pattern is wrong"; exit 1; }

# Texts of errors; what registers and launches kernels (a launcher runs in a scope of its own).
quiet='cuda(GetErrorString|GetErrorName|GetLastError)|cublasLtGetStatus(String|Name)|cudnnGet(LastErrorString|ErrorString)'
plain=$(grep -nE '\b(cusolver[A-Z]|cublas[A-Z]|cublasLt|cudnn[A-Z]|cuda[A-Z]|curand[A-Z])[A-Za-z0-9_]*\(' "$source"/ops/src/cuda/*/*.{c,cu} |
  grep -vE "\b($quiet)\(|KN_PROF_CALL\(|:[0-9]+: *(/\*|\*|//)|^[^:]*:[0-9]+:(static |typedef )" || true)
if [ -n "$plain" ]; then echo "calls that are in no scope:"; echo "$plain"; bad=1; fi
exit $bad
