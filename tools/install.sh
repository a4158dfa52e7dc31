#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building, running and testing Hekla need, and nothing that is
# there already. With --python VERSION also makes .venv/jax-VERSION with that jaxlib from PyPI; with
# --swiftshader and --sid fetches Vulkan drivers for tests, which the system does not see.
#
#   tools/install.sh                     packages to build, run and test
#   tools/install.sh --clang             also clang, for the sanitizers and the fuzzers
#   tools/install.sh --python 0.10.2     a virtual environment with that jaxlib and pytest
#   tools/install.sh --torch             a virtual environment with torch, torch_xla and pytest, 2 GB,
#                                        without the GPU libraries that PyPI's torch names
#   tools/install.sh --wheel             a virtual environment with the tools of tools/wheel.sh
#   tools/install.sh --ucx               UCX, another engine for messages between machines
#   tools/install.sh --roots             small roots of Debian 12 and sid with Python, 300 MB each, in
#                                        .cache/roots; needs root
#   tools/install.sh --swiftshader       SwiftShader of Debian's chromium-common, in .cache/drivers
#   tools/install.sh --sid               a small root of Debian sid with the newest Mesa, 600 MB, in
#                                        .cache/drivers; needs root
#   tools/install.sh --sid-python 0.11.2 another one with Python too, and with that jaxlib, which
#                                        Debian 12's Python is too old for; needs root
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ lld cmake ninja-build ccache git clang-format
  libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev
  libvulkan-dev mesa-vulkan-drivers glslang-dev glslang-tools spirv-tools vulkan-validationlayers
  llvm-19-dev libopenblas-serial-dev libzstd-dev zlib1g-dev libtbb-dev libhdf5-dev libxxhash-dev
  libgloo-dev iproute2 openmpi-bin
  python3 python3-venv
)
python_versions=()
has_torch=
has_wheel=
roots=()
drivers=()
sid_python=
while [ $# -gt 0 ]; do
  case "$1" in
    --clang) packages+=(clang libclang-rt-14-dev) ;;
    --python) python_versions+=("$2"); shift ;;
    --torch) has_torch=1; packages+=(libpython3.11) ;;
    --wheel) has_wheel=1 ;;
    --ucx) packages+=(libucx-dev) ;;
    --roots) packages+=(debootstrap); roots=(bookworm sid) ;;
    --swiftshader) drivers+=(swiftshader) ;;
    --sid) packages+=(debootstrap); drivers+=(sid) ;;
    --sid-python) packages+=(debootstrap); drivers+=(sid-python); sid_python=$2; shift ;;
    -h|--help) sed -n '3,20p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
    *) echo "install.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
as_root=()
need_root() {  # $1: what for
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "install.sh: run as root, or $1" >&2; exit 1; }
    as_root=(sudo)
  fi
}
if [ ${#missing[@]} -gt 0 ]; then
  need_root "install by hand: ${missing[*]}"
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
fi

is_complete() {  # $1: folder; $2: list of packages. Made anew when the list has changed since.
  [ -f "$1/complete" ] && [ "$2" = "$(cat "$1/requirements.txt")" ]
}
make_venv() {  # $1: folder; $2: list of packages; then arguments of pip
  local venv=$1 wanted=$2
  shift 2
  echo "making $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  echo "$wanted" > "$venv/requirements.txt"
  # Python compiles what is imported, a fraction of what is installed.
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check "$@" \
    -r "$venv/requirements.txt"
}

for version in ${python_versions[@]+"${python_versions[@]}"}; do
  venv=".venv/jax-$version"
  wanted=$(sed "s/^jax==.*/jax==$version/; s/^jaxlib==.*/jaxlib==$version/" tests/requirements.txt)
  if ! is_complete "$venv" "$wanted"; then
    make_venv "$venv" "$wanted"
    touch "$venv/complete"
  fi
done

if [ -n "$has_torch" ]; then
  wanted=$(cat tests/requirements-torch.txt)
  venv=.venv/torch-$(sed -n 's/^torch==//p' tests/requirements-torch.txt)
  # The list is whole: what torch depends on besides is for GPUs of one vendor.
  if ! is_complete "$venv" "$wanted"; then
    make_venv "$venv" "$wanted" --no-deps
    python3 tools/absent_libraries.py "$venv"/lib/python3.*/site-packages/torch/lib
    touch "$venv/complete"
  fi
fi

if [ -n "$has_wheel" ]; then
  wanted=$(cat tools/requirements-wheel.txt)
  if ! is_complete .venv/wheel "$wanted"; then
    make_venv .venv/wheel "$wanted" --no-deps
    touch .venv/wheel/complete
  fi
fi

# Each is made in a folder beside its own and moved there when it is whole.
fetch_swiftshader() {  # $1: an empty folder
  # Without a list of packages, or with one that names a package that has gone since.
  (cd "$1" && apt-get download -qq chromium-common 2>/dev/null) || {
    need_root "run 'apt-get update' by hand"
    "${as_root[@]}" apt-get update -qq
    (cd "$1" && apt-get download -qq chromium-common)
  }
  dpkg -x "$1"/chromium-common_*.deb "$1/package"
  mv "$1"/package/usr/lib/chromium/{libvk_swiftshader.so,vk_swiftshader_icd.json} "$1"
  rm -r "$1"/package "$1"/chromium-common_*.deb
}

fetch_sid() {
  need_root "make a root of Debian sid in .cache/drivers/sid by hand"
  "${as_root[@]}" debootstrap --variant=minbase \
    --include=mesa-vulkan-drivers,mesa-drm-shim,libvulkan1,spirv-tools sid "$1" >/dev/null
}

fetch_sid-python() {
  need_root "make a root of Debian sid in .cache/drivers/sid-python by hand"
  "${as_root[@]}" debootstrap --variant=minbase \
    --include=mesa-vulkan-drivers,libvulkan1,python3,iproute2,g++,glslang-tools sid "$1" >/dev/null
}

for driver in ${drivers[@]+"${drivers[@]}"}; do
  folder=.cache/drivers/$driver
  [ -d "$folder" ] && { [ "$driver" != sid ] || [ -x "$folder/usr/bin/spirv-val" ]; } && continue
  echo "making $folder"
  "${as_root[@]}" rm -rf "$folder.partial" "$folder"
  mkdir -p "$folder.partial"
  "fetch_$driver" "$folder.partial"
  "${as_root[@]}" mv "$folder.partial" "$folder"
done

if [ -n "$sid_python" ]; then
  folder=.cache/drivers/sid-python
  wanted=$(sed "s/^jax==.*/jax==$sid_python/; s/^jaxlib==.*/jaxlib==$sid_python/" tests/requirements.txt)
  if ! is_complete "$folder/opt/jax" "$wanted"; then
    echo "installing JAX $sid_python in $folder"
    need_root "install JAX $sid_python in $folder by hand"
    [ -x .cache/pip/bin/pip ] || python3 -m venv .cache/pip
    python=$(cd "$folder/usr/bin" && ls python3.* | grep -x 'python3\.[0-9]*')
    # Its Python finds them where Debian's looks for what is not Debian's.
    packages="$folder/usr/local/lib/$python/dist-packages"
    "${as_root[@]}" rm -rf "$packages"
    "${as_root[@]}" mkdir -p "$packages" "$folder/opt/jax"
    echo "$wanted" | "${as_root[@]}" tee "$folder/opt/jax/requirements.txt" >/dev/null
    "${as_root[@]}" .cache/pip/bin/pip install --quiet --no-compile --disable-pip-version-check \
      --root-user-action ignore --ignore-requires-python --only-binary=:all: --python-version "${python#python}" \
      --target "$packages" -r "$folder/opt/jax/requirements.txt"
    "${as_root[@]}" touch "$folder/opt/jax/complete"
  fi
fi

for suite in ${roots[@]+"${roots[@]}"}; do
  folder=.cache/roots/$suite
  [ -d "$folder" ] && continue
  echo "making $folder"
  need_root "make a root of Debian $suite in $folder by hand"
  "${as_root[@]}" rm -rf "$folder.partial"
  include=python3-venv
  [ "$suite" != bookworm ] || include+=,libpython3.11  # torch_xla is linked to it
  mkdir -p .cache/roots
  "${as_root[@]}" debootstrap --variant=minbase --include="$include" "$suite" "$folder.partial" >/dev/null
  "${as_root[@]}" mv "$folder.partial" "$folder"
done
