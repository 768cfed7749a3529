"""Tests that NVRTC compiles the trainer's kernels for all GPUs that LibTorch supports, and that none of them spills
registers.
Needs no GPU. Skipped if the tests' Python has no NVRTC."""

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
ARCHITECTURES = ("sm_75", "sm_90", "sm_120")  # oldest, an intermediate, and newest architecture
# Each row is a type of element, a number of columns, and a number of warps: GPT-2's smallest and largest size, the
# maximum of a row, and the minimum.
LAYER_NORMS = (("Bfloat", 768, 1), ("Half", 1600, 1), ("Bfloat", 2048, 1), ("float", 1024, 1), ("Half", 8, 1))
# These are a head of Qwen3, the width of Llama 8B, and the maximum of a row.
RMS_NORMS = (("Bfloat", 128, 1), ("Bfloat", 4096, 4), ("float", 4096, 8))
NORMS = ([("layer_norm_kernels.cu", *norm) for norm in LAYER_NORMS] + [("rms_norm_kernels.cu", *norm) for norm in RMS_NORMS])


def sources(name):
    """Returns `name`, after the names of the files that are compiled together with it."""
    return ("instructions.cu", "common.cu", *(("norm_rows.cu",) if "norm" in name else ()), name)


def definitions(element, columns, warps):
    return ["DSLAUNCH_ELEMENT=" + element, "DSLAUNCH_COLUMNS=%d" % columns, "DSLAUNCH_WARPS=%d" % warps]


def compile_kernels(name, architecture, *defined):
    """Compiles kernels with NVRTC. Returns (exit code, log, cubin)."""
    nvrtc = ctypes.CDLL(str(LIBRARY))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = b"".join((SOURCES / file).read_bytes() for file in sources(name))
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
            for name in ("row_kernels.cu", "decoder_kernels.cu"):
                self.check(name, architecture)
            for name in ("layer_norm_kernels.cu", "rms_norm_kernels.cu"):
                self.check(name, architecture, *definitions("Bfloat", 768, 1))

    def test_kernels_do_not_spill_registers(self):
        cubins = [self.check(name, "sm_90") for name in ("row_kernels.cu", "decoder_kernels.cu")]
        cubins += [self.check(name, "sm_90", *definitions(*norm)) for name, *norm in NORMS]
        for cubin in cubins:
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(cubin)
                file.flush()
                said = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, timeout=60, check=True)
            used = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)", said.stdout)
            self.assertTrue(used, said.stdout)
            self.assertEqual({stack for *_, stack in used}, {"0"}, said.stdout)
            # 4 blocks of 256 threads of these kernels must fit in the 65536 registers of a multiprocessor.
            for name, registers, _ in used:
                if name.startswith(("sum_rows", "gelu_gradient", "join_thirds")):
                    self.assertLessEqual(int(registers), 64, name)

    def test_compiler_reports_errors(self):
        code, log, _ = compile_kernels("layer_norm_kernels.cu", "sm_90", *definitions("Nothing", 768, 1))
        self.assertNotEqual(code, 0)
        self.assertIn("Nothing", log)


if __name__ == "__main__":
    if LIBRARY is None or CUOBJDUMP is None:
        print("SKIPPED: the Python of DSLAUNCH_ORACLE_PYTHON has no NVRTC with cuobjdump; packaging/fetch-oracle gets both")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
