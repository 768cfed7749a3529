"""Ranks that a program starts by Spawn, and process groups that end in every way a program may end."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.path.join(os.environ["DSLAUNCH_BUILD_DIR"], "tests", "dslaunch-spawn-program")
TIMEOUT_S = 60


def clean_environment():
    return {k: v for k, v in os.environ.items()
            if not k.startswith(("DSLAUNCH_", "GLOO_", "TORCH")) and k not in ("RANK", "WORLD_SIZE")}


def run(*arguments, **variables):
    return subprocess.run([PROGRAM, *map(str, arguments)], env=dict(clean_environment(), **variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(") ", 1)[1][0] not in "ZX"
    except FileNotFoundError:
        return False


class SpawnTest(unittest.TestCase):
    def check_sums(self, ended, ranks):
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        lines = sorted(line.split(", parent ") for line in ended.stdout.splitlines())
        self.assertEqual([line[0] for line in lines],
                         ["rank %d of %d: sum %d" % (r, ranks, ranks * (ranks + 1) // 2) for r in range(ranks)])
        self.assertEqual(len({line[1] for line in lines}), 1, "one parent")

    def test_ranks_meet(self):
        for ranks in 1, 2, 4:
            self.check_sums(run("forked", ranks), ranks)

    def test_a_process_with_threads_starts_ranks_anew(self):
        self.check_sums(run("anew", 2), 2)
        self.check_sums(run("group_first", 2), 2)

    def test_the_call_that_ranks_belong_to(self):
        ended = run("twice", 2)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(sorted(ended.stdout.split("\n")[:-1]), ["end", "first 0", "first 1", "second 0", "second 1"])

    def test_backward_before_and_in_ranks(self):
        ended = run("backward", 2)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_an_exception_ends_the_others(self):
        for how in "throw", "throw_anew":
            ended = run(how, 3)
            self.assertEqual(ended.returncode, 1)
            self.assertEqual(ended.stderr, "dslaunch-spawn-program: rank 1: out of sorts\n"
                             "main: rank 1 ended with exit code 1; its error message is on stderr\n")

    def test_a_signal_is_named_though_others_see_it_too(self):
        ended = run("kill", 3)
        self.assertEqual(ended.returncode, 137)
        self.assertEqual(ended.stderr.splitlines()[-1], "main: rank 1 was killed by SIGKILL")

    def test_a_rank_that_ignores_sigterm_is_killed(self):
        ended = run("stubborn", 2)
        self.assertEqual(ended.returncode, 7)
        self.assertIn("main: rank 0 ended with exit code 7", ended.stderr)

    def test_nothing_outlives_a_killed_parent(self):
        for how in "hang", "hang_anew":
            with subprocess.Popen([PROGRAM, how, "2"], env=clean_environment(), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True) as program:
                pids = [int(program.stdout.readline()) for _ in range(2)]
                self.assertTrue(all(map(alive, pids)))
                program.kill()
            deadline = time.monotonic() + TIMEOUT_S
            while any(map(alive, pids)):
                self.assertLess(time.monotonic(), deadline, "ranks are left: %s" % pids)
                time.sleep(0.01)

    def test_a_program_that_takes_another_way_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = run("other_way", 2, folder + "/was_here")
        self.assertEqual(ended.returncode, 64)
        self.assertRegex(ended.stderr, r"^main: rank \d ended before its Spawn call: .*\n$")

    def test_ranks_of_a_launcher_are_ranks_already(self):
        ended = run("forked", 2, WORLD_SIZE="2", RANK="0")
        self.assertEqual(ended.returncode, 64)
        self.assertIn("a rank already (WORLD_SIZE=2)", ended.stderr)
        ended = run("nested", 2)
        self.assertEqual(ended.returncode, 64)
        self.assertIn("a rank already (WORLD_SIZE=2)", ended.stderr)

    def test_no_ranks(self):
        self.assertEqual(run("none", 0).returncode, 64)


class ProcessGroupEndTest(unittest.TestCase):
    """Without Finish(), two ranks end at once and without a word."""

    def ranks(self, what, world=2):
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            started = [subprocess.Popen(
                [PROGRAM, what, str(world)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=dict(
                    clean_environment(), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                    LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(holder.getsockname()[1]),
                    GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")) for rank in range(world)]
            try:
                output = [process.communicate(timeout=TIMEOUT_S) for process in started]
            finally:
                for process in started:
                    process.kill()
                    process.wait()
        return [(process.returncode, out, err) for process, (out, err) in zip(started, output)]

    def test_every_normal_end(self):
        for what in "destructor", "leaked", "static", "exit":
            for code, _, err in self.ranks(what):
                self.assertEqual((code, err), (0, ""), what)

    def test_an_exception_does_not_wait_for_others(self):
        (code0, out0, err0), (code1, out1, err1) = self.ranks("caught")
        self.assertEqual((code1, out1, err1), (3, "caught: enough\n", ""))
        self.assertEqual((code0, err0), (3, ""))
        self.assertEqual(out0, "caught: shared memory of the ranks: rank 1 has ended\n")


if __name__ == "__main__":
    unittest.main()
