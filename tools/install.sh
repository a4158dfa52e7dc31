#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building, running and testing Hekla need, and nothing that is
# there already. With --python VERSION also makes .venv/jax-VERSION with that jaxlib from PyPI.
#
#   tools/install.sh                     packages to build, run and test
#   tools/install.sh --clang             also clang, for the sanitizers and the fuzzers
#   tools/install.sh --python 0.10.2     a virtual environment with that jaxlib and pytest
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ lld cmake ninja-build ccache git clang-format
  libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev
  libvulkan-dev mesa-vulkan-drivers glslang-dev glslang-tools spirv-tools vulkan-validationlayers
  llvm-19-dev libzstd-dev zlib1g-dev libtbb-dev libhdf5-dev libxxhash-dev
  python3 python3-venv
)
python_versions=()
while [ $# -gt 0 ]; do
  case "$1" in
    --clang) packages+=(clang libclang-rt-14-dev) ;;
    --python) python_versions+=("$2"); shift ;;
    -h|--help) sed -n '3,9p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
    *) echo "install.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      { echo "install.sh: run as root, or install by hand: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
fi

for version in ${python_versions[@]+"${python_versions[@]}"}; do
  venv=".venv/jax-$version"
  wanted=$(sed "s/^jax==.*/jax==$version/; s/^jaxlib==.*/jaxlib==$version/" tests/requirements.txt)
  # Made anew when the list has changed since.
  if [ ! -f "$venv/complete" ] || [ "$wanted" != "$(cat "$venv/requirements.txt")" ]; then
    echo "making $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    echo "$wanted" > "$venv/requirements.txt"
    # Python compiles what is imported, a fraction of what is installed.
    "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check \
      -r "$venv/requirements.txt"
    touch "$venv/complete"
  fi
done
