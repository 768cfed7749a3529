"""Compares the Python stacks that agent/stacks reads from outside with those of py-spy, and tests how jobs show
them. With DSLAUNCH_TEST_FULL=1, tests each CPython of pyenv and more programs; otherwise only this machine's CPython
and the oracle's."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = __file__.rsplit("/", 2)[0]
sys.path[:0] = [TESTS + "/support", TESTS + "/stacks"]
from launcher_case import BUILD, ROOT, TWO_BY_TWO, LauncherCase, main, supervisors_and_agents  # noqa: E402
from python_programs import write_program  # noqa: E402
from test_hosts import wait_until  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
ORACLE = ROOT / ".deps" / "oracle" / "bin"
PY_SPY = ORACLE / "py-spy"
READ_STACKS = BUILD / "tests" / "read_stacks"
PROGRAMS = 40 if FULL else 3


def interpreters():
    """Returns the paths of the interpreters to test, by version."""
    found = {}
    candidates = [pathlib.Path(sys.executable), ORACLE / "python3", pathlib.Path("/usr/bin/python3")]
    if FULL:
        candidates += sorted(pathlib.Path("/root/.pyenv/versions").glob("3.*/bin/python3"))
    for path in candidates:
        if not path.exists():
            continue
        version = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:3], sep='.'); print(sys.base_prefix)"],
                                 capture_output=True, text=True, check=True).stdout
        if (3, 8) <= tuple(map(int, version.split("\n")[0].split(".")[:2])) <= (3, 14):
            found.setdefault(version, path)
    return {version.replace("\n", " "): path for version, path in found.items()}


class StacksTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, python, text, lines, name="program.py"):
        """Starts a program and waits until it has printed `lines` lines. Returns the process."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        process = subprocess.Popen([python, path], stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for _ in range(lines):
            self.assertEqual(b"waits\n", process.stdout.readline())
        return process

    def look(self, process, looks=1):
        answer = subprocess.run([READ_STACKS, str(process.pid), str(looks)], capture_output=True, text=True, timeout=60)
        self.assertEqual(0, answer.returncode, answer.stderr)
        return json.loads(answer.stdout)

    def py_spy(self, process):
        """Returns the sorted frames of all threads, as py-spy reads them."""
        answer = subprocess.run([PY_SPY, "dump", "--json", "-p", str(process.pid)], capture_output=True, text=True,
                                timeout=60)
        self.assertEqual(0, answer.returncode, answer.stderr)
        threads = json.loads(answer.stdout)
        return sorted([[frame["name"], frame["filename"], frame["line"]] for frame in thread["frames"]]
                      for thread in threads)

    def compare(self, python, text, threads):
        process = self.start(python, text, threads)
        expected = None
        for _ in range(50):  # repeats until the last thread is in its last wait
            expected, before = self.py_spy(process), expected
            if expected == before:
                break
            time.sleep(0.02)
        seen = self.look(process)
        self.assertFalse(seen["torn"] or seen["cut"], seen)
        self.assertEqual(threads, len(expected))
        self.assertEqual(expected, sorted(thread["frames"] for thread in seen["threads"] if thread["frames"]))
        for thread in seen["threads"]:
            if thread["frames"]:
                self.assertGreater(thread["tid"], 0, "each thread has an id")
        self.assertEqual("<module>", seen["threads"][0]["frames"][-1][0], "the main thread is the first")
        return sum(map(len, expected))

    def test_frames_equal_frames_of_py_spy(self):
        seed = int(os.environ.get("DSLAUNCH_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"seed {seed}", flush=True)
        for version, python in interpreters().items():
            chance = random.Random(seed)
            frames = 0
            for number in range(PROGRAMS):
                text = write_program(chance, threads=chance.randint(1, 6), longest=8)
                with self.subTest(version=version, number=number, seed=seed):
                    frames += self.compare(python, text, text.count("os.write(1"))
            print(f"{version}: {PROGRAMS} programs, {frames} frames", flush=True)

    def test_reads_200_nested_calls(self):
        text = ("import os, sys, time\nsys.setrecursionlimit(5000)\n\n"
                "def down(depth):\n    if depth:\n        return down(depth - 1)\n"
                "    os.write(1, b'waits\\n')\n    time.sleep(1000)\n\n\ndown(200)\n")
        for version, python in interpreters().items():
            with self.subTest(version=version):
                self.assertEqual(202, self.compare(python, text, 1))

    def test_bounds_deep_stacks(self):
        text = ("import os, sys, time\nsys.setrecursionlimit(50000)\n\n"
                "def down(depth):\n    if depth:\n        return down(depth - 1)\n"
                "    os.write(1, b'waits\\n')\n    time.sleep(1000)\n\n\ndown(900)\n")
        for version, python in interpreters().items():
            with self.subTest(version=version):
                process = self.start(python, text, 1)
                seen = self.look(process)
                self.assertEqual((256, True), (len(seen["threads"][0]["frames"]), seen["cut"]))

    def test_reads_process_in_c_and_stopped(self):
        for version, python in interpreters().items():
            with self.subTest(version=version):
                text = "import os, re\nos.write(1, b'waits\\n')\nre.match(r'(a+)+$', 'a' * 40 + 'b')\n"
                process = self.start(python, text, 1)
                wait_until(lambda: self.look(process)["threads"][0]["frames"][0][2] > 2, 20)
                seen = self.look(process)["threads"][0]
                self.assertTrue(seen["has_gil"])
                self.assertEqual("R", seen["state"])
                os.kill(process.pid, signal.SIGSTOP)
                wait_until(lambda: self.look(process)["threads"][0]["state"] == "T", 20)
                self.assertEqual(seen["frames"], self.look(process)["threads"][0]["frames"])

    def test_busy_process_shows_no_wrong_name(self):
        text = ("import os, threading\nos.write(1, b'waits\\n')\n"
                "def leaf(n): return n\n"
                "def recursive(n): return leaf(n) if n == 0 else recursive(n - 1)\n"
                "def generator(n): yield recursive(n % 7)\n"
                "def spin():\n"
                "    while True:\n"
                "        for n in range(20): list(generator(n))\n"
                "def churn():\n"
                "    while True:\n"
                "        thread = threading.Thread(target=recursive, args=(3,)); thread.start(); thread.join()\n"
                "threading.Thread(target=churn, daemon=True).start()\n"
                "spin()\n")
        looks = 1000 if FULL else 200
        known = {"leaf", "recursive", "generator", "spin", "churn", "<module>"}
        for version, python in interpreters().items():
            process = self.start(python, text, 1)
            torn = 0
            for _ in range(looks // 50):
                seen = self.look(process, 50)
                torn += seen["torn_looks"]
                for thread in seen["threads"]:
                    for function, file, line in thread["frames"]:
                        if file.endswith("program.py"):
                            self.assertIn(function, known)
                            self.assertLessEqual(line, 13)
                        else:
                            self.assertRegex(file, r"threading\.py$|_weakrefset\.py$|frozen")
            print(f"{version}: {torn} of {looks} looks torn", flush=True)
            self.assertLessEqual(torn, max(1, looks // 100), version)

    def test_names_descriptor_of_read(self):
        fifo = self.folder / "a fifo"
        os.mkfifo(fifo)
        process = self.start(sys.executable, f"import os\nos.write(1, b'waits\\n')\nos.read(os.open({str(fifo)!r}, os.O_RDWR), 1)\n", 1)
        wait_until(lambda: self.look(process)["threads"][0]["call"] == "read", 20)
        self.assertEqual(f"the FIFO {fifo}", self.look(process)["threads"][0]["target"])


# Rank 3 reads an empty FIFO in a child process; the other ranks wait for a lock.
RANKS = """
import multiprocessing
import os
import threading

RANK = int(os.environ["RANK"])
FOLDER = os.path.dirname(os.path.abspath(__file__))


def load_batch(path):
    file = os.open(path, os.O_RDWR)
    open(f"{FOLDER}/up.{RANK}", "w").close()
    return os.read(file, 1)


def all_reduce():
    open(f"{FOLDER}/up.{RANK}", "w").close()
    threading.Event().wait()


def train():
    if RANK == 3:
        child = multiprocessing.get_context("fork").Process(target=load_batch, args=(FOLDER + "/fifo",))
        child.start()
        child.join()
    else:
        all_reduce()


train()
"""


class StacksOfJobTest(LauncherCase):
    def start_ranks(self, *arguments):
        script = self.folder / "train.py"
        script.write_text(RANKS)
        os.mkfifo(self.folder / "fifo")
        job = self.start(TWO_BY_TWO, *arguments, script)
        self.wait_for_files(job, "up.*", 4)
        time.sleep(0.2)  # time for the last rank to wait
        return job

    def stacks(self, *arguments):
        code, job = self.run_job("stacks", *arguments)
        self.assert_code(0, code, job)
        return job

    def test_detached_job_folds_equal_stacks_and_shows_child(self):
        self.start_ranks("--detach")
        text = self.stacks("last").stdout
        self.assertRegex(text, r"(?m)^ranks 0-2$")
        self.assertRegex(text, r"(?m)^rank 3 \(node1\)$")
        self.assertRegex(text, r"(?m)^      all_reduce \(/\S+/train.py:18\)$")
        self.assertRegex(text, r"(?m)^      load_batch \(/\S+/train.py:13\)$")
        self.assertRegex(text, r"in read of the FIFO /\S+/fifo")
        self.assertEqual(1, text.count("all_reduce ("), "equal stacks are listed once")
        one = self.stacks("last", "--rank", "3", "--json")
        answer = json.loads(one.stdout)
        self.assertEqual([3], [rank["rank"] for rank in answer["ranks"]])
        own, child = answer["ranks"][0]["processes"]
        self.assertEqual("train", own["threads"][0]["frames"][-2]["function"])
        self.assertEqual(["load_batch", 13], [child["threads"][0]["frames"][0][name] for name in ("function", "line")])
        self.assertEqual("read", child["threads"][0]["call"])
        code, job = self.run_job("stacks", "last", "--rank", "9")
        self.assertEqual(69, code)
        self.assertIn("rank 9 of job", job.stderr)
        self.assert_code(0, *self.run_job("stop", "last", "--now"))
        code, job = self.run_job("stacks", "last")
        self.assertEqual(69, code)
        self.assertRegex(job.stderr, "has ended")

    def test_sigquit_shows_ranks_and_job_goes_on(self):
        job = self.start_ranks()
        job.signal(signal.SIGQUIT)
        self.wait_for_output(job, r"ranks 0-2: .*all_reduce \(train.py:18\) < train \(train.py:27\)")
        self.assertRegex(job.stderr, r"rank 3 \(node1\): .*train \(train.py:25\)")
        self.assertRegex(self.stacks("last").stdout, r"(?m)^ranks 0-2$", "the job has a front end")
        events = next((self.folder / "state").rglob("events.jsonl")).read_text().splitlines()
        shown = [json.loads(line) for line in events if '"event":"stacks"' in line]
        self.assertEqual([0, 1, 2, 3], [rank["rank"] for rank in shown[0]["ranks"]])
        self.assertTrue(job.running())
        job.signal(signal.SIGTERM)
        self.assert_code(143, self.wait(job), job)
        self.assert_nothing_left()

    def test_many_looks_leave_nothing_stopped(self):
        script = self.folder / "busy.py"
        script.write_text("import os\nopen(os.environ['UP'] + os.environ['RANK'], 'w').close()\n"
                          "def f(n): return n and f(n - 1)\nwhile True: f(50)\n")
        job = self.start("-n", "2", "--detach", script, env={"UP": str(self.folder / "up.")})
        self.wait_for_files(job, "up.*", 2)
        looks = 1000 if FULL else 20
        pids = [entry.pid for entry in self.leftovers() if entry.name.startswith("python")]
        for _ in range(looks // 20):
            watchers = [subprocess.Popen([READ_STACKS, str(pid), "20"], stdout=subprocess.DEVNULL) for pid in pids]
            self.stacks("last")
            for watcher in watchers:
                self.assertEqual(0, watcher.wait(60))
        for pid in pids:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            self.assertNotIn(stat[0], "Tt")
            before = int(stat[11])
            wait_until(lambda: int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11]) > before, 20)
        self.assert_code(0, *self.run_job("stop", "last", "--now"))
        self.assert_nothing_left()

    def test_killed_supervisor_leaves_nothing_stopped(self):
        self.start_ranks("--detach")
        asking = self.start("stacks", "last")
        supervisors, _ = supervisors_and_agents(self.leftovers())
        for supervisor in supervisors:
            os.kill(supervisor.pid, signal.SIGKILL)
        self.wait(asking)
        self.assert_nothing_left(within_s=20)


    def start_busy_program(self):
        """Starts two ranks of a program in C, with threads that run and a thread that waits. Returns their
        processes."""
        (self.folder / "busy.c").write_text(BUSY)
        subprocess.run(["cc", "-g", "-o", "busy", "busy.c", "-lpthread"], cwd=self.folder, check=True, timeout=60)
        job = self.start("-n", "2", "--detach", "--no_python", "./busy", env={"UP": str(self.folder / "up.")}, cwd=str(self.folder))
        self.wait_for_files(job, "up.*", 2)
        return [entry for entry in self.leftovers() if entry.name == "busy"]

    @staticmethod
    def helpers():
        """Returns the pids of processes that read frames."""
        found = []
        for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if comm.read_text() == "dslaunch-frames\n":
                    found.append(int(comm.parent.name))
        return found

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_supervisor_killed_during_native_look(self):
        chance = random.Random(1)
        for _ in range(20 if FULL else 2):
            self.start_busy_program()
            asking = self.start("stacks", "last")
            supervisors, _ = supervisors_and_agents(self.leftovers())
            time.sleep(chance.uniform(0.02, 0.25))
            for supervisor in supervisors:
                with contextlib.suppress(ProcessLookupError):  # the other supervisor has ended the job
                    os.kill(supervisor.pid, signal.SIGKILL)
            self.wait(asking)
            self.assert_nothing_left(within_s=20)
            wait_until(lambda: not self.helpers(), 5)
            for old in self.folder.glob("up.*"):
                old.unlink()

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_killed_helper_leaves_no_thread_stopped(self):
        ranks = self.start_busy_program()
        killed = 0
        for _ in range(200 if FULL else 10):
            asking = self.start("stacks", "last")
            while asking.running():
                for helper in self.helpers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(helper, signal.SIGKILL)
                        killed += 1
            self.assert_code(0, self.wait(asking), asking)
        self.assertGreater(killed, 0)
        for rank in ranks:
            states = [path.read_text().rsplit(")", 1)[1].split()[0] for path in pathlib.Path(f"/proc/{rank.pid}/task").glob("*/stat")]
            self.assertFalse(set(states) & set("Tt"), states)
        self.assert_code(0, *self.run_job("stop", "last", "--now"))
        self.assert_nothing_left()


BUSY = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long counter;
static void* run(void* unused) { for (;;) ++counter; }
static void* wait_here(void* unused) { pause(); return 0; }

int main(void) {
  pthread_t thread;
  char name[4096];
  pthread_create(&thread, 0, run, 0);
  pthread_create(&thread, 0, wait_here, 0);
  snprintf(name, sizeof name, "%s%s", getenv("UP"), getenv("RANK"));
  fclose(fopen(name, "w"));
  run(0);
}
"""


if __name__ == "__main__":
    if not PY_SPY.exists():
        print(f"skipped: {PY_SPY} is missing; packaging/fetch-oracle")
        sys.exit(77)
    main()
