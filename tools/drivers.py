# SPDX-License-Identifier: Apache-2.0
"""Vulkan drivers that are not the system's, for the stages of run_tests.py.

`tools/install.sh --swiftshader --sid` keeps them below .cache/drivers. A driver is chosen by its
manifest; drivers of Debian sid run in their root, with this tree copied to its own path in there.
"""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DRIVERS = ROOT / ".cache" / "drivers"
SID = DRIVERS / "sid"
MANIFESTS = "/usr/share/vulkan/icd.d"  # in Debian's roots
SID_PYTHON = DRIVERS / "sid-python"
HOST_LIBRARIES = "/opt/host-libraries"  # in SID and SID_PYTHON: what they lack

# Drivers of GPUs that are not there, on a library that answers for the kernel (mesa-drm-shim):
# name, the library, its choice of a device, the driver's manifest.
ABSENT_GPUS = {
    "rdna3": ("amdgpu", {"AMDGPU_GPU_ID": "navi31"}, "radeon"),
    "rdna4": ("amdgpu", {"AMDGPU_GPU_ID": "gfx1201"}, "radeon"),
    "adreno750": ("freedreno", {"FD_GPU_ID": "750"}, "freedreno"),
    "apple_m1": ("asahi", {}, "asahi"),
    "nvk": ("nouveau", {}, "nouveau"),
}


def vulkan_environment(manifest, cache=None) -> dict:
    """What makes the loader see one driver alone; pipelines are kept apart from other drivers'."""
    manifest = str(manifest)
    # The second name is that of loaders before 1.3.207.
    env = {"VK_DRIVER_FILES": manifest, "VK_ICD_FILENAMES": manifest}
    if cache is not None:
        env["HEKLA_CACHE_DIR"] = str(cache)
    return env


def swiftshader() -> dict:
    folder = DRIVERS / "swiftshader"
    return vulkan_environment(folder / "vk_swiftshader_icd.json", folder / "cache")


def mesa26() -> dict:
    return vulkan_environment(f"{MANIFESTS}/lvp_icd.json", "/tmp/hekla-lvp")


def absent_gpu(name: str) -> dict:
    shim, choice, manifest = ABSENT_GPUS[name]
    library = f"/usr/lib/x86_64-linux-gnu/lib{shim}_noop_drm_shim.so"
    return {**vulkan_environment(f"{MANIFESTS}/{manifest}_icd.json", f"/tmp/hekla-{name}"),
            "LD_PRELOAD": library, **choice}


def as_root() -> list:
    return [] if os.getuid() == 0 else ["sudo"]


def libraries_of(programs: list) -> dict:
    """{soname: file} of the shared libraries that programs load when they start."""
    result = {}
    for program in programs:
        text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        result.update(re.findall(r"^\s*(\S+) => (/\S+)", text, re.MULTILINE))
    return result


def copy_into_sid(programs: list, data: list) -> None:
    """Copies files and folders of this tree to their own paths in SID, and the libraries of the
    programs that SID lacks. Its own are as new or newer, and its drivers need them. What earlier
    runs compiled is forgotten."""
    staging = SID.parent / "sid-files"
    shutil.rmtree(staging, ignore_errors=True)
    for path in [*programs, *data]:
        target = staging / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            shutil.copy2(path, target)
    own = SID / "usr/lib/x86_64-linux-gnu"
    libraries = staging / HOST_LIBRARIES.lstrip("/")
    libraries.mkdir(parents=True)
    for soname, file in libraries_of(programs).items():
        if not (own / soname).exists() and not file.startswith(str(ROOT)):
            shutil.copy2(file, libraries / soname)
    subprocess.run([*as_root(), "rm", "-rf", *(SID / "tmp").glob("hekla-*")], check=True)
    subprocess.run([*as_root(), "cp", "-a", f"{staging}/.", SID], check=True)
    shutil.rmtree(staging)


def in_sid(command: list, env: dict) -> list:
    """The command that runs a command in SID, in this tree's folder and with /proc."""
    settings = [f"{name}={value}" for name, value in
                {**env, "LD_LIBRARY_PATH": HOST_LIBRARIES}.items()]
    script = 'mount -t proc proc "$1/proc"; root=$1; folder=$2; shift 2; exec chroot "$root" ' \
             '/usr/bin/env --chdir="$folder" "$@"'
    return [*as_root(), "unshare", "--mount", "sh", "-c", script, "sh", str(SID), str(ROOT),
            *settings, *map(str, command)]


def lend_libraries(programs: list) -> None:
    """Copies the libraries that programs load and SID_PYTHON lacks into it."""
    own = SID_PYTHON / "usr/lib/x86_64-linux-gnu"
    lacking = [file for soname, file in libraries_of(programs).items()
               if not (own / soname).exists() and not file.startswith(str(ROOT))]
    target = SID_PYTHON / HOST_LIBRARIES.lstrip("/")
    subprocess.run([*as_root(), "mkdir", "-p", target], check=True)
    subprocess.run([*as_root(), "cp", "-L", *lacking, target], check=True)


def in_sid_python(command: list, env: dict) -> list:
    """The command that runs a command in SID_PYTHON, in this tree's folder, which is there as it is,
    read-only, with /proc, /dev and a host name that its /etc/hosts knows."""
    settings = [f"{name}={value}" for name, value in
                {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONPYCACHEPREFIX": "/tmp/python-bytecode",
                 "LD_LIBRARY_PATH": HOST_LIBRARIES, **env}.items()]
    script = ('set -e; root=$1; folder=$2; shift 2; hostname localhost; mount -t proc proc "$root/proc"; '
              'mount --rbind /dev "$root/dev"; mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; '
              'mount -o remount,bind,ro "$root$folder"; '
              'exec chroot "$root" /usr/bin/env -i --chdir="$folder" "$@"')
    return [*as_root(), "unshare", "--mount", "--uts", "sh", "-c", script, "sh", str(SID_PYTHON), str(ROOT),
            *settings, *map(str, command)]
