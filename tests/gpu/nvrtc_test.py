"""NVRTC compiles the trainer's kernels for all GPUs that LibTorch supports, and none of them spills registers. Needs no
GPU. Skipped if the tests' Python has no NVRTC."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "trainer" / "cuda"
ENVIRONMENT = pathlib.Path(os.environ["DSLAUNCH_ORACLE_PYTHON"]).parents[1]
LIBRARY = next(ENVIRONMENT.glob("lib/python3.*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]"), None)
CUOBJDUMP = next(ENVIRONMENT.glob("lib/python3.*/site-packages/triton/backends/nvidia/bin/cuobjdump"), None)
SKIPPED = 77  # exit code that CTest counts as skipped
ARCHITECTURES = ("sm_75", "sm_90", "sm_120")  # the oldest, one in between, and the newest
# Type of element and number of columns: GPT-2's smallest and largest size, the maximum of a row, and the minimum.
NORMS = (("Bfloat", 768), ("Half", 1600), ("Bfloat", 2048), ("float", 1024), ("Half", 8))


def compile_kernels(name, architecture, *defined):
    """Returns (exit code, log, cubin)."""
    nvrtc = ctypes.CDLL(str(LIBRARY))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = (SOURCES / "common.cu").read_bytes() + (SOURCES / name).read_bytes()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None) == 0
    options = ["--gpu-architecture=" + architecture, "--std=c++17", *("--define-macro=" + word for word in defined)]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options)))

    def read(what):
        assert getattr(nvrtc, "nvrtcGet%sSize" % what)(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(nvrtc, "nvrtcGet" + what)(program, text) == 0
        return text.raw

    found = code, read("ProgramLog").rstrip(b"\0").decode(), read("CUBIN") if code == 0 else b""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return found


class Nvrtc(unittest.TestCase):
    def check(self, name, architecture, *defined):
        with self.subTest(name=name, architecture=architecture, defined=defined):
            code, log, cubin = compile_kernels(name, architecture, *defined)
            self.assertEqual((code, log), (0, ""))
            return cubin

    def test_compiles_for_old_and_new_gpus(self):
        for architecture in ARCHITECTURES:
            self.check("row_kernels.cu", architecture)
            self.check("layer_norm_kernels.cu", architecture, "DSLAUNCH_ELEMENT=Bfloat", "DSLAUNCH_COLUMNS=768")

    def test_kernels_do_not_spill_registers(self):
        cubins = [self.check("row_kernels.cu", "sm_90")]
        cubins += [self.check("layer_norm_kernels.cu", "sm_90", "DSLAUNCH_ELEMENT=" + element, "DSLAUNCH_COLUMNS=%d" % columns)
                   for element, columns in NORMS]
        for cubin in cubins:
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(cubin)
                file.flush()
                said = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, timeout=60, check=True)
            used = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)", said.stdout)
            self.assertTrue(used, said.stdout)
            self.assertEqual({stack for *_, stack in used}, {"0"}, said.stdout)
            # 4 blocks of 256 threads of these kernels must fit on the 65536 registers of a multiprocessor.
            for name, registers, _ in used:
                if name.startswith(("sum_rows", "gelu_gradient", "join_thirds")):
                    self.assertLessEqual(int(registers), 64, name)

    def test_compiler_reports_errors(self):
        code, log, _ = compile_kernels("layer_norm_kernels.cu", "sm_90", "DSLAUNCH_ELEMENT=Nothing", "DSLAUNCH_COLUMNS=768")
        self.assertNotEqual(code, 0)
        self.assertIn("Nothing", log)


if __name__ == "__main__":
    if LIBRARY is None or CUOBJDUMP is None:
        print("SKIPPED: the Python of DSLAUNCH_ORACLE_PYTHON has no NVRTC with cuobjdump; packaging/fetch-oracle gets both")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
