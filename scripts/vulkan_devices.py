"""Lists the GPUs that Vulkan finds with a driver file; the default is the file of CARLA's image.

Says whether that file, on this machine's driver, shows each card once, and in which order Vulkan counts them. Needs
Python, Vulkan's loader and the driver. Prints one JSON object. Exit: 0 each GPU once · 1 otherwise · 69 no loader.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import uuid
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_uint8, c_uint32, c_void_p
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "launcher" / "carla_launcher" / "nvidia_icd.json"
LOADER = "libvulkan.so.1"
API_1_1 = 1 << 22 | 1 << 12
NVIDIA = 0x10DE
APPLICATION, INSTANCE, PROPERTIES, IDS = 0, 1, 1000059001, 1000071004
"""``VkStructureType`` of the structures passed."""
NO_LOADER = 69


class _Application(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("version", c_uint32),
        ("engine", c_char_p),
        ("engine_version", c_uint32),
        ("api", c_uint32),
    )


class _Instance(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("application", POINTER(_Application)),
        ("layers", c_uint32),
        ("layer_names", c_void_p),
        ("extensions", c_uint32),
        ("extension_names", c_void_p),
    )


class _Ids(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("next", c_void_p),
        ("device", c_uint8 * 16),
        ("driver", c_uint8 * 16),
        ("luid", c_uint8 * 8),
        ("node_mask", c_uint32),
        ("luid_valid", c_uint32),
    )


class _Properties(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("next", c_void_p),
        ("api", c_uint32),
        ("driver", c_uint32),
        ("vendor", c_uint32),
        ("device", c_uint32),
        ("type", c_uint32),
        ("name", c_char * 256),
        ("rest", c_uint8 * 1024),
    )


def devices() -> list[dict[str, object]]:
    """Return name, maker and UUID of each GPU in Vulkan's order; empty if no driver loads.

    Raises:
        OSError: Vulkan's loader isn't installed.
    """
    vulkan = ctypes.CDLL(LOADER)
    application = _Application(APPLICATION, api=API_1_1)
    wanted, instance, count = _Instance(INSTANCE, application=ctypes.pointer(application)), c_void_p(), c_uint32()
    if vulkan.vkCreateInstance(byref(wanted), None, byref(instance)):
        return []
    vulkan.vkEnumeratePhysicalDevices(instance, byref(count), None)
    found = (c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, byref(count), found)
    return [_described(vulkan, c_void_p(device)) for device in found]


def _described(vulkan: ctypes.CDLL, device: c_void_p) -> dict[str, object]:
    ids = _Ids(IDS)
    told = _Properties(PROPERTIES, ctypes.cast(byref(ids), c_void_p))
    vulkan.vkGetPhysicalDeviceProperties2(device, byref(told))
    named = f"GPU-{uuid.UUID(bytes=bytes(ids.device))}"
    return {"name": told.name.decode(), "nvidia": told.vendor == NVIDIA, "uuid": named}


def _cards() -> int | None:
    """Return the driver's number of GPUs; None if it can't be asked."""
    try:
        asked = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return sum(line.startswith("GPU ") for line in asked.stdout.splitlines())


def main() -> int:
    """Print the result; return the exit code."""
    about = "List the GPUs that Vulkan finds by a driver file."
    parser = argparse.ArgumentParser(description=about, allow_abbrev=False)
    parser.add_argument("--file", type=Path, default=FILE, help="driver file (the one of CARLA's image)")
    parser.add_argument("--any", action="store_true", help="exit with 0 whatever was found")
    given = parser.parse_args()
    os.environ |= dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), str(given.file))
    try:
        found = devices()
    except OSError:
        print(f"vulkan: this machine has no {LOADER}; install it (on Ubuntu libvulkan1).", file=sys.stderr)
        return NO_LOADER
    cards = _cards()
    print(json.dumps({"file": str(given.file), "devices": found, "cards": cards}, indent=1))
    ours = [device for device in found if device["nvidia"]]
    once = bool(ours) and len({str(device["uuid"]) for device in ours}) == len(ours) and cards in (None, len(ours))
    return 0 if once or given.any else 1


if __name__ == "__main__":
    raise SystemExit(main())
