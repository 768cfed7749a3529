"""Tests wrong input: it must give one clear message with the place and a hint, and the documented exit code, and no
program may start."""

import os
import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402

USAGE, BAD_INPUT, UNAVAILABLE, IO, CANNOT_EXECUTE, NOT_FOUND = 64, 65, 69, 74, 126, 127


class WrongInput(LauncherCase):
    def refused(self, code_expected, *arguments, says=(), program=None, **options):
        """Runs dslaunch with a program that would create a trace file, and checks that dslaunch refused."""
        trace = bash('touch "$FOLDER/started"')
        code, job = self.run_job(*arguments, trace if program is None else program, timeout_s=20,
                                 env={"FOLDER": str(self.folder)}, **options)
        self.assert_code(code_expected, code, job)
        self.assert_presentable(job)
        for pattern in says:
            self.assertRegex(job.stderr, pattern)
        self.assertLessEqual(len(job.stderr.strip().splitlines()), 6, job.stderr)
        self.assertFalse((self.folder / "started").exists(), "a program was started")
        self.assert_nothing_left(1)
        return job

    def hostfile(self, text):
        path = self.folder / "hosts.txt"
        path.write_text(text)
        return ["--hostfile", path, "--num_gpus", "1"]

    def test_rejects_too_low_limit_of_open_files(self):
        """Without this check, gRPC would abort the front end."""
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen(["prlimit", "--nofile=40:40", *argv], *rest, **files)
        self.refused(UNAVAILABLE, "--launcher", "local", "--num_nodes", "8", "--num_gpus", "1",
                     says=[r"may open 40 files at once, and needs \d+ for 8 nodes; raise the limit: ulimit -n"])

    def test_rejects_two_nodes_without_hosts(self):
        if pathlib.Path("/job/hostfile").exists():
            self.fail("/job/hostfile exists on this machine, so this test means nothing here")
        self.refused(USAGE, "--num_nodes", "2", says=["--hostfile", "--launcher local"])

    def test_suggests_command_for_misspelt_one(self):
        for word, meant in (("trian", "train"), ("descirbe", "describe"), ("kill", "stop JOB")):
            with self.subTest(word):
                self.refused(USAGE, program=word, says=[f"'{word}' is no command of dslaunch", f"did you mean dslaunch {meant}\\?"])

    def test_reports_line_of_invalid_hostfile(self):
        for text, where in (("node1 slots=0\n", ":1"), ("node1 slots=2\nnode1 slots=2\n", ":2"),
                            ("node1 slots=2\nnode2\n", ":2"), ("node1 slots=two\n", ":1"),
                            ("node1 slots = 2\n", ":1"), ("node1 slots=-1\n", ":1"),
                            ("# ok\n\nnode1 slots=99999999999999999999\n", ":3")):
            with self.subTest(text=text):
                self.refused(BAD_INPUT, self.hostfile(text), says=["hosts.txt" + where])

    def test_reports_line_of_invalid_yaml_hostfile(self):
        for text, says in (("hosts:\n- name: a\n  slots: 0\n", ":3: 'slots: 0'"),
                           ("- name: a\n  slot: 2\n", ":2: 'slot'.*did you mean 'slots'"),
                           ("- {name: a, slots: 1}\n- {name: a, slots: 1}\n", ":2: 'a': already on line 1"),
                           ("- {name: a, slots: [1}\n", ":1: .*not valid YAML"),
                           ("hosts: &a [*a]\n", ":1: "),
                           ("hosts: " + 5000 * "[", "nested"),
                           ("- {name: ../x, slots: 1}\n", "'../x'"),
                           ("hosts:\n", "no hosts")):
            with self.subTest(text=text[:40]):
                self.refused(BAD_INPUT, self.hostfile(text), says=["hosts.txt", says])

    def test_rejects_invalid_filters(self):
        hosts = self.hostfile("node1 slots=4\nnode2 slots=4\n")[:2]
        for option, value, says in (("--include", "node3", "'node3'.*hosts.txt.*did you mean 'node1'"),
                                    ("-i", "node1:4", "'node1:4'.*slots 0 to 3"),
                                    ("-i", "node1:0-2", "ranges are not supported"),
                                    ("--exclude", "node1@node2", "leaves no slot"),
                                    ("-e", "node1@", "'@'"),
                                    ("-i", "node1:", "NAME:SLOT")):
            with self.subTest(value=value):
                self.refused(USAGE, hosts, option, value, says=[says])
        self.refused(USAGE, hosts, "-i", "node1", "-e", "node2", says=["include", "exclude"])
        self.refused(USAGE, hosts, "-i", "node1", "--num_nodes", "1", says=["include", "num_nodes"])
        self.refused(USAGE, "-i", "elsewhere:0", says=["'elsewhere:0'", "this machine"])

    def test_ignores_visible_devices_without_gpus(self):
        # launch_plan_test.cc covers more ranks than visible GPUs.
        if os.path.exists("/proc/driver/nvidia/gpus"):
            self.skipTest("this machine has a GPU")
        for visible in ("0,1", "0,0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"):
            code, job = self.run_job("--num_gpus", "4", "--dry_run", "true", env={"CUDA_VISIBLE_DEVICES": visible})
            self.assert_code(0, code, job)
            self.assert_prints(job, "= 4 ranks", "CPU, as no node has an accelerator")

    def test_rejects_auto_slots_with_hostfile_slots(self):
        hosts = self.hostfile("node1 slots=2\n")[:2]
        self.refused(USAGE, hosts, "--nproc_per_node", "auto", says=["--nproc_per_node auto", "hosts.txt"])

    def test_dry_run_rejects_impossible_jobs(self):
        self.refused(NOT_FOUND, TWO_BY_TWO, "--dry_run", program=["no-such-program-here"],
                     says=["no-such-program-here"])
        self.refused(BAD_INPUT, self.hostfile("a slots=0\n"), "--dry_run", says=["hosts.txt:1"])

    def test_rejects_empty_hostfile(self):
        for text in ("", "\n\n", "# nothing\n"):
            with self.subTest(text=text):
                self.refused(BAD_INPUT, self.hostfile(text), says=["hosts.txt"])

    def test_reports_missing_hostfile(self):
        self.refused(BAD_INPUT, "--hostfile", self.folder / "no_such_file", says=["no_such_file"])

    def test_rejects_folder_as_hostfile(self):
        self.refused(BAD_INPUT, "--hostfile", self.folder, says=[str(self.folder)])

    def test_rejects_trainer_on_gpus_without_gpu(self):
        # Tests a machine without a GPU, and a build without a CUDA part.
        if os.path.exists("/proc/driver/nvidia/gpus"):
            self.skipTest("this machine has a GPU")
        self.refused(USAGE, "--device", "cuda", program=["train"],
                     says=["--device cuda", "--device cpu|leave --device out"])

    def test_rejects_more_nodes_or_gpus_than_hostfile_has(self):
        hosts = self.hostfile("node1 slots=2\nnode2 slots=2\n")
        self.refused(USAGE, hosts, "--num_nodes", "3", says=[r"\b3\b", r"\b2\b"])
        self.refused(USAGE, hosts, "--num_gpus", "4", says=[r"\b4\b", "node1"])

    def test_rejects_invalid_options(self):
        self.refused(USAGE, "--num_nodez", "2", says=["--num_nodez", "--num_nodes"])
        self.refused(USAGE, "--num_gpus", "0", says=["--num_gpus", "'?0'?"])
        self.refused(USAGE, "--num_gpus", "two", says=["--num_gpus", "two"])
        self.refused(USAGE, "--launcher", "teleport", says=["--launcher", "teleport"])
        self.refused(USAGE, TWO_BY_TWO, "--show", "everyone", says=["--show", "everyone"])
        self.refused(USAGE, TWO_BY_TWO, "--autotuning", "run", says=["autotuning", "dslaunch tune RECIPE"])

    def test_rejects_missing_program_argument(self):
        self.refused(USAGE, TWO_BY_TWO, program=[], says=["program"])

    def test_reports_missing_program(self):
        job = self.refused(NOT_FOUND, TWO_BY_TWO, program=["no-such-program-here"], says=["no-such-program-here"])
        self.assertIn("no-such-program-here", job.stderr)
        self.refused(NOT_FOUND, TWO_BY_TWO, program=["./no/such/file"], says=["no/such/file"])
        self.refused(NOT_FOUND, TWO_BY_TWO, program=["no_such_script.py"], says=["no_such_script.py"])

    def test_reports_program_that_cannot_be_executed(self):
        plain = self.folder / "plain.txt"
        plain.write_text("not a program\n")
        self.refused(CANNOT_EXECUTE, TWO_BY_TWO, program=[str(plain)], says=["plain.txt"])
        self.refused(CANNOT_EXECUTE, TWO_BY_TWO, program=[str(self.folder)], says=[str(self.folder)])

    def test_explains_script_with_missing_interpreter(self):
        for first_line, says in (("#!/no/such/bash", "its interpreter /no/such/bash .in its first line. is not there"),
                                 ("#!/bin/bash\r", "its first line ends with a carriage return, .*sed -i")):
            with self.subTest(first_line=first_line):
                script = self.folder / "run.sh"
                script.write_bytes(first_line.encode() + b"\necho up\n")
                script.chmod(0o755)
                code, job = self.run_job("-n", 1, "--no_python", script)
                self.assert_code(126, code, job)
                self.assert_prints(job, says)
                self.assertNotIn("No such file", job.output)

    def test_reports_log_folder_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        self.refused(IO, TWO_BY_TWO, "--log_dir", self.folder / "file" / "logs", says=["file/logs"])

    def test_rejects_cuda_without_gpu(self):
        if os.path.exists("/dev/nvidia0"):
            self.fail("this machine has a GPU, so this test means nothing here")
        code, job = self.run_job(TWO_BY_TWO, "--device", "cuda", "true", timeout_s=20)
        self.assertNotEqual(0, code)
        self.assertRegex(job.stderr, "(?i)gpu|cuda")
        self.assert_presentable(job)
        self.assert_nothing_left(2)

    def test_rejects_unknown_and_invalid_recipes(self):
        self.refused(BAD_INPUT, TWO_BY_TWO, program=["train", "no_such_recipe"], says=["no_such_recipe"])
        recipe = self.folder / "mine.yaml"
        recipe.write_text("model: {type: mlp}\nno_such_key: 1\n")
        self.refused(BAD_INPUT, TWO_BY_TWO, program=["train", str(recipe)], says=["mine.yaml", "no_such_key"])
        recipe.write_text("model: [\n")
        self.refused(BAD_INPUT, TWO_BY_TWO, program=["train", str(recipe)], says=["mine.yaml"])
        self.refused(USAGE, TWO_BY_TWO, program=["train", "--steps", "none"], says=["--steps"])

    def test_reports_line_of_wrong_recipe_key(self):
        # The hosts cannot be reached, so the recipe must be refused before any host is tried.
        hosts = self.hostfile("".join(f"host{i}.invalid slots=1\n" for i in range(3)))
        recipe, engine = self.folder / "mine.yaml", self.folder / "ds.json"
        whole = "model: {type: mlp}\ndata: {type: idx}\nrun: {steps: 3}\nengine:\n  train_batch_size: 6\n"
        for text, options, code, says in (
                (whole + "  gradient_cliping: 1\n", [], BAD_INPUT, ["mine.yaml:6:3: engine.gradient_cliping is not a known "
                                                                    'key; did you mean "gradient_clipping"']),
                (whole.replace("6", "7"), [], BAD_INPUT, ["mine.yaml:4:1: engine: the batch sizes do not fit: .*3 ranks"]),
                (whole, ["--set", "run.steps=0"], USAGE, ["--set run.steps=0: run.steps is 0; it must be at least 1"]),
                (whole, ["--deepspeed_config", engine], BAD_INPUT, ["ds.json:2:3: zero_optimization.stage is 4"])):
            with self.subTest(says=says):
                recipe.write_text(text)
                engine.write_text('{"train_batch_size": 6, "zero_optimization": {\n  "stage": 4}}')
                self.refused(code, hosts, program=["train", recipe, *options], says=says)

    def test_prints_help_and_version(self):
        for option, words in (("--help", ["--hostfile", "train"]), ("--version", ["dslaunch"])):
            code, job = self.run_job(option)
            self.assert_code(0, code, job)
            for word in words:
                self.assertIn(word, job.stdout)


if __name__ == "__main__":
    main()
