"""Tests how a program is started: its form, its local rank, its environment and arguments byte for byte, a script
that is sourced before it, and the cores that it runs on."""

import json
import os
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from awkward_bytes import awkward_strings  # noqa: E402
from launcher_case import DSLAUNCH, TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402

ONE = ["--launcher", "local", "--num_gpus", "1"]
TWO = ["--launcher", "local", "--num_gpus", "2"]

# Writes its environment and arguments to report.RANK.
REPORT = r"""
import json, os, sys
json.dump({
    "env": {os.fsencode(k).hex(): os.fsencode(v).hex() for k, v in os.environ.items()},
    "argv": [os.fsencode(word).hex() for word in sys.argv], "orig": sys.orig_argv[1:-1] and sys.orig_argv,
    "interpreter": sys.executable, "path0": sys.path[0], "cpus": sorted(os.sched_getaffinity(0)),
    "name": __name__,
}, open(os.environ["FOLDER"] + "/report." + os.environ["RANK"], "w"))
"""
TAKES_LOCAL_RANK = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("{option}", type=int, required=True)
parser.parse_known_args()
"""


class ProgramCase(LauncherCase):
    def script(self, name="report.py", before=""):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + REPORT)
        return path

    def reports(self, *words, ranks=1, env=None):
        for old in self.folder.glob("report.[0-9]*"):
            old.unlink()
        code, job = self.run_job(*words, env={"FOLDER": str(self.folder), **(env or {})})
        self.assert_code(0, code, job)
        reports = [json.loads((self.folder / f"report.{rank}").read_text()) for rank in range(ranks)]
        for report in reports:
            report["raw"] = {bytes.fromhex(k): bytes.fromhex(v) for k, v in report["env"].items()}
            report["env"] = {os.fsdecode(k): os.fsdecode(v) for k, v in report["raw"].items()}
            report["argv"] = [bytes.fromhex(word) for word in report["argv"]]
        return reports


class Forms(ProgramCase):
    def test_module_runs_with_its_arguments(self):
        self.script("pkg/mod.py")
        report, = self.reports(ONE, "--module", "pkg.mod", "a b")
        self.assertEqual([os.fsencode(self.folder / "pkg/mod.py"), b"a b"], report["argv"])
        self.assertEqual(["-u", "-m", "pkg.mod", "a b"], report["orig"][1:])

    def test_run_path_keeps_script_name(self):
        path = self.script("no suffix")
        report, = self.reports(ONE, "--run_path", path, "--lr", "1")
        self.assertEqual([os.fsencode(path), b"--lr", b"1"], report["argv"])
        self.assertEqual("__main__", report["name"])

    def test_no_python_runs_script_by_its_first_line(self):
        path = self.script()
        path.write_text("#!/bin/sh\necho \"$0 $1\" > $FOLDER/ran\n")
        path.chmod(0o755)
        code, job = self.run_job(ONE, "--no_python", path, "x", env={"FOLDER": str(self.folder)})
        self.assert_code(0, code, job)
        self.assertEqual(f"{path} x\n", (self.folder / "ran").read_text())

    def test_passes_local_rank_to_scripts_that_take_it(self):
        for option in ("--local_rank", "--local-rank"):
            path = self.script(before=TAKES_LOCAL_RANK.format(option=option))
            for rank, report in enumerate(self.reports(TWO, path, "x", ranks=2)):
                self.assertEqual([os.fsencode(path), f"{option}={rank}".encode(), b"x"], report["argv"])
        code, job = self.run_job(TWO, "--no_local_rank", path, env={"FOLDER": str(self.folder)})
        self.assert_code(2, code, job)  # because argparse rejects the missing option
        report, = self.reports(ONE, self.script(), "x")
        self.assertEqual(2, len(report["argv"]), "a script that takes none gets none")


class ByteForByte(ProgramCase):
    def test_arguments_and_values_arrive_byte_for_byte(self):
        seed = int(os.environ.get("DSLAUNCH_TEST_SEED", time.time_ns() & 0xffffffff))
        print(f"DSLAUNCH_TEST_SEED={seed}", file=sys.stderr)
        chance = random.Random(seed)
        script = self.script()
        for _ in range(4):
            arguments = awkward_strings(chance, 20)
            values = awkward_strings(chance, 20)
            words = [part for i, value in enumerate(values) for part in ("--env", b"V%d=%b" % (i, value))]
            for report in self.reports(TWO_BY_TWO, *words, script, *arguments, ranks=4):
                self.assertEqual(arguments, report["argv"][1:], f"seed {seed}")
                self.assertEqual(values, [report["raw"][b"V%d" % i] for i in range(20)], f"seed {seed}")

    def test_values_of_environment_file_arrive(self):
        seed = int(os.environ.get("DSLAUNCH_TEST_SEED", time.time_ns() & 0xffffffff))
        print(f"DSLAUNCH_TEST_SEED={seed}", file=sys.stderr)
        # The values have no line ends, and no blanks or quotes around them. An enclosing pair of quotes would be
        # removed from values in this file.
        values = [value.replace(b"\n", b"").replace(b"\r", b"").strip(b" \t\v\f\"'")
                  for value in awkward_strings(random.Random(seed), 40)]
        file = self.folder / "variables"
        file.write_bytes(b"".join(b"V%d=%b\n" % pair for pair in enumerate(values)))
        for report in self.reports(TWO_BY_TWO, self.script(), ranks=4, env={"DS_ENV_FILE": str(file)}):
            self.assertEqual(values, [report["raw"][b"V%d" % i] for i in range(40)], f"seed {seed}")


class Launchers(ProgramCase):
    def test_replaces_torchrun_by_its_script(self):
        reports = self.reports(TWO, "torchrun", "--nproc_per_node", "2", self.script(), ranks=2)
        self.assertEqual(["2", "2"], [report["env"]["WORLD_SIZE"] for report in reports])
        self.assert_prints(self.last_job, "torchrun is not started: dslaunch starts '.*report.py' in its place")

    def test_node_refuses_link_to_launcher(self):
        (self.folder / "torchrun").write_text("#!/bin/sh\n: > $FOLDER/started\n")
        (self.folder / "torchrun").chmod(0o755)
        (self.folder / "run").symlink_to("torchrun")
        env = {"FOLDER": str(self.folder)}
        code, job = self.run_job(TWO, self.folder / "run", env=env)
        self.assert_code(64, code, job)
        self.assert_prints(job, "run' starts ranks itself.*--nested starts it in each rank")
        self.assertFalse((self.folder / "started").exists())
        code, job = self.run_job(TWO, "--nested", self.folder / "run", env=env)
        self.assert_code(0, code, job)
        self.assertTrue((self.folder / "started").exists())

    def test_warns_once_of_launcher_in_shell_script(self):
        script = self.folder / "run.sh"
        script.write_text("#!/bin/bash\nexit 0\ntorchrun --nproc_per_node 2 t.py\n")
        code, job = self.run_job(TWO_BY_TWO, "bash", script)
        self.assert_code(0, code, job)
        self.assertEqual(1, job.stderr.count("run.sh:3: 'torchrun' starts ranks itself"), job.stderr)


class EnvironmentFile(ProgramCase):
    def test_environment_sources_have_a_precedence(self):
        home = self.folder / "home"
        home.mkdir()
        (home / ".deepspeed_env").write_text("A=home\nTZ=home\nLANG=home\n")
        (self.folder / ".deepspeed_env").write_text("# ours\n\nTZ=cwd\nLANG=cwd\nRANK=77\n")
        report, = self.reports(ONE, "--env", "LANG=option", self.script(), env={"HOME": str(home), "A": "node", "D": "node"})
        self.assertEqual(["home", "cwd", "option", "node", "0"],
                         [report["env"][name] for name in ("A", "TZ", "LANG", "D", "RANK")])
        self.assert_prints(self.last_job, "RANK is left out", "these variables from .*home/.deepspeed_env: A, TZ, LANG")

    def test_environment_file_can_have_another_name(self):
        (self.folder / "mine").write_text("TZ=1\n")
        report, = self.reports(ONE, self.script(), env={"DS_ENV_FILE": "mine"})
        self.assertEqual("1", report["env"]["TZ"])

    def test_rejects_invalid_line_before_start(self):
        (self.folder / ".deepspeed_env").write_text("A=1\nNCCL_DEBUG INFO\n")
        code, job = self.run_job(ONE, bash("touch started"))
        self.assert_code(65, code, job)
        self.assert_prints(job, r"\.deepspeed_env:2: 'NCCL_DEBUG': there is no '='")
        self.assertFalse((self.folder / "started").exists())

    def test_takes_values_literally_with_a_warning(self):
        (self.folder / ".deepspeed_env").write_text("TZ=$HOME/x\n")
        report, = self.reports(ONE, self.script())
        self.assertEqual("$HOME/x", report["env"]["TZ"])
        self.assert_prints(self.last_job, r"\.deepspeed_env:1: TZ is used literally.*--venv_script")


class VenvScript(ProgramCase):
    def test_ranks_use_environment_and_python_of_script(self):
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "python3").symlink_to("/usr/bin/python3")
        (self.folder / "activate").write_text(f"export VIRTUAL_ENV={self.folder}\nexport PATH=$VIRTUAL_ENV/bin:$PATH\n"
                                              "export SITE='two words'\nunset GONE\necho noise\n")
        report, = self.reports(ONE, "--venv_script", "activate", "--env", "SITE2=x", self.script(), env={"GONE": "1"})
        self.assertEqual(str(self.folder / "bin/python3"), report["interpreter"])
        self.assertEqual("two words", report["env"]["SITE"])
        self.assertTrue(report["env"]["PATH"].startswith(f"{self.folder}/bin:"))
        self.assertNotIn("GONE", report["env"])

    def test_ranks_inherit_folder_umask_and_limits(self):
        (self.folder / "data").mkdir()
        (self.folder / "setup").write_text("cd data\numask 0077\nulimit -S -n 123\nulimit -c 0\n")
        report = 'echo "$(umask) $(ulimit -S -n) $(ulimit -c) $PWD" > "$FOLDER/limits.$RANK"'
        code, job = self.run_job(TWO, "--venv_script", "setup", bash(report), env={"FOLDER": str(self.folder)})
        self.assert_code(0, code, job)
        for rank in range(2):
            self.assertEqual(f"0077 123 0 {self.folder}/data\n", (self.folder / f"limits.{rank}").read_text())

    def test_reports_failed_and_missing_scripts(self):
        (self.folder / "bad").write_text("echo 'no such thing' >&2\nreturn 3\n")
        code, job = self.run_job(ONE, "--venv_script", self.folder / "bad", "true")
        self.assert_code(65, code, job)
        self.assert_prints(job, rf"--venv_script {self.folder}/bad ended with 3: no such thing")
        code, job = self.run_job(ONE, "--venv_script", "/no/such/script", "true")
        self.assert_code(127, code, job)
        self.assert_prints(job, "--venv_script /no/such/script: No such file")


class Pythons(ProgramCase):
    def launcher_in(self, environment):
        """Starts dslaunch as if it were installed in a virtual environment that is not active."""
        program = environment / "bin" / "dslaunch"
        program.symlink_to(DSLAUNCH)
        popen = self.popen
        self.popen = lambda words, *rest, **options: popen([str(program), *words[1:]], *rest, **options)

    def make_environment(self):
        environment = self.folder / "v"
        (environment / "bin").mkdir(parents=True)
        (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (environment / "bin" / "python3").symlink_to("/usr/bin/python3")
        return environment

    def test_environment_of_dslaunch_comes_before_path(self):
        environment = self.make_environment()
        outside = self.base_environment
        self.base_environment = lambda: {name: value for name, value in outside().items() if name != "VIRTUAL_ENV"}
        self.launcher_in(environment)
        report, = self.reports(ONE, self.script())
        self.assertEqual(f"{environment}/bin/python3", report["interpreter"])
        self.assert_prints(self.last_job, f"ranks run {environment}/bin/python3, of the environment in which dslaunch is "
                                          "installed")
        other = self.folder / "other"
        (other / "bin").mkdir(parents=True)
        (other / "bin" / "python3").symlink_to("/usr/bin/python3")
        report, = self.reports(ONE, self.script(), env={"VIRTUAL_ENV": str(other)})
        self.assertEqual(f"{other}/bin/python3", report["interpreter"])
        self.assert_prints(self.last_job, "as VIRTUAL_ENV is set, not that of ")

    def test_missing_module_names_the_interpreter(self):
        (self.folder / "t.py").write_text("import no_such_module_here\n")
        for program in (["t.py"], ["/usr/bin/python3", "t.py"]):
            code, job = self.run_job(ONE, *program)
            self.assert_code(1, code, job)
            self.assert_prints(job, r"ModuleNotFoundError: No module named 'no_such_module_here' \(it was run by "
                                    r"/\S*python3\)")


class Places(ProgramCase):
    def test_sets_role_address_and_virtual_local_rank(self):
        reports = self.reports(TWO, "--role", "trainer", "--master_addr", "localhost", "--virtual-local-rank",
                               self.script(before=TAKES_LOCAL_RANK.format(option="--local_rank")), ranks=2)
        for rank, report in enumerate(reports):
            env = report["env"]
            self.assertEqual(("trainer", "localhost", "0", str(rank), "2", str(rank)),
                             (env["ROLE_NAME"], env["MASTER_ADDR"], env["LOCAL_RANK"], env["RANK"],
                              env["LOCAL_WORLD_SIZE"], env["CUDA_VISIBLE_DEVICES"]))
            self.assertEqual(b"--local_rank=0", report["argv"][1])

    def test_pid_file_has_the_process_to_signal(self):
        job = self.start(TWO, "--save_pid", bash(": > up.$RANK; exec sleep 60"))
        self.wait_for_files(job, "up.*", 2)
        path = pathlib.Path(f"/tmp/{job.pid}.deepspeed")
        self.assert_prints(job, re.escape(str(path)))
        os.kill(int(path.read_text()), 15)
        self.wait(job, 15)
        self.assertFalse(path.exists())
        self.assert_nothing_left()

    def test_pid_file_is_removed_after_success(self):
        code, job = self.run_job(TWO, "--save_pid", "true")
        self.assert_code(0, code, job)
        self.assertFalse(pathlib.Path(f"/tmp/{job.pid}.deepspeed").exists())


class Binding(ProgramCase):
    """Binds ranks to this machine's cores, whichever it has."""

    def setUp(self):
        super().setUp()
        self.cpus = sorted(os.sched_getaffinity(0))

    def test_divides_cores_among_ranks(self):
        if len(self.cpus) < 2:
            self.skipTest("one CPU is nothing to share")
        listed = f"{self.cpus[0]},{self.cpus[1]}"
        reports = self.reports(TWO, "--bind_cores_to_rank", "--bind_core_list", listed, self.script(), ranks=2,
                               env={"OMP_NUM_THREADS": "7"})
        self.assertEqual([[self.cpus[0]], [self.cpus[1]]], [report["cpus"] for report in reports])
        self.assertEqual(["1", "1"], [report["env"]["OMP_NUM_THREADS"] for report in reports])
        # Nodes on one machine must not share cores either.
        words = ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", "--bind_cores_to_rank"]
        cpus = [report["cpus"] for report in self.reports(words, self.script(), ranks=2)]
        self.assertFalse(set(cpus[0]) & set(cpus[1]), cpus)

    def test_taskset_shows_the_bound_core(self):
        code, job = self.run_job(ONE, "--bind_cores_to_rank", "--bind_core_list", str(self.cpus[-1]),
                                 bash("taskset -pc $$"))
        self.assert_code(0, code, job)
        self.assert_prints(job, rf"affinity list: {self.cpus[-1]}\b")

    def test_numa_binding_uses_available_cores(self):
        for choice in ("node", "socket", "exclusive", "core-complex"):
            report, = self.reports(ONE, "--numa-binding", choice, self.script())
            self.assertLessEqual(set(report["cpus"]), set(self.cpus))

    def test_rejects_impossible_bindings_before_start(self):
        for words, code, message in (
                (["--bind_cores_to_rank", "--bind_core_list", "5-3"], 64, "'5-3' ends before it begins"),
                (["--bind_cores_to_rank", "--bind_core_list", "4000"], 64, "there is no CPU 4000"),
                (["--bind_core_list", "0"], 64, "--bind_cores_to_rank"),
                (["--bind_cores_to_rank", "--bind_core_list", str(self.cpus[0])], 64, "2 ranks cannot share 1 cores")):
            got, job = self.run_job(TWO, words, bash("touch started"))
            self.assert_code(code, got, job)
            self.assert_prints(job, message)
            self.assertFalse((self.folder / "started").exists())
        got, job = self.run_job(ONE, "--bind_cores_to_rank", "true", env={"KMP_AFFINITY": "compact"})
        self.assert_code(64, got, job)
        self.assert_prints(job, "KMP_AFFINITY")


if __name__ == "__main__":
    main()
