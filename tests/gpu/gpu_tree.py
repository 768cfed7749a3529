"""Finds the programs that tests/gpu/run and tests/bench/gpu start.
They are those of this checkout's build, or those of a tree made by tests/gpu/pack, which uses the PyTorch of its
machine."""

import gzip
import importlib.util
import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKED = ROOT / "packed"  # exists in a packed tree
DATA = ROOT / "data"  # exists in a packed tree
DEEPSPEED = ROOT / "deepspeed"  # exists in a packed tree if requested; a folder of Python packages
BUILD = pathlib.Path(ROOT / "build" if PACKED.exists() else os.environ.get("DSLAUNCH_BUILD_DIR", ROOT / "build")).absolute()
TRAIN = BUILD / "bin" / "dslaunch-train"
DRIVER = BUILD / "driver"  # driver of the stand-in, if the tree has it


def unpack_programs():
    """Makes the programs of a packed tree from their compressed files, and removes these files."""
    for packed in BUILD.glob("*/*.gz"):
        program = packed.with_suffix("")
        with gzip.open(packed) as source, open(program, "wb") as target:
            shutil.copyfileobj(source, target)
        program.chmod(0o755)
        packed.unlink()


if PACKED.exists():
    unpack_programs()


def torch_folder():
    """Returns the folder of this Python's PyTorch without loading it, or None if there is none."""
    found = importlib.util.find_spec("torch")
    return pathlib.Path(found.submodule_search_locations[0]) if found else None


def find_libraries():
    """Makes LibTorch and NVIDIA's libraries available to the programs of a packed tree. Exits if that is not
    possible.
    """
    if not TRAIN.exists():
        sys.exit("%s does not exist; ./quickstart builds it, or set DSLAUNCH_BUILD_DIR" % TRAIN)
    if not PACKED.exists():
        return
    torch = torch_folder()
    if torch is None:
        sys.exit("this Python (%s) has no PyTorch, whose LibTorch the trainer needs; run this by one that has torch 2.11"
                 % sys.executable)
    for name, target in (("libtorch", torch), ("nvidia", torch.parent / "nvidia")):
        link = BUILD / "lib" / "dslaunch" / name
        if link.is_symlink():
            link.unlink()
        link.symlink_to(target)


def path_list(*folders):
    """Joins paths without duplicates, so that a second call does not change the result."""
    return ":".join(dict.fromkeys(folder for folder in map(str, folders) if folder))


def environment():
    """Returns the environment of the tests and of the programs that they start."""
    def given(name):
        return os.environ.get(name, "").split(":")

    libraries = [*given("LD_LIBRARY_PATH"), DRIVER if DRIVER.exists() else ""]
    if PACKED.exists():
        libraries.append(BUILD / "lib" / "dslaunch" / "libtorch" / "lib")
    values = {"DSLAUNCH_TRAIN": str(TRAIN), "DSLAUNCH_SDK_PROGRAM": str(BUILD / "tests" / "dslaunch-sdk-program"),
              "LD_LIBRARY_PATH": path_list(*libraries), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if DEEPSPEED.exists():
        values["PYTHONPATH"] = path_list(DEEPSPEED, *given("PYTHONPATH"))
        values["PATH"] = path_list(DEEPSPEED / "bin", *given("PATH"))  # folder of ninja, which compiles operations
    return {**values, **({"TEST_DATA": str(DATA)} if DATA.exists() else {})}
