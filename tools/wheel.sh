#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel of the Python package in dist/, for Debian 12 and whatever has as new a libc or a
# newer one. Builds in build-wheel/ what tests build in build/, from ccache where that is there.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/install.sh --wheel
tools=$PWD/.venv/wheel/bin
work=$PWD/build-wheel
rm -rf "$work/raw" "$work/libraries" "$work/repaired"
mkdir -p "$work/libraries" dist

# The compiler by the name that CMake finds it by, not Python's: ccache asks for both alike.
CC=cc CXX=c++ "$tools/pip" wheel --quiet --no-build-isolation --no-deps --disable-pip-version-check -w "$work/raw" .

# HDF5's reader of S3, which nobody here calls, would bring libcurl, OpenSSL, GnuTLS, Kerberos and
# LDAP along, 25 libraries of 15 MB that get no security updates in a wheel. The wheel's copy of HDF5
# has stand-ins for them.
library_path() { /sbin/ldconfig -p | sed -n "s|.*${1//./\\.} .*=> ||p" | head -n1; }
for name in libhdf5_serial.so.103 libsz.so.2 libaec.so.0 libz.so.1; do
  cp "$(library_path "$name")" "$work/libraries/$name"
done
"$tools/patchelf" --replace-needed libcurl.so.4 libhekla_no_curl.so.4 \
  --replace-needed libcrypto.so.3 libhekla_no_crypto.so.3 "$work/libraries/libhdf5_serial.so.103"
python3 tools/absent_libraries.py "$work/libraries" >/dev/null
strip "$work"/libraries/*

# The Vulkan loader is opened at run time: no library names it, and none comes along.
PATH="$tools:$PATH" LD_LIBRARY_PATH="$work/libraries" "$tools/auditwheel" repair \
  --plat manylinux_2_36_x86_64 --zip-compression-level 9 -w "$work/repaired" "$work"/raw/hekla-*.whl
rm -f dist/hekla-*.whl
mv "$work"/repaired/hekla-*.whl dist/
ls -l dist/hekla-*.whl
