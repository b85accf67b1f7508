#!/usr/bin/env bash
# Makes the machine ready to build: Debian packages, then libtorch in .venv. Does only what is not
# done yet. TORCH=cuda brings the build for CUDA, into .venv-cuda. TORCH_PREFIX=/path/to/libtorch uses
# that libtorch instead. PYTHON=... chooses the interpreter; pip's own variables (PIP_INDEX_URL, ...) are
# honoured.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH

packages=(g++ cmake ninja-build ccache git python3-venv libgtest-dev libgmock-dev libcli11-dev
          nlohmann-json3-dev libbenchmark-dev clang-format clang-tidy
          libgloo-dev libturbojpeg0-dev libspng-dev libxxhash-dev zlib1g-dev dataset-fashion-mnist)
requirements=(numpy safetensors==0.8.0 transformers==5.22.0 pillow tokenizers==0.23.3 tensorboard==2.21.0
              perfetto==0.59.1
              scikit-build-core==1.1.2 pytest==9.2.0 mypy==2.4.1 accelerate==1.15.0 peft==0.21.2)
# Installed without what they ask for: timm, which tests compare with, asks for the torchvision of another torch, and
# no test needs it.
alone=(timm==1.0.31)

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

TORCH=${TORCH:-cpu}
case $TORCH in
  # The build for CPUs is 2.13.0+cpu, which pip prefers to 2.13.0 where an index has it.
  cpu) venv=.venv requirements=(torch==2.13.0 "${requirements[@]}") ;;
  # NCCL's header includes those of CUDA; crt and cccl are the ones that torch does not bring itself.
  cuda) venv=.venv-cuda requirements=('torch==2.13.0,!=2.13.0+cpu' 'cuda-toolkit[crt,cccl]' "${requirements[@]}") ;;
  *) fail "TORCH=$TORCH: expected cpu or cuda" ;;
esac
stamp=$venv/.stamp

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
  local folder=${TORCH_PREFIX%/}
  folder=${folder%/share/cmake}
  [ -f "$folder/share/cmake/Torch/TorchConfigVersion.cmake" ] ||
    fail "TORCH_PREFIX=$TORCH_PREFIX holds no libtorch: expected share/cmake/Torch/TorchConfigVersion.cmake in it"
  [ "$TORCH" = cpu ] || [ -f "$folder/lib/libtorch_cuda.so" ] ||
    fail "TORCH_PREFIX=$TORCH_PREFIX holds a libtorch without CUDA, and TORCH=cuda asks for one with it"
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
  if [ "$(cat "$stamp" 2>/dev/null)" = "${requirements[*]} ${alone[*]}" ] && [ -x "$venv/bin/python" ]; then
    return
  fi
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    local python
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    quietly "$python" -m venv --clear "$venv"
  fi
  say "installing ${requirements[*]} into $venv (a few minutes)"
  quietly "$venv/bin/python" -m pip install -q --disable-pip-version-check "${requirements[@]}"
  quietly "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps "${alone[@]}"
  say_which_torch
  echo "${requirements[*]} ${alone[*]}" >"$stamp"
}

say_which_torch() {
  local version cuda
  read -r version cuda < <("$venv/bin/python" -c 'import torch; print(torch.__version__, torch.version.cuda or "none")')
  if [ "$cuda" != none ]; then
    say "$venv has torch $version, built for CUDA $cuda; it runs on CPUs too"
    [ "$TORCH" = cuda ] ||
      say "the build for CPUs is smaller: remove .venv and name its index, PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
  elif [ "$TORCH" = cpu ]; then
    say "$venv has torch $version, built for CPUs"
  else
    fail "TORCH=cuda was asked for, and pip brought torch $version, which is built for CPUs. Remove $venv and name an
  index of builds for CUDA, such as PIP_INDEX_URL=https://download.pytorch.org/whl/cu130"
  fi
}

install_packages
if [ -n "${TORCH_PREFIX:-}" ]; then
  check_torch_prefix
else
  make_venv
fi
