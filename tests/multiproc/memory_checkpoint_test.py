"""Tests copies of ranks' states in memory: the state from which a job continues after its ranks are killed, and that
no copy is left at the end."""

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import (ROOT, TWO_BY_TWO, LauncherCase, main, report_document,  # noqa: E402
                           supervisors_and_agents)
from test_hosts import wait_until  # noqa: E402

MODULE = ROOT / "python"
STEPS = 60
EVERY = 5
OPTIONS = ["--memory_checkpoint", EVERY, "--grace", "2", "--env", f"PYTHONPATH={MODULE}"]
MEMORY_NAME = "dslaunch-memory-checkpoint"

# Each rank's state is a chain of hashes, so a lost or repeated step changes the result. KILLS contains
# "attempt.rank.step" of ranks that kill themselves before a step, or "attempt.rank.step.copy" in the middle of the copy
# after the step.
LOOP = """
import hashlib, os, pathlib, signal, sys, time
import dslaunch
from dslaunch import memory
folder = pathlib.Path(os.environ["FOLDER"])
kills = os.environ.get("KILLS", "").split()
job = dslaunch.current_job()
reporter = dslaunch.Reporter()
state, step = bytes(1000), 0
copy = reporter.load_from_memory()
if copy is not None:
    step, state = copy.step, copy.state["state"]
print("rank", job.rank, "attempt", job.attempt, "begins after step", step, flush=True)
fill_whole = memory.Copies.write
def write_half(copies, step, size, fill):
    def fill_half(content):
        fill(content)
        os.kill(os.getpid(), signal.SIGKILL)
    fill_whole(copies, step, size, fill_half)
while step < int(sys.argv[1]):
    here = f"{job.attempt}.{job.rank}.{step}"
    if here in kills:
        os.kill(os.getpid(), signal.SIGKILL)
    step += 1
    state = hashlib.sha256(b"%d %d" % (job.rank, step) + state).digest() + state[32:]
    reporter.step(step, total_steps=int(sys.argv[1]))
    if f"{job.attempt}.{job.rank}.{step}.copy" in kills:
        memory.Copies.write = write_half
    reporter.save_in_memory(step, {"state": state, "step": step})
    if step % 5 == 0:  # no rank is more than a copy ahead of another one
        (folder / f"at.{job.attempt}.{job.rank}.{step}").touch()
        while not all((folder / f"at.{job.attempt}.{rank}.{step}").exists() for rank in range(job.world_size)):
            time.sleep(0.002)
    time.sleep(0.005)
    while f"{job.attempt}.{job.rank}.{step}.wait" in kills:
        time.sleep(0.01)
(folder / f"end.{job.rank}").write_text(hashlib.sha256(state).hexdigest())
"""


def expected_end(rank):
    state = bytes(1000)
    for step in range(1, STEPS + 1):
        state = hashlib.sha256(b"%d %d" % (rank, step) + state).digest() + state[32:]
    return hashlib.sha256(state).hexdigest()


def holders_of_memory():
    """Returns the pids of all processes that have the memory of copies open."""
    found = set()
    for entry in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if MEMORY_NAME in os.readlink(entry):
                found.add(int(entry.parts[2]))
        except OSError:
            pass  # the process has ended
    return found


class MemoryCheckpoint(LauncherCase):
    def start_loop(self, *options, ranks=TWO_BY_TWO, kills=()):
        program = self.folder / "loop.py"
        program.write_text(LOOP)
        return self.start(ranks, OPTIONS, *options, sys.executable, program, STEPS,
                          env={"FOLDER": str(self.folder), "KILLS": " ".join(kills)})

    def run_loop(self, *options, **how):
        job = self.start_loop(*options, **how)
        return self.wait(job), job

    def assert_right_end(self, ranks=4):
        for rank in range(ranks):
            self.assertEqual(expected_end(rank), (self.folder / f"end.{rank}").read_text(), f"rank {rank}")

    def begins(self, job, attempt):
        """Returns the step after which the ranks of an attempt began."""
        steps = set(re.findall(rf"attempt {attempt} begins after step (\d+)", job.stdout))
        self.assertEqual(1, len(steps), job.output)
        return int(steps.pop())

    def test_restarts_after_kills_continue_from_memory(self):
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        kills, attempt, last = [], 1, 7
        for _ in range(5):
            step = min(STEPS - 2, last + draw.randrange(0, 10))
            kills.append(f"{attempt}.{draw.randrange(4)}.{step}")
            if draw.randrange(3) == 0:
                kills[-1] = f"{attempt}.{draw.randrange(4)}.{-(-(step + 1) // EVERY) * EVERY}.copy"
            attempt, last = attempt + 1, step
        with self.subTest(seed=seed, kills=kills):
            code, job = self.run_loop("--max_restarts", "5", "--show", "all", kills=kills)
            self.assert_code(0, code, job)
            self.assert_right_end()
            for number, kill in enumerate(kills, start=2):
                step = int(kill.split(".")[2])
                begun = self.begins(job, number)
                during_copy = kill.endswith("copy")
                self.assertEqual((step - 1 if during_copy else step) // EVERY * EVERY, begun)
                self.assertIn(f"the ranks continue after step {begun}, from copies in memory", job.stderr)
            self.assert_presentable(job)
        self.assert_nothing_left()

    def test_death_during_copy_continues_from_copy_before(self):
        code, job = self.run_loop("--max_restarts", "1", "--show", "all", ranks=["--launcher", "local", "--num_gpus", "1"],
                                  kills=["1.0.20.copy"])
        self.assert_code(0, code, job)
        self.assertEqual(15, self.begins(job, 2))
        self.assertIn("the ranks continue after step 15, from copies in memory; 5 steps are repeated", job.stderr)
        self.assert_right_end(ranks=1)

    def test_age_of_newest_copy_is_shown(self):
        job = self.start_loop("--show", "none", "--max_restarts", "1",
                              kills=[f"{attempt}.{rank}.22.wait" for rank in range(4) for attempt in (1, 2)])
        self.wait_for_files(job, "at.1.*.20", 4)
        def described():
            _, described = self.run_job("describe", "last")
            return re.search(r"(?m)^copy in memory +step 20, \d+ s ago$", described.stdout)
        wait_until(described, 10, "no copy of step 20", poll_s=0.2)
        listed = json.loads(self.run_job("ps", "--json")[1].stdout)
        self.assertEqual(20, listed[0]["copied_step"])
        _, doctor = self.run_job("doctor", "--launcher", "local")
        self.assertRegex(doctor.stdout, r"(?m)running job: \S+, step \d+/60, copy in memory: step 20, \d+ s ago$")
        _, metrics = self.run_job("ps", "--openmetrics")
        self.assertEqual(["20"] * 4, re.findall(r"(?m)^dslaunch_rank_memory_copy_step\{.* (\d+)$", metrics.stdout))
        ages = re.findall(r"(?m)^dslaunch_rank_memory_copy_age_seconds\{.* ([\d.]+)$", metrics.stdout)
        self.assertEqual(4, len(ages))
        self.assertTrue(all(0 <= float(age) < 60 for age in ages), ages)
        _, report = self.run_job("report", "last", "--output", self.folder / "report.html")
        tile, = (tile for tile in report_document(self.folder / "report.html")["tiles"] if tile["label"] == "Copy in memory")
        self.assertEqual("step 20", tile["value"], report.output)
        self.assertRegex(tile["note"], r"^[\d.]+ m?s before this report$")
        # The next attempt continues from the copy, which still exists.
        os.kill(next(process.pid for process in self.leftovers() if b"LOCAL_RANK=1" in self.environment_of(process.pid)),
                signal.SIGKILL)
        self.wait_for_output(job, "the ranks continue after step 20, from copies in memory; 2 steps are repeated")
        self.assertTrue(described())
        job.signal(signal.SIGTERM)
        self.wait(job)

    def test_damaged_copy_is_reported_and_not_used(self):
        job = self.start_loop("--max_restarts", "1", "--show", "all", kills=["1.0.40.wait", "1.1.40.wait"],
                              ranks=["--launcher", "local", "--num_gpus", "2"])
        self.wait_for_files(job, "at.1.*.40", 2)
        rank = next(process for process in self.leftovers() if "loop.py" in process.name or "python" in process.name)
        damaged = False
        for entry in pathlib.Path(f"/proc/{rank.pid}/fd").iterdir():
            if MEMORY_NAME not in os.readlink(entry):
                continue
            with open(entry, "r+b", buffering=0) as memory:
                header = os.pread(memory.fileno(), 24, 0)
                if int.from_bytes(header[16:24], "little") != 40:
                    continue
                byte = os.pread(memory.fileno(), 1, 4500)
                os.pwrite(memory.fileno(), bytes([byte[0] ^ 1]), 4500)
                damaged = True
                break  # a mapping has a descriptor of its own
        self.assertTrue(damaged)
        os.kill(rank.pid, signal.SIGKILL)
        code = self.wait(job)
        self.assert_code(0, code, job)
        self.assertIn("the copy of step 40 in memory is damaged", job.output)
        self.assertEqual(35, self.begins(job, 2))
        self.assert_right_end(ranks=2)

    def test_replaced_node_has_no_copies(self):
        hostfile = self.folder / "hosts"
        hostfile.write_text("one slots=1\ntwo slots=1\nthree slots=1\n")
        job = self.start_loop("--hostfile", hostfile, "--nnodes", "2:2", "--max_restarts", "1", "--show", "all",
                              "--heartbeat_s", "0.2", "--suspect_s", "0.6", "--dead_s", "2", kills=["1.0.20.wait", "1.1.20.wait"],
                              ranks=["--launcher", "local", "--num_gpus", "1"])
        self.wait_for_files(job, "at.1.*.20", 2)
        supervisors, agents = supervisors_and_agents(self.leftovers())
        rank = next(process for process in self.leftovers() if b"\0RANK=1\0" in b"\0" + self.environment_of(process.pid))
        agent = next(process for process in agents if process.ppid == rank.ppid)
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(0, self.wait(job), job)
        self.assertEqual(0, self.begins(job, 2))
        self.assertIn("no copy in memory to continue from: rank 1 has none", job.output)
        self.assert_right_end(ranks=2)

    @staticmethod
    def environment_of(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return b""

    def test_memory_is_freed_whatever_is_killed(self):
        for name in ("rank", "supervisor", "agent", "front end"):
            with self.subTest(killed=name):
                for path in self.folder.glob("at.*"):
                    path.unlink()
                job = self.start_loop("--show", "none", kills=[f"1.{rank}.20.wait" for rank in range(4)])
                self.wait_for_files(job, "at.1.*.20", 4)
                ours = {process.pid for process in self.leftovers()}
                self.assertTrue(ours & holders_of_memory())
                supervisors, agents = supervisors_and_agents(self.leftovers())
                rank = next(process.pid for process in self.leftovers() if b"LOCAL_RANK=1" in self.environment_of(process.pid))
                victim = {"rank": rank, "supervisor": supervisors[0].pid, "agent": agents[0].pid, "front end": job.pid}[name]
                os.kill(victim, signal.SIGKILL)
                code = self.wait(job)
                self.assert_code({"rank": 137, "front end": 137}.get(name, 69), code, job)
                self.assert_nothing_left(within_s=10)
                self.assertFalse(ours & holders_of_memory())

    def test_other_users_cannot_open_memory(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become another user")
        job = self.start_loop("--show", "none", ranks=["--launcher", "local", "--num_gpus", "1"], kills=["1.0.20.wait"])
        self.wait_for_files(job, "at.1.0.20", 1)
        for pid in {process.pid for process in self.leftovers()} & holders_of_memory():
            opened = subprocess.run(["bash", "-c", f"for f in /proc/{pid}/fd/*; do cat < $f && echo opened; done"], user=65534,
                                    group=65534, extra_groups=[], capture_output=True, text=True, timeout=20,
                                    stdin=subprocess.DEVNULL)
            self.assertNotIn("opened", opened.stdout)
        job.signal(signal.SIGTERM)
        self.wait(job)

    def test_without_option_nothing_is_copied(self):
        program = self.folder / "loop.py"
        program.write_text("import dslaunch, os\nr = dslaunch.Reporter()\n"
                           "print(r.save_in_memory(5, b'x'), r.load_from_memory(), 'DSLAUNCH_MEMORY_FDS' in os.environ)")
        code, job = self.run_job("--launcher", "local", "--num_gpus", "1", "--env", f"PYTHONPATH={MODULE}", sys.executable, program)
        self.assert_code(0, code, job)
        self.assertIn("False None False", job.stdout)


if __name__ == "__main__":
    main()
