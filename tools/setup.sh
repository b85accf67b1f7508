#!/usr/bin/env bash
# Makes the machine ready to build: Debian packages, then libtorch in .venv. Does only what is not
# done yet. TORCH_PREFIX=/path/to/libtorch uses that libtorch instead of .venv. PYTHON=... chooses the
# interpreter; pip's own variables (PIP_INDEX_URL, ...) are honoured.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH

packages=(g++ cmake ninja-build ccache git python3-venv libgtest-dev libgmock-dev libcli11-dev
          nlohmann-json3-dev libbenchmark-dev clang-format clang-tidy
          libgloo-dev libturbojpeg0-dev libspng-dev libxxhash-dev zlib1g-dev dataset-fashion-mnist)
requirements=(torch==2.13.0 numpy safetensors==0.8.0 transformers==5.22.0 pillow tokenizers==0.23.3 tensorboard==2.21.0
              perfetto==0.59.1)
stamp=.venv/.stamp

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# Runs a command, and shows what it printed only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    rm -f "$log"
    fail "'$*' failed with status $status; what it printed is above"
  fi
  rm -f "$log"
}

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "${packages[@]}" \
              2>/dev/null | sed -n 's/^\([^: ]*\)[^ ]* installed$/\1/p') || true
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || echo "$package"
  done
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    local tool
    for tool in c++ cmake ninja; do
      command -v "$tool" >/dev/null ||
        fail "$tool was not found and this is no Debian: install what these packages hold: ${packages[*]}"
    done
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    fail "Debian packages are missing. Install them, then call this again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  quietly apt-get update
  quietly apt-get install -y --no-install-recommends "${missing[@]}"
}

check_torch_prefix() {
  local config
  for config in "$TORCH_PREFIX"{,/share/cmake}/Torch/TorchConfig.cmake; do
    [ ! -f "$config" ] || return 0
  done
  fail "TORCH_PREFIX=$TORCH_PREFIX holds no libtorch: expected share/cmake/Torch/TorchConfig.cmake in it"
}

find_python() {
  local python
  for python in ${PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10}; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
        >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  fail "no Python 3.10 or later with the venv module was found; name one with PYTHON=/path/to/python3"
}

make_venv() {
  if [ "$(cat "$stamp" 2>/dev/null)" = "${requirements[*]}" ] && [ -x .venv/bin/python ]; then
    return
  fi
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    local python
    python=$(find_python)
    say "making .venv with $("$python" --version)"
    quietly "$python" -m venv --clear .venv
  fi
  say "installing ${requirements[*]} into .venv (a few minutes)"
  quietly .venv/bin/python -m pip install -q --disable-pip-version-check "${requirements[@]}"
  local cuda
  cuda=$(.venv/bin/python -c 'import torch; print(torch.version.cuda or "")')
  if [ -n "$cuda" ] && ! command -v nvcc >/dev/null; then
    fail "pip brought the CUDA $cuda build of torch, which CMake cannot use without the CUDA toolkit (nvcc).
  Install the toolkit, or remove .venv and call this again with PIP_EXTRA_INDEX_URL naming an index of CPU builds"
  fi
  echo "${requirements[*]}" >"$stamp"
}

install_packages
if [ -n "${TORCH_PREFIX:-}" ]; then
  check_torch_prefix
else
  make_venv
fi
