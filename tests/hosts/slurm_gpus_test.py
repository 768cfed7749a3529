"""Tests GPUs of Slurm's allocations, requested in every way, and heterogeneous allocations."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, bash, main  # noqa: E402
from slurm_case import NOT_RUN, SlurmCase  # noqa: E402
from slurm_cluster import why_not  # noqa: E402

# Arguments of salloc, sbatch and srun, and the number of GPUs that each node gets with them.
FORMS = {"--gres": (["-N2", "--gres=gpu:4"], [4, 4]),
         "--gpus": (["-N2", "--gpus=8"], [4, 4]),
         "--gpus-per-node": (["-N2", "--gpus-per-node=4"], [4, 4]),
         "--gpus-per-task": (["-N2", "-n2", "--gpus-per-task=4"], [4, 4]),
         "heterogeneous": (["-N1", "--gpus-per-node=2", ":", "-N2", "--gpus-per-node=4"], [2, 4, 4]),
         "unequal": (["-N2", "--gpus=6"], [2, 4])}
RANK = bash('echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME has GPUs $SLURM_STEP_GPUS; ${SLURM_GPUS-none}"')


class Gpus(SlurmCase):
    cluster_options = {"gpus": 4}

    def run_in(self, options, *command):
        """Runs a command in the allocation that `options` request; returns its output."""
        done = subprocess.run([*map(str, options), *map(str, command)], env={**self.base_environment(), MARK: self.mark},
                              cwd=self.folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def nodes_of(self, output):
        """Returns (number of ranks, number of GPUs that Slurm gave) of each node, sorted."""
        nodes = {}
        for rank, node, gpus in re.findall(r"rank (\d+) of \d+ on (n\d) has GPUs ([\d,]*);", output):
            nodes.setdefault((node, gpus), set()).add(rank)
        return sorted((len(ranks), len(gpus.split(",")) if gpus else 0) for (_, gpus), ranks in nodes.items())

    def test_salloc_gives_a_rank_per_gpu(self):
        for name, (options, gpus) in FORMS.items():
            with self.subTest(name):
                output = self.run_in(["salloc", "--quiet", *options], DSLAUNCH, "--show", "all", *RANK)
                self.assertEqual([(count, count) for count in gpus], self.nodes_of(output), output)
                self.assertIn("slots from the GPUs that Slurm gave", output)
                self.assertIn(f"; {6 if name == 'unequal' else 8 if name == '--gpus' else 'none'}\n", output)

    def test_sbatch_gives_a_rank_per_gpu(self):
        for name, (options, gpus) in FORMS.items():
            with self.subTest(name):
                job = self.batch_script([DSLAUNCH, "--show", "all", *RANK], *options)
                self.assertEqual(("COMPLETED", 0), job.wait(), job.output)
                self.assertEqual([(count, count) for count in gpus], self.nodes_of(job.output), job.output)

    def test_srun_task_becomes_node_with_its_gpus(self):
        """Each task is a node of the job, with one rank, because nodes count NVIDIA GPUs themselves, and Slurm's
        GPUs are fake."""
        for name, (options, gpus) in FORMS.items():
            with self.subTest(name):
                command = [DSLAUNCH, "--show", "all", *RANK]
                words = ["srun", "--quiet"]
                for option in options:
                    words += [*command, ":"] if option == ":" else [option]
                output = self.run_in(words, *command)
                self.assertEqual([(1, count) for count in gpus], self.nodes_of(output), output)
                self.assertIn(f"of {len(gpus)} on", output)

    def test_some_nodes_of_allocation_keep_all_their_gpus(self):
        for name, options in (("one node", ["--num_nodes", "1"]), ("relays", ["--fanout", "2"])):
            with self.subTest(name):
                output = self.run_in(["salloc", "--quiet", "-N3", "--gpus=10"], DSLAUNCH, *options, "--show", "all", *RANK)
                nodes = self.nodes_of(output)
                self.assertTrue(all(ranks == gpus for ranks, gpus in nodes), output)
                self.assertEqual(1 if name == "one node" else 3, len(nodes), output)

    def test_logs_work_while_job_runs(self):
        """An inspector must run in its own step, beside the agents' step."""
        for name in ("--gpus", "heterogeneous"):
            with self.subTest(name):
                job = self.batch_script([DSLAUNCH, *bash('echo "rank $RANK"; touch "$1/up.$RANK"; until [ -e "$1/go" ]; do sleep 0.1; done'),
                                         "-", self.folder], *FORMS[name][0])
                self.wait_for_files(job, "up.*", sum(FORMS[name][1]))
                code, logs = self.run_job("logs", "last", "--show", "all")
                (self.folder / "go").touch()
                self.assert_code(0, code, logs)
                self.assertEqual(sum(FORMS[name][1]), len(set(re.findall(r"rank \d", logs.stdout))), logs.output)
                self.assertEqual(("COMPLETED", 0), job.wait(), job.output)
                (self.folder / "go").unlink()
                for path in self.folder.glob("up.*"):
                    path.unlink()

    def test_exclusive_cores_do_not_count_as_tasks(self):
        output = self.run_in(["salloc", "--quiet", "-N2", "--exclusive"], DSLAUNCH, "--show", "all", *RANK)
        self.assertEqual([(4, 4), (4, 4)], self.nodes_of(output), output)

    def test_agent_step_overrides_conflicting_requests(self):
        output = self.run_in(["salloc", "--quiet", "-N2", "--gpus=4", "--ntasks-per-gpu=1"], DSLAUNCH, "--show", "all", *RANK)
        self.assertEqual(4, sum(gpus for _, gpus in self.nodes_of(output)), output)

    def test_plan_reports_unknown_gpus_without_scontrol(self):
        programs = self.folder / "programs"
        programs.mkdir()
        for name in ("srun", "bash", "env", "sh"):
            found = next(folder for folder in ("/usr/bin", "/bin") if pathlib.Path(folder, name).exists())
            (programs / name).symlink_to(pathlib.Path(found, name))
        output = self.run_in(["salloc", "--quiet", "-N2", "--gres=gpu:4", "env", f"PATH={programs}"], DSLAUNCH, "--show", "all", *RANK)
        self.assertIn("1 slot per node as its GPUs are not known: there is no scontrol in PATH", output)


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        print(reason)
        sys.exit(NOT_RUN)
    main()
