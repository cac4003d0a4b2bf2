#!/usr/bin/env bash
# torchvision.sh KNET PROGRAM MODEL: weights with torchvision's names load, and give PyTorch's logits.
set -euo pipefail
knet=$1 program=$2 model=$3
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
command -v /usr/bin/python3 >/dev/null || exit 77
/usr/bin/python3 "$here/torchvision.py" "$model" "$work/w.safetensors" || exit $?
"$program" "$model" "$work/w.safetensors"
"$knet" predict "$model" --synthetic --weights "$work/w.safetensors" --batch 1 --count 1 --frozen
case $model in densenet*)
  /usr/bin/python3 "$here/torchvision.py" "$model" "$work/w.safetensors" --old
  "$program" "$model" "$work/w.safetensors" ;;
esac
