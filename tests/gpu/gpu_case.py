"""Finds the GPUs for the tests, and the reasons why they may be unavailable."""

import ctypes
import os
import pathlib

SKIPPED = 77  # exit code that CTest counts as skipped


def gpus():
    """Returns the number of GPUs that this process may use."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    good = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if good else 0


def is_standin():
    """Returns whether the GPU is the stand-in of tests/support/standin_gpu."""
    # The stand-in's driver is beside the programs.
    return os.path.exists(os.path.join(os.path.dirname(os.environ["DSLAUNCH_TRAIN"]), "..", "driver"))


def gpu_list():
    """Returns the folder in which NVIDIA's driver lists the machine's GPUs."""
    return pathlib.Path("/proc/driver/nvidia/gpus")


def where_gpus_are_listed(count, command):
    """Returns a command that runs `command` with a driver that lists this many GPUs.
    The command uses a mount namespace, which needs root or a user namespace."""
    folders = " ".join(str(gpu_list() / ("0000:%02x:00.0" % number)) for number in range(1, count + 1))
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    return [*unshare, "sh", "-c", "mount -t tmpfs none /proc/driver && mkdir -p " + folders + ' && exec "$0" "$@"', *command]


def why_not():
    """Returns the reason why these tests cannot run here, or None."""
    plugin = os.path.join(os.path.dirname(os.environ["DSLAUNCH_TRAIN"]), "../lib/dslaunch/libdslaunch_cuda.so")
    if not os.path.exists(plugin):
        return "this dslaunch-train was built without CUDA"
    return None if gpus() else "this machine has no NVIDIA GPU that can be used"
