"""Which GPU tests run on, and why they may not."""

import ctypes
import os

SKIPPED = 77  # exit code that CTest counts as skipped


def gpus():
    """How many this process may use."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    good = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if good else 0


def is_standin():
    """Whether the GPU is that of tests/support/standin_gpu."""
    # Its driver lies beside the programs.
    return os.path.exists(os.path.join(os.path.dirname(os.environ["DSLAUNCH_TRAIN"]), "..", "driver"))


def why_not():
    """Why these tests cannot run here, or None."""
    plugin = os.path.join(os.path.dirname(os.environ["DSLAUNCH_TRAIN"]), "../lib/dslaunch/libdslaunch_cuda.so")
    if not os.path.exists(plugin):
        return "this dslaunch-train was built without CUDA"
    return None if gpus() else "this machine has no NVIDIA GPU that can be used"
