"""Tests jobs in allocations of a real Slurm with four nodes on this machine, with --launcher slurm, which is the
default in an allocation."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, LauncherCase, ROOT, bash, main, supervisors_and_agents  # noqa: E402
from slurm_case import NOT_RUN, SlurmCase  # noqa: E402
from slurm_cluster import why_not  # noqa: E402
from test_hosts import sockets_of, tcp_sockets, wait_until  # noqa: E402

WAITING_RANKS = ': > "$1/up.$RANK"; exec sleep 60'
SAVING_RANKS = """trap 'echo "rank $RANK saves"; sleep 2; echo "rank $RANK has saved"; exit 85' TERM; touch "$1/up.$RANK"
                  while :; do sleep 0.1; done"""
GATED_RANKS = 'touch "$1/up.$DSLAUNCH_ATTEMPT.$RANK"; until [ -e "$1/go" ]; do sleep 0.1; done'


def tcp_links(pid):
    """Returns the number of TCP connections of process `pid`."""
    own = sockets_of(pid)
    return sum(inode in own for _, inode in tcp_sockets(pid, "01"))


class Slurm(SlurmCase):
    def popen(self, argv, env, cwd, **options):
        return super().popen(["salloc", "--quiet", "-N4", "--ntasks-per-node=2", *argv], env, cwd, **options)

    def test_allocation_needs_no_hostfile(self):
        code, job = self.run_job("--show", "all", bash(
            'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK on $SLURMD_NODENAME (${SLURM_PROCID-none} ${SLURM_NTASKS-none} $SLURM_JOB_ID)"'))
        self.assert_code(0, code, job)
        found = sorted(re.findall(r"(\d) of 8, (\d) on (n\d) \(none none \d+\)", job.stdout))
        self.assertEqual([(str(rank), str(rank % 2), f"n{rank // 2 + 1}") for rank in range(8)], found, job.output)
        self.assert_prints(job, r"4 nodes x 2 slots = 8 ranks \(slurm, cpu\): n1 n2 n3 n4 \(slots from the tasks that Slurm was asked for\)")
        self.assert_nothing_left()

    def test_mpi_programs_form_one_world(self):
        for compiler, server in (("mpicc.openmpi", "pmix"), ("mpicc.mpich", "pmi")):
            if shutil.which(compiler) is None:
                continue
            program = self.folder / compiler
            subprocess.run([compiler, ROOT / "tests" / "support" / "mpi_program.c", "-o", program], check=True)
            with self.subTest(compiler):
                code, job = self.run_job("--mpi", server, "--show", "all", program)
                self.assert_code(0, code, job)
                found = sorted(re.findall(r"rank (\d) of 8, 2 on its node: sum 28, left (\d)", job.stdout))
                self.assertEqual([(str(rank), str((rank - 1) % 8)) for rank in range(8)], found, job.output)
        self.assert_nothing_left()

    def test_copied_programs_and_files_are_on_nodes(self):
        (self.folder / "in.txt").write_text("it")
        program = self.folder / "a.out"
        program.write_text('#!/bin/sh\necho "$RANK has $(cat in.txt) in $(pwd), $DSLAUNCH_COPY_DIR"\n')
        program.chmod(0o755)
        for fanout in ("0", "2"):
            code, job = self.run_job("--fanout", fanout, "--show", "all", "--copy", "./a.out", "--copy", "in.txt", "./a.out")
            self.assert_code(0, code, job)
            found = re.findall(r"(\d) has it in (/.*/copies/[0-9a-f]{64}), (\S+)", job.stdout)
            self.assertEqual([str(rank) for rank in range(8)], sorted(row[0] for row in found), job.output)
            self.assertTrue(all(row[1] == row[2] for row in found), job.output)
        self.assert_nothing_left()

    def test_options_choose_among_nodes_of_allocation(self):
        code, job = self.run_job("--include", "n2@n4", "--show", "all", bash('echo "$RANK on $SLURMD_NODENAME"'))
        self.assert_code(0, code, job)
        self.assertEqual([("0", "n2"), ("1", "n2"), ("2", "n4"), ("3", "n4")],
                         sorted(re.findall(r"(\d) on (n\d)", job.stdout)), job.output)
        code, job = self.run_job("--num_nodes", "3", "--num_gpus", "1", "--show", "all", bash('echo "$RANK on $SLURMD_NODENAME"'))
        self.assert_code(0, code, job)
        self.assertEqual([("0", "n1"), ("1", "n2"), ("2", "n3")], sorted(re.findall(r"(\d) on (n\d)", job.stdout)), job.output)

    def test_exit_code_is_that_of_first_cause(self):
        code, job = self.run_job(bash('[ $RANK != 5 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 5 \(n3, local rank 1\) exited with code 7")
        self.assert_nothing_left()

    def test_batch_job_ends_with_code_of_first_cause(self):
        job = self.batch(*bash('touch "$1/up.$RANK"'), "-", self.folder)
        self.assertEqual(("COMPLETED", 0), job.wait(), job.output)
        self.assertEqual(4, len(list(self.folder.glob("up.*"))), job.output)
        job = self.batch(*bash('[ $RANK != 2 ] || kill -9 $$; exec sleep 60'))
        self.assertEqual(("FAILED", 137), job.wait(), job.output)
        self.assertRegex(job.output, r"rank 2 \(n3, local rank 0\) was killed by SIGKILL")
        self.assert_nothing_left(within_s=10)

    def test_srun_on_each_node_needs_no_options(self):
        script = 'echo "$RANK of $WORLD_SIZE on $SLURMD_NODENAME"; [ $RANK != "$1" ] || exit 7; exec sleep ${2-0}'
        job = self.batch_script(["srun", "--quiet", "--ntasks-per-node=1", DSLAUNCH, "--show", "all", *bash(script)])
        self.assertEqual(("COMPLETED", 0), job.wait(), job.output)
        self.assertEqual({(str(i), f"n{i + 1}") for i in range(4)}, set(re.findall(r"(\d) of 4 on (n\d)", job.output)), job.output)
        self.assertEqual([], list(self.folder.glob("state/**/*.token*")))
        job = self.batch_script(["srun", "--quiet", "--ntasks-per-node=1", DSLAUNCH, *bash(script), "-", "2", "60"])
        self.assertEqual(("FAILED", 7), job.wait(), job.output)
        self.assertRegex(job.output, r"rank 2 \(node2, local rank 0\) exited with code 7")
        self.assert_nothing_left(within_s=10)

    def test_rejects_srun_with_a_task_per_rank(self):
        job = self.batch_script(["srun", "--quiet", DSLAUNCH, "true"], "-N4", "--ntasks-per-node=2")
        self.assertEqual(("FAILED", 64), job.wait(), job.output)
        self.assertRegex(job.output, r"srun starts 8 tasks on 4 nodes, .*--ntasks-per-node=1")

    def test_rejects_options_that_srun_cannot_serve(self):
        for option, why in ((["-np", "2"], r"-np 2 counts the ranks of all nodes.*--num_gpus N"),
                            (["--min_np", "2", "--max_np", "4"], r"--min_np and --max_np count the ranks of all nodes"),
                            (["--detach"], r"--detach: a job of one command on each node"),
                            (["--fanout", "2"], r"--fanout is for reaching nodes from here, and srun starts this command")):
            with self.subTest(option):
                job = self.batch_script(["srun", "--quiet", "--ntasks-per-node=1", DSLAUNCH, *option, *bash("true")])
                self.assertEqual(("FAILED", 64), job.wait(), job.output)
                self.assertRegex(job.output, why)
        self.assert_nothing_left(within_s=10)

    def test_scancel_ends_all_processes(self):
        job = self.batch(*bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        self.assertEqual(0, self.cluster.run("scancel", str(job.number)).returncode)
        self.assertEqual("CANCELLED", job.wait()[0])
        self.assert_nothing_left(within_s=10)

    def assert_cancelled(self, job, entity, why):
        """Checks that all ranks saved, that their last lines are shown, and that Slurm's reason is quoted."""
        wait_until(lambda: "exit code 85" in job.output, 20, f"the closing block of {job.output}")
        self.assertEqual({"0", "1", "2", "3"}, set(re.findall(r"rank (\d) has saved", job.output)), job.output)
        self.assertRegex(job.output, rf"stopped on request \(Slurm ended the job: {entity} \d+\S* ON n\d CANCELLED AT \S+{why}\)")
        self.assertNotIn("was lost", job.output)

    def test_scancel_lets_ranks_save_and_is_quoted(self):
        job = self.batch("--show", "all", *bash(SAVING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        self.assertEqual(0, self.cluster.run("scancel", str(job.number)).returncode)
        self.assert_cancelled(job, "STEP", "")
        self.assert_nothing_left(within_s=10)
        for path in self.folder.glob("up.*"):
            path.unlink()
        job = self.start("--num_gpus", "1", "--show", "all", bash(SAVING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        number = self.cluster.run("squeue", "--noheader", "--state=RUNNING", "--format=%i").stdout.strip()
        self.assertEqual(0, self.cluster.run("scancel", number).returncode)
        self.wait(job)
        self.assert_cancelled(job, "STEP", "")
        self.assert_nothing_left(within_s=10)

    def test_scancel_of_srun_lets_ranks_save(self):
        job = self.batch_script(["srun", "--quiet", "--ntasks-per-node=1", DSLAUNCH, "--show", "all", *bash(SAVING_RANKS), "-", self.folder])
        self.wait_for_files(job, "up.*", 4)
        self.assertEqual(0, self.cluster.run("scancel", str(job.number)).returncode)
        wait_until(lambda: "exit code 85" in job.output, 20, f"the closing block of {job.output}")
        self.assertEqual({"0", "1", "2", "3"}, set(re.findall(r"rank (\d) has saved", job.output)), job.output)
        self.assertNotIn("was lost", job.output)
        self.assert_nothing_left(within_s=10)

    def test_scancel_of_ranks_that_do_not_save_exits_143(self):
        job = self.start("--num_gpus", "1", bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        number = self.cluster.run("squeue", "--noheader", "--state=RUNNING", "--format=%i").stdout.strip()
        self.assertEqual(0, self.cluster.run("scancel", number).returncode)
        self.wait(job)
        # Slurm reports less if the step has ended on its first node before the signal arrives at that node.
        self.assert_prints(job, r"Slurm ended the job: STEP \d+\.0 ON n\d CANCELLED AT|"
                                r"Slurm sent SIGTERM to the job's step on n\d; scontrol show job says why", "exit code 143")
        self.assertNotIn("was lost", job.output)

    def test_time_limit_lets_ranks_save_and_is_quoted(self):
        job = self.batch("--show", "all", *bash(SAVING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        # Slurm checks only every 30 s for jobs that are over their limit.
        self.assertEqual(0, self.cluster.run("scontrol", "update", f"JobId={job.number}", "EndTime=now").returncode)
        wait_until(lambda: self.cluster.state_of(job.number)[0] != "RUNNING", 60, "Slurm ends the job", poll_s=0.2)
        self.assert_cancelled(job, "STEP", " DUE TO TIME LIMIT")
        self.assert_nothing_left(within_s=10)

    def test_warning_signals_of_slurm_reach_ranks(self):
        script = """trap 'touch "$1/warned.$RANK"; exit 0' USR1; touch "$1/up.$RANK"; while :; do sleep 0.1; done"""
        for options in ([], ["--batch"]):  # to the steps (--signal=USR1); to the script (--signal=B:USR1)
            with self.subTest(options=options):
                for path in self.folder.glob("*.[0-3]"):
                    path.unlink()
                job = self.batch(*bash(script), "-", self.folder)
                self.wait_for_files(job, "up.*", 4)
                self.assertEqual(0, self.cluster.run("scancel", *options, "--signal=USR1", str(job.number)).returncode)
                self.assertEqual(("COMPLETED", 0), job.wait(), job.output)
                self.assertEqual(4, len(list(self.folder.glob("warned.*"))), job.output)

    def test_signal_to_batch_script_lets_ranks_save(self):
        job = self.batch("--stop_signal", "sigterm", *bash(
            'trap "touch \\"$1/saved.$RANK\\"; exit 85" TERM; touch "$1/up.$RANK"; while :; do sleep 0.1; done'), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        self.assertEqual(0, self.cluster.run("scancel", "--batch", "--signal=TERM", str(job.number)).returncode)
        self.assertEqual(("FAILED", 85), job.wait(), job.output)
        self.assertEqual(4, len(list(self.folder.glob("saved.*"))), job.output)
        self.assert_nothing_left(within_s=10)

    def test_killed_step_counts_as_lost_node(self):
        job = self.start("--num_gpus", "1", bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 4)
        agent = next(p for p in supervisors_and_agents(self.leftovers())[1] if p.environ.get("SLURMD_NODENAME") == "n3")
        os.kill(agent.pid, signal.SIGKILL)
        code = self.wait(job)
        self.assertNotEqual(0, code)
        self.assert_prints(job, "n3")
        self.assert_nothing_left(within_s=10)

    def test_killed_dslaunch_leaves_no_process(self):
        job = self.start(bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 8)
        front, = [p for p in self.leftovers() if pathlib.Path(p.argv[0]).name == "dslaunch" and p.ppid == job.process.pid]
        os.kill(front.pid, signal.SIGKILL)
        killed_at = time.time()
        self.wait(job)
        self.assert_nothing_left(within_s=20, since=killed_at)

    def relays(self):
        return [process for process in self.leftovers() if process.comm == "dslaunch-relay"]

    def test_relays_reach_the_other_nodes(self):
        job = self.start("--fanout", "2", "--show", "all", bash(
            'echo "$RANK on $SLURMD_NODENAME (${SLURM_PROCID-none} ${SLURM_STEP_ID-none})"\n' + GATED_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.1.*", 8)
        front, = [process for process in self.leftovers() if process.comm == "dslaunch"]
        self.assertEqual(2, tcp_links(front.pid))
        self.assertEqual(2, len(self.relays()))
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        found = sorted(re.findall(r"(\d) on (n\d) \(none none\)", job.stdout))
        self.assertEqual([(str(rank), f"n{rank // 2 + 1}") for rank in range(8)], found, job.output)
        self.assert_nothing_left()

    def test_reports_failed_rank_behind_relay(self):
        code, job = self.run_job("--fanout", "4", bash('[ $RANK != 5 ] || exit 7; exec sleep 60'))
        self.assert_code(7, code, job)
        self.assert_prints(job, r"rank 5 \(n3, local rank 1\) exited with code 7")
        self.assert_nothing_left(within_s=10)

    def test_lost_relay_ends_or_restarts_job(self):
        for options, code in (([], 69), (["--max_restarts", "1", "--restart_delay_s", "0"], 0)):
            with self.subTest(options=options):
                for path in self.folder.glob("up.*"):
                    path.unlink()
                job = self.start("--fanout", "2", *options, bash(GATED_RANKS), "-", self.folder)
                self.wait_for_files(job, "up.1.*", 8)
                relay, = [process for process in self.relays() if process.environ["SLURMD_NODENAME"] in ("n3", "n4")]
                os.kill(relay.pid, signal.SIGKILL)
                if code == 0:
                    self.wait_for_files(job, "up.2.*", 8, timeout_s=60)
                    (self.folder / "go").touch()
                self.assert_code(code, self.wait(job), job)
                self.assert_nothing_left(within_s=20)

    def test_rejects_wrong_use(self):
        hostfile = self.folder / "hostfile"
        hostfile.write_text("n1 slots=1\n")
        for given, why in ((["--launcher", "slurm", "--hostfile", hostfile], "leave one of them out"),
                           (["--detach"], "sbatch starts one that needs no terminal"),
                           (["--num_nodes", "9"], r"job \d+ of Slurm has only 4 nodes"),
                           (["--nproc_per_node", "gpu"], "has no GPUs; ask it for some by --gpus-per-node"),
                           (["--launcher", "slurm", "--ssh_port", "22"], "--launcher slurm does not use"),
                           (["--ssh_command", "ssh -v"], "--ssh_command is for SSH, .*allocation")):
            with self.subTest(given=given):
                code, job = self.run_job(given, "true")
                self.assert_code(64, code, job)
                self.assert_prints(job, why)


class OutsideAnAllocation(LauncherCase):
    def test_hints_at_ways_to_get_an_allocation(self):
        code, job = self.run_job("--launcher", "slurm", "true")
        self.assert_code(64, code, job)
        self.assert_prints(job, r"in no allocation of Slurm's", r"salloc -N 2", r"--slurm_args '-N 2'")


class AnAllocationOfItsOwn(SlurmCase):
    def test_slurm_args_request_an_allocation(self):
        arguments = ["--launcher", "slurm", "--num_nodes", "2", "--slurm_args", "--ntasks-per-node=2 --time=5", "--show", "all"]
        code, job = self.run_job(arguments, bash('echo "$RANK on $SLURMD_NODENAME"; [ $RANK != "$1" ] || exit 9'))
        self.assert_code(0, code, job)
        self.assertEqual([("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")],
                         sorted(re.findall(r"(\d) on (n\d)", job.stdout)), job.output)
        code, job = self.run_job(arguments, bash('[ $RANK != "$1" ] || exit 9; exec sleep 60'), "-", "3")
        self.assert_code(9, code, job)
        self.assert_nothing_left()
        wait_until(lambda: not self.cluster.run("squeue", "--noheader").stdout, 20, "Slurm has its nodes back")

    def wait_for_salloc(self, job):
        """Returns salloc's exit code. If the allocation is revoked just when dslaunch ends, one thread of salloc
        reaps dslaunch and another thread waits for it forever (Slurm 22.05 to 26.05: salloc.c,
        _job_complete_handler). Then salloc is killed."""
        try:
            return job.wait(20)
        except subprocess.TimeoutExpired:
            left = self.leftovers()
            self.assertEqual(["salloc"], [process.comm for process in left], job.output)
            os.kill(left[0].pid, signal.SIGKILL)
            return job.wait(5)

    def test_ctrl_c_releases_the_allocation(self):
        job = self.start("--launcher", "slurm", "--slurm_args", "-N2", "--grace", "3", bash(WAITING_RANKS), "-", self.folder)
        self.wait_for_files(job, "up.*", 2)
        front = [process for process in self.leftovers() if process.comm == "dslaunch"]
        for pid in [job.pid, *(process.pid for process in front)]:  # Ctrl-C signals the whole process group
            with contextlib.suppress(ProcessLookupError):  # a child before its exec ends by itself
                os.kill(pid, signal.SIGINT)
        self.assertNotEqual(0, self.wait_for_salloc(job), job.output)
        self.assert_nothing_left(within_s=10)
        wait_until(lambda: not self.cluster.run("squeue", "--noheader").stdout, 20, "Slurm has its nodes back")


if __name__ == "__main__":
    reason = why_not()
    if reason is not None:
        print(reason)
        sys.exit(NOT_RUN)
    main()
