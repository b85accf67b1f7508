#!/usr/bin/env bash
# make cuda-check: builds with libtorch for CUDA, runs the tests of the CPU there, uses the installed package, and sees
# that --device cuda says that there is no device. It needs no GPU, and shows nothing of one. Left out are the tests that
# attack the program or count its seconds: libtorch for CUDA takes seconds to load. All that is printed is also in
# build-cuda/check.log.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
build=build-cuda

fail() { echo "cuda-check: $*" >&2; exit 1; }

check() {
  make --no-print-directory build TORCH=cuda JOBS="$jobs"
  cmake $build  # says which libtorch it is
  grep -q PAREPROP_HAS_NCCL $build/compile_commands.json || fail "NCCL was left out"
  if ninja -C $build -t deps | grep -E '/cuda[^/]*/(targets/[^/]*/)?include/'; then
    fail "headers of this machine's CUDA toolkit were read (above), which other machines lack"
  fi
  ctest --test-dir $build --output-on-failure -j$((jobs + 1)) -LE 'attack|timed'
  local said
  if said=$($build/pareprop verify --device cuda --model vit_digits 2>&1); then
    fail "this machine has a CUDA device: run '$build/pareprop doctor' there; what it lacks is not checked"
  fi
  echo "$said"
  [ "$(wc -l <<<"$said")" -eq 1 ] || fail "--device cuda should say in one line that there is no device"
  grep -q 'no cuda device was found' <<<"$said" || fail "--device cuda should say that there is no device"
  echo "cuda-check: all passed; nothing ran on a GPU"
}

mkdir -p $build
check 2>&1 | tee $build/check.log
