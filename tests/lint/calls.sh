#!/usr/bin/env bash
# calls.sh SOURCE_DIR BUILD_DIR: no call of a GPU or mathematics library without a scope of its name.
# 1. Which objects of our libraries refer to such a library at all: the wrappers' alone.
# 2. In these, a call is written through a call macro (the name, then a comma) or stands in the list below.
set -euo pipefail
source=$1 build=$2 bad=0
libraries='^(cublas|cudnn|curand|cusolver|[sd]ge|[sd]sy|[sd]po|cuda[A-Z]|__cuda[A-Z]|cu[A-Z]|dnnl_|cblas_|openblas_)'
wrappers='knet_ops_objects\.dir/src/host/(base/dnnl|conv/conv_dnnl|conv/conv_plan|conv/conv_weights|product/gemm(_bf16)?)\.c\.o$|knet_ops_cuda\.dir/src/cuda/[a-z_/]+\.(c|cu)\.o$'

objects=$(find "$build" -path '*CMakeFiles/knet_*.dir/*' -name '*.o' ! -path '*verify_interface*' ! -path '*/tests/*' | sort)
[ -n "$objects" ] || { echo "no objects of our libraries under $build"; exit 1; }
# Lines of "OBJECT NAME".
names=$(xargs nm -A -u 2>/dev/null <<<"$objects" | sed -n 's/^\(.*\.o\): *[Uwv] /\1 /p' | awk -v want="$libraries" '$2 ~ want')
[ -n "$names" ] || { echo "no object refers to any library: the pattern is wrong"; exit 1; }
while read -r object; do
  grep -qE "$wrappers" <<<"$object" && continue
  echo "${object#"$build"/} calls a library past the wrappers: $(awk -v o="$object" '$1 == o { printf "%s ", $2 }' <<<"$names")"; bad=1
done < <(cut -d ' ' -f 1 <<<"$names" | sort -u)

# Texts of errors; what registers and launches kernels (a launcher runs in a scope of its own).
quiet='cuda(GetErrorString|GetErrorName|GetLastError)|cublasLtGetStatus(String|Name)|cudnnGet(LastErrorString|ErrorString)'
plain=$(grep -nE '\b(cusolver[A-Z]|cublas[A-Z]|cublasLt|cudnn[A-Z]|cuda[A-Z]|curand[A-Z])[A-Za-z0-9_]*\(' "$source"/ops/src/cuda/*/*.{c,cu} |
  grep -vE "\b($quiet)\(|KN_PROF_CALL\(|:[0-9]+: *(/\*|\*|//)|^[^:]*:[0-9]+:(static |typedef )" || true)
if [ -n "$plain" ]; then echo "calls that are in no scope:"; echo "$plain"; bad=1; fi
exit $bad
