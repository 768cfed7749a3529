"""Tests hangs of programs without status lines. Each must be detected, with the rank and the line that is the cause,
and no healthy job may be reported."""

import contextlib
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from random import Random

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hang_programs import (COMPUTING, FROZEN_HANG, HANGS, HEALTHY, MPI_HANGS, MPI_WAITS, NATIVE_HANG, TORCH_HANGS,  # noqa: E402
                           TRAIN_HANGS, Freezer, ScriptedRas, flight_program, hang_program, healthy_program, mpi_program, ras_program,
                           train_line, train_recipe, write_standin)
from launcher_case import BUILD, FASHION_MNIST, ROOT, TRAIN, LauncherCase, bash, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

TEST_SEED = int(os.environ.get("DSLAUNCH_TEST_SEED") or 1)
FULL = bool(os.environ.get("DSLAUNCH_TEST_FULL"))
ORACLE = os.environ.get("DSLAUNCH_ORACLE_PYTHON") or str(ROOT / ".deps/oracle/bin/python3")
HAS_TORCH = pathlib.Path(ORACLE).exists()
LOCAL = ["--launcher", "local", "--num_nodes", "1", "--heartbeat_s", "0.2", "--grace", "1"]
TIMED_OUT = 75
HANG_S = 2
# Limit from the end of --hang_s to the verdict, which needs a look, a heartbeat and the stacks of all ranks. It takes 2
# s on an idle machine; the limit is higher because tests share theirs.
VERDICT_WITHIN_S = 6


# A rank whose only sign of life is CPU time counts as hanging after this many times the limit.
COMPUTE_FACTOR = 5
MPI_COMPILER = shutil.which("mpicc.openmpi") or shutil.which("mpicc")


def shape(text):
    """Returns the lines of a closing block without parts that differ between machines: numbers, folders, kernel
    functions."""
    text = re.sub(r"its log: \S*/jobs/", "its log: /jobs/", text)
    text = re.sub(r" \([a-z_0-9]+\)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]+", "JOB", text)
    return re.sub(r"\d+", "N", text.strip()).splitlines()


class Hangs(LauncherCase):
    def python(self):
        return ORACLE if FULL else sys.executable

    def start_program(self, text, *options, ranks=2, **variables):
        (self.folder / "train.py").write_text(text)
        env = {"FOLDER": str(self.folder), "PYTHON_EXEC": variables.pop("python", self.python()), **variables}
        if env["PYTHON_EXEC"] != ORACLE:
            env["STANDIN"] = write_standin(self.folder)
        return self.start(LOCAL, "--num_gpus", str(ranks), *options, "train.py", env=env)

    def hang(self, text, *options, **settings):
        """Runs a program that hangs until dslaunch ends it; returns (Job, seconds from the hang to the verdict)."""
        job = self.start_program(text, "--hang_s", HANG_S, "--on_hang", "kill", *options, **settings)
        self.wait_for_output(job, "no rank has moved for", timeout_s=60)
        seen_at = time.time()
        hung_at = max(path.stat().st_mtime for path in self.folder.glob("hangs.*"))
        self.assert_code(TIMED_OUT, self.wait(job), job)
        self.assert_presentable(job)
        return job, seen_at - hung_at

    def check_hang(self, name, ranks=2, **settings):
        text, line = hang_program(name)
        job, seconds = self.hang(text, ranks=ranks, **settings)
        if name == "another exchange":
            self.assert_prints(job, "ranks wait in different exchanges")
        else:
            self.assert_prints(job, r"  (probably )?rank 1 \(localhost, local rank 1\) is (not where the others are|stopped)")
        if line is not None:
            lines = f"({line - 1}|{line})" if name == "endless loop" else line
            self.assert_prints(job, rf"\(train\.py:{lines}\)")
        self.assert_prints(job, r"  rank(s 0, 2-3 wait| 0 waits) ", r"all_reduce \(distributed_c10d\.py:")
        self.assertLess(seconds, (COMPUTE_FACTOR if name in COMPUTING else 1) * HANG_S + VERDICT_WITHIN_S)

    def test_names_rank_and_line_of_sleeping_loader(self):
        self.check_hang("sleeping loader", ranks=4)

    def test_names_rank_that_reads_fifo(self):
        self.check_hang("FIFO without a writer")

    def test_names_rank_that_holds_gil_in_c(self):
        self.check_hang("GIL held by C")

    def test_names_stopped_rank(self):
        self.check_hang("stopped")

    @unittest.skipUnless(HAS_TORCH, f"{ORACLE} is missing; packaging/fetch-oracle")
    def test_closing_block_of_gloo_ranks_matches_docs(self):
        text, _ = hang_program("sleeping loader")
        (self.folder / "train.py").write_text(text)
        job = self.start("--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", "--grace", "1", "--hang_s", "5",
                         "--on_hang", "kill", "train.py", env={"FOLDER": str(self.folder), "PYTHON_EXEC": ORACLE})
        self.assert_code(TIMED_OUT, self.wait(job), job)
        page = (ROOT / "docs/troubleshooting.md").read_text().split("## The cause of a hang")[1]
        documented = re.search(r"```text\n(.*?)```", page, re.DOTALL).group(1)
        printed = job.stderr[job.stderr.index("dslaunch: no rank"):]
        self.assertEqual(shape(documented), shape(printed))

    def flight_hang(self, name):
        job, _ = self.hang(flight_program(name), ranks=3, python=ORACLE)
        return job

    @unittest.skipUnless(HAS_TORCH, f"{ORACLE} is missing; packaging/fetch-oracle")
    def test_names_rank_that_skipped_exchange(self):
        job = self.flight_hang("skipped exchange")
        self.assert_prints(job, r"  rank 1 \(localhost, local rank 1\) has not called all_reduce \(collective 5 of group default_pg\):",
                           r"    (ranks 0, 2 wait|rank [02] waits) in all_reduce \(collective 5 of group default_pg\) at "
                           r"(<listcomp>|exchange)")
        # On a busy machine a process may be too late with its dump, and the analyzer then counts its rank as missing.
        if "ranks 0, 2 wait" in job.output:
            self.assertIn("missing ranks: {1}", self.analyze_dumps())

    def analyze_dumps(self):
        """Returns the output of PyTorch's own analyzer for the same dumps. The analyzer accepts only names of NCCL's
        operations, so the names are replaced."""
        folder = self.folder / "dumps"
        folder.mkdir()
        for path in (self.folder / "state").rglob("flight_?"):
            dump = pickle.loads(path.read_bytes())
            for entry in dump["entries"]:
                entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
            (folder / path.name).write_bytes(pickle.dumps(dump, protocol=2))
        done = subprocess.run([ORACLE, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "flight_"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout + done.stderr

    @unittest.skipUnless(FULL and HAS_TORCH, "set DSLAUNCH_TEST_FULL=1")
    def test_names_rank_with_other_operation(self):
        job = self.flight_hang("another operation")
        self.assert_prints(job, r"  the operations of collective 4 of group default_pg differ, probably because of rank 1 \(localhost",
                           r"    rank 1 called broadcast \[\[4\]\]", r"    ranks 0, 2 called all_reduce \[\[4\]\]")
        self.assertRegex(self.analyze_dumps(), r"(?s)sequence number: 4.*COLLECTIVE_TYPE_MISMATCH|Collective type mismatch|type mismatch")

    @unittest.skipUnless(FULL and HAS_TORCH, "set DSLAUNCH_TEST_FULL=1")
    def test_names_ranks_whose_groups_cross(self):
        self.assert_prints(self.flight_hang("crossed groups"), "wait for each other, so the order of their exchanges differs")

    @unittest.skipUnless(HAS_TORCH, f"{ORACLE} is missing; packaging/fetch-oracle")
    def test_names_rank_that_lags_in_ras(self):
        ras = ScriptedRas()
        self.addCleanup(ras.close)
        job, _ = self.hang(ras_program(), python=ORACLE, NCCL_RAS_ADDR=ras.address)
        self.assert_prints(job, r"  probably rank 1 \(localhost, local rank 1\) has launched 8 operations AllReduce of NCCL, the "
                                "others 9")

    def test_reports_hang_and_continues(self):
        text, line = hang_program("sleeping loader")
        job = self.start_program(text, "--hang_s", HANG_S, "--on_hang", "report", python=sys.executable)
        self.wait_for_output(job, "all stacks: dslaunch stacks", timeout_s=60)
        self.assert_prints(job, r"  rank 1 \(localhost, local rank 1\) is not where the others are:",
                           rf"load_batch \(train\.py:{line}\) < main \(train\.py:\d+\)", "  rank 0 waits for it in all_reduce:")
        self.assertTrue(job.running())
        job.signal(signal.SIGINT)
        self.wait(job)

    @unittest.skipUnless(pathlib.Path(TRAIN).exists(), f"{TRAIN} is not built")
    def test_names_stopped_rank_of_trainer(self):
        job = self.start(LOCAL, "--num_gpus", "2", "--hang_s", "3", "--on_hang", "kill", "--json", "train", FASHION_MNIST,
                         "--epochs", 1000)
        self.wait_for_output(job, r"(?i)loss", timeout_s=90)
        (events,) = self.folder.glob("state/dslaunch/jobs/*/events.jsonl")
        started = [json.loads(line) for line in events.read_text().splitlines() if '"started"' in line]
        os.kill(started[0]["pids"][1], signal.SIGSTOP)
        self.assert_code(TIMED_OUT, self.wait(job), job)
        self.assert_prints(job, r"  rank 1 \(localhost, local rank 1\) is stopped", r"kill -CONT \d+ continues it on localhost")
        cause = json.loads(job.stdout.splitlines()[-1])["cause"]
        self.assertEqual(("hang", 1), (cause["kind"], cause["rank"]))

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_names_rank_of_native_program(self):
        (self.folder / "program.c").write_text(NATIVE_HANG)
        subprocess.run(["cc", "-w", "-o", "program", "program.c"], cwd=self.folder, check=True, timeout=60)
        code, job = self.run_job(LOCAL, "--num_gpus", "2", "--hang_s", HANG_S, "--on_hang", "kill", "--no_python", "./program",
                                 env={"FOLDER": str(self.folder)})
        self.assert_code(TIMED_OUT, code, job)
        self.assert_prints(job, r"  rank 1 \(localhost, local rank 1\) is not where the others are:",
                           r"    program: .*in read\b.* FIFO", r"  rank 0 waits for it in recvfrom\(\):")

    def mpi_hang(self, name, **variables):
        """Runs a program whose ranks wait in MPI, which spins. Checks the rank, the line and the time of the
        verdict."""
        text, line = mpi_program(name)
        (self.folder / "program.c").write_text(text)
        subprocess.run([MPI_COMPILER, "-w", "-g", "-O1", "-o", "program", "program.c", "-lpthread"], cwd=self.folder, check=True,
                       timeout=60)
        job = self.start(LOCAL, "--num_gpus", "2", "--hang_s", HANG_S, "--on_hang", "kill", "--no_python", "./program",
                         env={"FOLDER": str(self.folder), **variables})
        self.wait_for_output(job, "no rank has moved for", timeout_s=60)
        seconds = time.time() - (self.folder / "hangs.1").stat().st_mtime
        self.assert_code(TIMED_OUT, self.wait(job), job)
        if name in MPI_WAITS:
            self.assert_prints(job, "  ranks wait in different exchanges")
        else:
            self.assert_prints(job, r"  (probably )?rank 1 \(localhost, local rank 1\) is (not where the others are|stopped)",
                               r"  rank 0 waits for it in MPI_Barrier")
        self.assert_prints(job, r"PMPI_Barrier \(\S+\) < train \(program\.c:\d+\)")
        if line is not None:
            self.assert_prints(job, rf"load_batch \(program\.c:{line}\)")
        # The verdict needs three looks at the spinning ranks, and reads the frames of each rank at each look.
        self.assertLess(seconds, (COMPUTE_FACTOR if name in COMPUTING else 1) * HANG_S + 2 * VERDICT_WITHIN_S)

    @unittest.skipUnless(MPI_COMPILER, "no MPI")
    def test_names_rank_and_line_while_others_spin_in_mpi(self):
        self.mpi_hang("sleeping loader")

    @unittest.skipUnless(MPI_COMPILER, "no MPI")
    def test_names_exchanges_while_all_spin_in_mpi(self):
        self.mpi_hang("receive without a sender")

    def train_hang(self, name, **variables):
        """Runs `dslaunch train` with data that hang on rank 1. Checks the rank and the line."""
        (self.folder / "recipe.json").write_text(json.dumps(train_recipe(BUILD / "tests/libdslaunch-hanging-data.so")))
        job = self.start(LOCAL, "--num_gpus", "2", "--hang_s", HANG_S, "--on_hang", "kill", "--device", "cpu", "train",
                         "recipe.json", env={"FOLDER": str(self.folder), "HANG": name, **variables}, cwd=str(self.folder))
        self.assert_code(TIMED_OUT, self.wait(job), job)
        self.assert_prints(job, r"  (probably )?rank 1 \(localhost, local rank 1\) is (not where the others are|stopped)",
                           r"dslaunch: no rank (has moved|made a step) for")
        if train_line(name) is not None:
            self.assert_prints(job, rf"LoadBatch \(hanging_data\.cc:{train_line(name)}\)")

    @unittest.skipUnless(FULL and pathlib.Path(TRAIN).exists(), "set DSLAUNCH_TEST_FULL=1")
    def test_names_culprit_of_each_planted_hang_of_trainer(self):
        for name in TRAIN_HANGS:
            with self.subTest(hang=name), self.freezer(name) as variables:
                self.clear_folder()
                self.train_hang(name, **variables)

    @contextlib.contextmanager
    def freezer(self, name):
        """Yields the variables that a hang needs."""
        if name != "frozen cgroup":
            yield {}
            return
        with contextlib.closing(Freezer()) as freezer:
            if freezer.path is None:
                self.skipTest("no cgroup of version 2 can be made")
            yield {"FREEZER": str(freezer.path)}

    def clear_folder(self):
        for old in self.folder.glob("*"):
            if not old.is_dir():
                old.unlink()

    @unittest.skipUnless(MPI_COMPILER and FULL, "set DSLAUNCH_TEST_FULL=1")
    def test_names_culprit_of_each_planted_hang_with_mpi(self):
        for name in {**MPI_HANGS, **MPI_WAITS}:
            with self.subTest(hang=name), self.freezer(name) as variables:
                self.clear_folder()
                self.mpi_hang(name, **variables)

    def test_names_rank_in_endless_loop(self):
        self.check_hang("endless loop", python=sys.executable)

    def test_kills_sleeping_shells(self):
        code, job = self.run_job(LOCAL, "--num_gpus", "2", "--hang_s", "2", "--on_hang", "kill", "--json",
                                 bash("echo hello; sleep 30"))
        self.assert_code(TIMED_OUT, code, job)
        self.assert_prints(job, r"no rank has moved for 2 s \(--hang_s setup=2\)|no rank has moved for \d s",
                           "ranks 0-1 are asleep", r"in (clock_)?nanosleep")
        self.assertEqual("hang", json.loads(job.stdout.splitlines()[-1])["cause"]["kind"])
        self.assert_nothing_left()

    def test_names_rank_that_exited_while_others_wait(self):
        text = hang_program("sleeping loader")[0].replace("    time.sleep(3600)  # HERE", "    os._exit(0)")
        job, _ = self.hang(text, python=sys.executable, ranks=3)
        self.assert_prints(job, "rank 1 exited with 0 while the others wait")

    def test_restarts_after_hang(self):
        text = hang_program("sleeping loader")[0].replace("    if rank == 1:\n", "    if rank == 1 and os.environ['DSLAUNCH_ATTEMPT'] == '1':\n"
                                                          "        os.remove(f'{folder}/peer_port')\n")
        job = self.start_program(text, "--hang_s", HANG_S, "--on_hang", "restart", "--max_restarts", "1", "--restart_delay_s",
                                 "0.1", python=sys.executable)
        self.assert_code(0, self.wait(job), job)
        self.assert_prints(job, r"attempt 1 ended: .*rank 1 \(localhost, local rank 1\) is not where the others are",
                           "2 ranks on 1 node succeeded in .* with 1 restart")

    def test_attach_shows_standstill_of_detached_job(self):
        text, line = hang_program("sleeping loader")
        job = self.start_program(text, "--hang_s", HANG_S, "--detach", python=sys.executable)
        self.assert_code(0, self.wait(job), job)
        job_id = job.stdout.strip()
        (log,) = self.folder.glob("state/dslaunch/jobs/*/nodes/*/agent.log")
        wait_until(lambda: "all stacks: dslaunch stacks" in log.read_text(), 30)
        viewer = self.start("attach", job_id)
        self.wait_for_output(viewer, f"all stacks: dslaunch stacks {job_id}")
        self.assert_prints(viewer, "no rank has moved for", rf"load_batch \(train\.py:{line}\)")
        code, stop = self.run_job("stop", job_id)
        self.assert_code(0, code, stop)
        self.wait(viewer)
        self.assert_nothing_left()

    @unittest.skipUnless(FULL, "set DSLAUNCH_TEST_FULL=1")
    def test_reports_none_of_100_healthy_jobs(self):
        random = Random(TEST_SEED)
        print(f"seed {TEST_SEED}")
        waiting = [(name, number) for number in range(100) for name in [list(HEALTHY)[number % len(HEALTHY)]]]
        running = {}
        while waiting or running:
            while waiting and len(running) < 4:
                name, number = waiting.pop()
                folder = self.folder / f"job_{number}"
                folder.mkdir()
                (folder / "train.py").write_text(healthy_program(name, random.uniform(5, 9)))
                env = {"FOLDER": str(folder), "STANDIN": write_standin(folder), "PYTHON_EXEC": sys.executable}
                running[name, number] = self.start(LOCAL, "--num_gpus", random.randint(2, 4), "--hang_s", HANG_S, "--on_hang", "kill",
                                                   "train.py", env=env, cwd=str(folder))
            time.sleep(0.2)
            for (name, number), job in list(running.items()):
                if job.running():
                    continue
                with self.subTest(job=name, number=number):
                    self.assert_code(0, self.wait(job), job)
                    self.assertNotIn("no rank has moved", job.output)
                del running[name, number]

    def test_healthy_jobs_are_not_reported(self):
        jobs = {}
        for name in HEALTHY:
            folder = self.folder / name.replace(" ", "_")
            folder.mkdir()
            (folder / "train.py").write_text(healthy_program(name, 6))
            env = {"FOLDER": str(folder), "STANDIN": write_standin(folder), "PYTHON_EXEC": sys.executable}
            jobs[name] = self.start(LOCAL, "--num_gpus", "2", "--hang_s", HANG_S, "--on_hang", "kill", "train.py", env=env,
                                    cwd=str(folder))
        jobs["one rank"] = self.start(LOCAL, "--num_gpus", "1", "--hang_s", HANG_S, "--on_hang", "kill", bash("sleep 6"))
        for name, job in jobs.items():
            with self.subTest(job=name):
                self.assert_code(0, self.wait(job), job)
                self.assertNotIn("no rank has moved", job.output)

    @unittest.skipUnless(FULL, "set DSLAUNCH_TEST_FULL=1")
    def test_names_culprit_of_each_planted_hang(self):
        for name in {**HANGS, **FROZEN_HANG, **TORCH_HANGS}:
            with self.subTest(hang=name), self.freezer(name) as variables:
                self.clear_folder()
                self.check_hang(name, **variables)


if __name__ == "__main__":
    main()
