"""Tests docs/works-with.md: every line with dslaunch starts its tool on two nodes, with its place and its arguments.

The tools are stand-ins: each file and each module named by a line records its arguments and environment. EXPECTED
lists what a tool needs beyond torchrun's variables. `--hostfile hosts` stands for two nodes of this machine."""

import json
import os
import re
import shlex
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, main  # noqa: E402
from pages import ROOT  # noqa: E402

PAGE = ROOT / "docs" / "works-with.md"
HOSTS = ["--hostfile", "hosts"]

# torch.distributed's env:// reads these variables, as do transformers, DeepSpeed, Megatron, nanotron, torchtitan and
# vLLM.
PLACE = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
# Maps each tool to the program's file, its arguments, and further variables with a value, or "" for any value.
EXPECTED = {
    "torchrun": ("train.py", [], {}),
    "deepspeed": ("train.py", ["--deepspeed_config", "ds.json"], {"LOCAL_SIZE": "2"}),
    "accelerate": ("train.py", [], {"ACCELERATE_MIXED_PRECISION": "fsdp.yaml's"}),
    "HF Trainer": ("run_clm.py", ["--deepspeed", "ds.json", "--output_dir", "out"], {}),
    "TRL": ("trl/scripts/sft.py", ["--config", "sft.yaml"], {"ACCELERATE_MIXED_PRECISION": "zero3.yaml's"}),
    # Lightning uses its TorchElasticEnvironment if TORCHELASTIC_RUN_ID is set.
    "Lightning": ("train.py", [], {"TORCHELASTIC_RUN_ID": "", "GROUP_RANK": ""}),
    "LLaMA-Factory": ("llamafactory/launcher.py", ["sft.yaml"], {}),
    "axolotl": ("axolotl/cli/train.py", ["sft.yaml"], {}),
    "torchtitan": ("torchtitan/train.py", ["--module", "llama3", "--config", "llama3_8b"], {}),
    "nanotron": ("run_train.py", ["--config-file", "tiny.yaml"], {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    "Megatron": ("pretrain_gpt.py", ["--tensor-model-parallel-size", "8"], {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
    "MPI": ("a.out", [], {}),
    "vLLM": ("generate.py", [], {}),
}
STAND_IN = f"""#!{sys.executable} -S
import json, os, sys
assert __name__ == "__main__"
json.dump({{"env": dict(os.environ), "argv": sys.argv, "file": __file__}}, open("report." + os.environ["RANK"], "w"))
"""
# These are the parts of accelerate that --accelerate_config uses. tests/multiproc/accelerate_test.py uses the real
# accelerate.
ACCELERATE = """import argparse, os, types
def launch_command_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config_file")
    return types.SimpleNamespace(parse_args=lambda words: parser.parse_known_args(words)[0])
def _validate_launch_command(args):
    args.__dict__.update(tpu=False, cpu=False, use_deepspeed=False, use_fsdp=True)
    return args, types.SimpleNamespace(compute_environment="LOCAL_MACHINE"), False
def prepare_multi_gpu_env(args):
    return {**os.environ, "ACCELERATE_MIXED_PRECISION": os.path.basename(args.config_file) + "'s", "MASTER_PORT": "1"}
prepare_simple_launcher_cmd_env = prepare_deepspeed_cmd_env = is_deepspeed_available = prepare_multi_gpu_env
"""


def rows():
    """Yields (tool, line with dslaunch) for each row."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and not set(cells[0]) <= set("-") and cells[0] != "tool":
            yield cells[0], cells[2]


class WorksWith(LauncherCase):
    def setUp(self):
        super().setUp()
        for path in {path for path, _, _ in EXPECTED.values()}:
            self.write(path, STAND_IN, 0o755)
        self.write("accelerate/__init__.py", "__version__ = '1.0'\n")
        self.write("accelerate/commands/launch.py", ACCELERATE)
        for name in ("fsdp.yaml", "zero3.yaml"):
            self.write(name, "distributed_type: FSDP\n")

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def test_page_lists_the_tools(self):
        self.assertEqual(list(EXPECTED), [tool for tool, _ in rows()])

    def test_every_line_starts_its_tool_on_two_nodes(self):
        env = {"PYTHON_EXEC": sys.executable, "PYTHONPATH": str(self.folder)}
        for tool, line in rows():
            with self.subTest(tool=tool):
                self.assertRegex(line, r"^`[^`]+`$")
                words = shlex.split(line.strip("`"))
                self.assertEqual(["dslaunch", *HOSTS], words[:3])
                code, job = self.run_job(TWO_BY_TWO, words[3:], env=env)
                self.assert_code(0, code, job)
                self.check(*EXPECTED[tool])

    def check(self, path, arguments, found):
        for rank in range(4):
            report = json.loads((self.folder / f"report.{rank}").read_text())
            (self.folder / f"report.{rank}").unlink()
            environment = report["env"]
            self.assertEqual(PLACE - environment.keys(), set())
            self.assertEqual((str(rank), str(rank % 2), "4", "2"),
                             tuple(environment[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")))
            self.assertNotEqual("1", environment["MASTER_PORT"], "accelerate's")
            self.assertEqual(str(self.folder / path), os.path.normpath(self.folder / report["file"]))
            self.assertEqual(arguments, report["argv"][1:])
            for name, value in found.items():
                self.assertTrue(environment.get(name), name)
                if value:
                    self.assertEqual(value, environment[name], name)


if __name__ == "__main__":
    main()
