"""Tests --accelerate_config: ranks must get the same environment and arguments as under `accelerate launch`, except
variables of their position."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from accelerate_configs import CONFIGS  # noqa: E402
from launcher_case import ROOT, LauncherCase, main  # noqa: E402

ORACLE = os.environ.get("DSLAUNCH_ORACLE_PYTHON") or str(ROOT / ".deps/oracle/bin/python3")
HAS_ACCELERATE = bool(list(pathlib.Path(ORACLE).parents[1].glob("lib/python3*/site-packages/accelerate")))
SUPPORT = ROOT / "tests" / "support"
BAD_INPUT, NOT_FOUND = 65, 127

# Variables of a rank's position, and variables that the test itself sets.
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "CROSS_", "MASTER_", "TORCHELASTIC_", "DSLAUNCH_", "REPORT", "_",
         "OLDPWD", "SHLVL", "PWD", "PMI_", "PMIX_", "MPI_LOCAL", "OMPI_MCA_")
# Variables that dslaunch or torchrun set in every rank, without accelerate.
OTHERS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
          "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
REPORT = """import json, multiprocessing, os, signal, sys

def main_file(queue):
    queue.put(sys.modules["__main__"].__file__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=main_file, args=(queue,))
    if os.environ["RANK"] == "0":
        child.start()
    status = open("/proc/self/status").read()
    json.dump({"env": dict(os.environ), "argv": sys.argv, "main": __file__, "modules": "accelerate" in sys.modules,
               "fds": sorted(map(int, os.listdir("/proc/self/fd"))), "path": sys.path[0],
               "child_main": queue.get() if os.environ["RANK"] == "0" else ""},
              open("report." + os.environ["RANK"], "w"))
"""
# A package with accelerate's name, in which `launch` has the functions that dslaunch's module calls.
OTHER_VERSION = {"accelerate/__init__.py": "__version__ = '0.9.9'\n", "accelerate/commands/__init__.py": "",
                 "accelerate/commands/launch.py": "def launch_command_parser(): pass\ndef is_deepspeed_available(): pass\n"}


def without_place(environment):
    return {name: value for name, value in environment.items() if not name.startswith(PLACE) and name not in OTHERS}


class AccelerateCase(LauncherCase):
    def write(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def base_environment(self):
        # accelerate changes the names of functions that bash exports, as ./run-tests does.
        inherited = {name: value for name, value in super().base_environment().items() if not name.startswith("BASH_FUNC_")}
        return {**inherited, "HOME": str(self.folder), "OMP_NUM_THREADS": "3", "PYTHON_EXEC": sys.executable,
                "PYTHONPATH": str(self.folder / "packages")}


@unittest.skipUnless(HAS_ACCELERATE, f"{ORACLE} has no accelerate; packaging/fetch-oracle")
class Oracle(AccelerateCase):
    def base_environment(self):
        return {**super().base_environment(), "PYTHON_EXEC": ORACLE}

    def setUp(self):
        super().setUp()
        stub = {"METADATA": "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.19.8\n"}
        self.write({"packages/deepspeed/__init__.py": "", "packages/deepspeed/launcher/__init__.py": "",
                    "packages/deepspeed/launcher/runner.py": "DEEPSPEED_ENVIRONMENT_NAME = '.deepspeed_env'\n",
                    "packages/deepspeed-0.19.8.dist-info/METADATA": stub["METADATA"],
                    **{f"{name}.yaml": text for name, text in CONFIGS.items()}})

    def launched(self, configs):
        """Returns a folder with the environment and arguments of ranks under `accelerate launch` for each config,
        and the changes made by dslaunch's module."""
        out = self.folder / "out"
        out.mkdir()
        for name in set(CONFIGS) - set(configs):
            (self.folder / f"{name}.yaml").unlink()
        run = subprocess.run([ORACLE, SUPPORT / "accelerate_oracle.py", ROOT / "python", out], env=self.base_environment(),
                             cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        return out

    def test_module_changes_what_accelerate_launch_changes(self):
        out = self.launched(CONFIGS)
        before = without_place(self.base_environment())
        for name in CONFIGS:
            changes = json.loads((out / f"{name}.changes.json").read_text())
            self.assertGreater(len(changes), 3, name)
            reports = sorted(out.glob(f"{name}.launched.*.json"))
            self.assertIn(len(reports), (1, 2), name)
            for report in reports:
                with self.subTest(report=report.name):
                    self.assertEqual(without_place(json.loads(report.read_text())), {**before, **changes})

    def test_ranks_on_two_nodes_match_accelerate_launch(self):
        out = self.launched(["fsdp2"])
        self.write({"report.py": REPORT, "accelerate.py": "raise SystemExit('a file of the working directory')\n"})
        code, job = self.run_job("--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", "--accelerate_config",
                                 "fsdp2.yaml", "report.py", "--lr", "1e-3")
        self.assert_code(0, code, job)
        self.assertIn("fsdp2.yaml: num_processes 8 and num_machines 1 not obeyed, as this job has 2 ranks on 2 nodes",
                      job.stderr)
        launched = without_place(json.loads((out / "fsdp2.launched.0.json").read_text()))
        for rank in range(2):
            report = json.loads((self.folder / f"report.{rank}").read_text())
            ours = without_place(report["env"])
            ours.pop("XDG_STATE_HOME"), launched.pop("XDG_STATE_HOME", None)
            self.assertEqual(launched, ours)
            self.assertEqual((str(rank), "2", "2"), tuple(report["env"][name] for name in ("RANK", "WORLD_SIZE",
                                                                                            "GROUP_WORLD_SIZE")))
            self.assertEqual(["report.py", "--lr", "1e-3"], [os.path.basename(report["argv"][0]), *report["argv"][1:]])
            self.assertFalse(report["modules"], "the program starts in a fresh interpreter")
            self.assertEqual(str(self.folder), report["path"])
            self.assertFalse([name for name in report["env"] if name.startswith("DSLAUNCH_ACCELERATE")])
        self.assertTrue(json.loads((self.folder / "report.0").read_text())["child_main"].endswith("report.py"))


class Refusals(AccelerateCase):
    def test_reports_interpreter_without_accelerate(self):
        self.write({"f.yaml": CONFIGS["fsdp2"], "packages/accelerate.py": "raise ImportError('no such module')\n"})
        code, job = self.run_job("--num_gpus", "1", "--accelerate_config", "f.yaml", "t.py")
        self.assert_code(NOT_FOUND, code, job)
        self.write({"t.py": "raise SystemExit('started')\n"})
        code, job = self.run_job("--num_gpus", "1", "--accelerate_config", "f.yaml", "t.py")
        self.assert_code(BAD_INPUT, code, job)
        self.assert_prints(job, rf"--accelerate_config \S+/f\.yaml: {sys.executable} cannot import accelerate")
        self.assert_presentable(job)

        code, job = self.run_job("doctor", "--device", "cpu", "--accelerate_config", "f.yaml", "t.py")
        self.assert_code(69, code, job)
        self.assert_prints(job, rf"FAIL +program: \S+ --accelerate_config \S+/f\.yaml: {sys.executable} cannot import accelerate")

    def test_reports_version_without_needed_functions(self):
        self.write({"f.yaml": CONFIGS["fsdp2"], "t.py": "raise SystemExit('started')\n",
                    **{f"packages/{name}": text for name, text in OTHER_VERSION.items()}})
        code, job = self.run_job("--num_gpus", "1", "--accelerate_config", "f.yaml", "t.py")
        self.assert_code(BAD_INPUT, code, job)
        self.assert_prints(job, r"accelerate 0\.9\.9 of \S+ has no _validate_launch_command, prepare_simple_launcher_cmd_env")
        self.assert_presentable(job)

    def test_invalid_config_starts_no_program(self):
        self.write({"f.yaml": "zero_optimization: {stage: 3}\n", "t.py": ""})
        for words in (["--accelerate_config", "f.yaml"], ["--accelerate_config", "no.yaml"]):
            code, job = self.run_job("--num_gpus", "1", words, "t.py")
            self.assert_code(BAD_INPUT, code, job)
        code, job = self.run_job("--num_gpus", "1", "--accelerate_config", "default", "t.py")
        self.assert_code(64, code, job)
        self.assert_prints(job, "accelerate has no default_config.yaml here")


class Numbers(AccelerateCase):
    def test_warns_of_ignored_default_config(self):
        self.write({".cache/huggingface/accelerate/default_config.yaml": CONFIGS["fsdp2"],
                    "t.py": "def never():\n  import transformers\nraise SystemExit(7)\n"})
        code, job = self.run_job("--num_gpus", "1", "t.py")
        self.assert_code(7, code, job)
        self.assert_prints(job, r"accelerate/default_config\.yaml is not obeyed \(t\.py imports transformers\); "
                                "--accelerate_config default obeys it")

    def test_num_processes_is_the_default_number_of_ranks(self):
        self.write({"f.yaml": CONFIGS["context_parallel"], "t.py": ""})
        code, job = self.run_job("--dry_run", "--accelerate_config", "f.yaml", "t.py")
        self.assert_code(0, code, job)
        self.assert_prints(job, r"2 ranks by num_processes in \S+/f\.yaml; --num_gpus N starts another number",
                           r"1 node x 2 slots = 2 ranks")
        code, job = self.run_job("--dry_run", "--num_gpus", "3", "--accelerate_config", "f.yaml", "t.py")
        self.assert_prints(job, r"num_processes 2 not obeyed, as this job has 3 ranks on 1 node")


if __name__ == "__main__":
    main()
