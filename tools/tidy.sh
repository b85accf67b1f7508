#!/usr/bin/env bash
# tools/tidy.sh BUILD_DIR JOBS: clang-tidy over every source that BUILD_DIR compiles.
set -euo pipefail
cd "$(dirname "$0")/.."

# clang does not search gcc's own folder, where <omp.h> is; its own headers must still come first.
gcc_headers=$(c++ -print-file-name=include)
run-clang-tidy -quiet -p "$1" -j "$2" -extra-arg=-idirafter"$gcc_headers" \
  "^$PWD/(pareprop|cli|bench|tests|examples)/.*\.cpp$"
