"""Tests ranks that a program starts by Spawn, and process groups that end in every way in which a program may end."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from free_ports import held_port  # noqa: E402

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

    def test_ranks_exchange_values(self):
        for ranks in 1, 2, 4:
            self.check_sums(run("forked", ranks), ranks)

    def test_spawn_with_running_threads_restarts_program(self):
        self.check_sums(run("anew", 2), 2)
        self.check_sums(run("group_first", 2), 2)

    def test_ranks_run_their_own_spawn_call(self):
        ended = run("twice", 2)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(sorted(ended.stdout.split("\n")[:-1]), ["end", "first 0", "first 1", "second 0", "second 1"])

    def test_backward_works_before_and_in_ranks(self):
        ended = run("backward", 2)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_exception_in_a_rank_ends_the_others(self):
        for how in "throw", "throw_anew":
            ended = run(how, 3)
            self.assertEqual(ended.returncode, 1)
            self.assertEqual(ended.stderr, "dslaunch-spawn-program: rank 1: out of sorts\n"
                             "main: rank 1 ended with exit code 1; its error message is on stderr\n")

    def test_reports_signal_that_killed_a_rank(self):
        ended = run("kill", 3)
        self.assertEqual(ended.returncode, 137)
        self.assertEqual(ended.stderr.splitlines()[-1], "main: rank 1 was killed by SIGKILL")

    def test_kills_rank_that_ignores_sigterm(self):
        ended = run("stubborn", 2)
        self.assertEqual(ended.returncode, 7)
        self.assertIn("main: rank 0 ended with exit code 7", ended.stderr)

    def test_no_rank_outlives_killed_parent(self):
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

    def test_fails_if_rank_does_not_reach_spawn(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = run("other_way", 2, folder + "/was_here")
        self.assertEqual(ended.returncode, 64)
        self.assertRegex(ended.stderr, r"^main: rank \d ended before its Spawn call: .*\n$")

    def test_rejects_spawn_in_rank_of_launcher(self):
        ended = run("forked", 2, WORLD_SIZE="2", RANK="0")
        self.assertEqual(ended.returncode, 64)
        self.assertIn("a rank already (WORLD_SIZE=2)", ended.stderr)
        ended = run("nested", 2)
        self.assertEqual(ended.returncode, 64)
        self.assertIn("a rank already (WORLD_SIZE=2)", ended.stderr)

    def test_rejects_zero_ranks(self):
        self.assertEqual(run("none", 0).returncode, 64)


def run_ranks(what, world=2, meanwhile=lambda started: None, status_fd=None):
    """Starts ranks as a launcher does. Returns the exit code, stdout and stderr of each."""
    holder, port = held_port()
    with holder:
        status = {} if status_fd is None else {"DSLAUNCH_STATUS_FD": str(status_fd)}
        started = [subprocess.Popen(
            [PROGRAM, what, str(world)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            pass_fds=[] if status_fd is None else [status_fd], text=True, env=dict(
                clean_environment(), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE=str(world), GROUP_RANK="0", GROUP_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **status))
            for rank in range(world)]
        try:
            meanwhile(started)
            output = [process.communicate(timeout=TIMEOUT_S) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    return [(process.returncode, out, err) for process, (out, err) in zip(started, output)]


class MainTest(unittest.TestCase):
    """Tests of dslaunch::Main, StopRequested and Reporter."""

    def test_main_prints_error_on_one_line(self):
        def end_rank_0(started):
            started[1].wait(TIMEOUT_S)
            started[0].kill()

        _, (code, out, err) = run_ranks("main_fails", meanwhile=end_rank_0)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^dslaunch-spawn-program: rank 1: mat1 and mat2 shapes cannot be multiplied .*\n$")

    def test_main_returns_exit_code_of_error(self):
        ended = run("main_refuses", 1)
        self.assertEqual((ended.returncode, ended.stdout), (65, ""))
        self.assertRegex(ended.stderr, r"^dslaunch-spawn-program: rank 0: the data is [ -~]*wrong\n$")
        ended = run("main_ends", 1)
        self.assertEqual((0, "end\n", ""), (ended.returncode, ended.stdout, ended.stderr))

    def test_all_ranks_stop_at_same_step_on_signal(self):
        for number in signal.SIGTERM, signal.SIGINT:
            def ask_rank_1(started, number=number):
                for process in started:
                    self.assertEqual("runs\n", process.stdout.readline())
                started[1].send_signal(number)

            with tempfile.TemporaryFile("w+") as status:
                ended = run_ranks("main_stops", meanwhile=ask_rank_1, status_fd=status.fileno())
                status.seek(0)
                lines = [json.loads(line) for line in status]
            self.assertEqual([(85, "")] * 2, [(code, err) for code, _, err in ended])
            self.assertEqual(1, len({out for _, out, _ in ended}), ended)
            step = int(re.fullmatch(r"saved after step (\d+)\n", ended[0][1])[1])
            self.assertEqual({"ready", "step", "eval"}, {line["event"] for line in lines})
            self.assertIn({"event": "eval", "step": step, "accuracy": 0.25}, lines)
            self.assertEqual({0.5}, {line["loss"] for line in lines if line["event"] == "step"})


class ProcessGroupEndTest(unittest.TestCase):
    """Tests that two ranks exit at once and without a message, although they do not call Finish()."""

    def test_succeeds_however_group_is_destroyed(self):
        for what in "destructor", "leaked", "static", "exit":
            for code, _, err in run_ranks(what):
                self.assertEqual((code, err), (0, ""), what)

    def test_exception_does_not_wait_for_other_ranks(self):
        (code0, out0, err0), (code1, out1, err1) = run_ranks("caught")
        self.assertEqual((code1, out1, err1), (3, "caught: enough\n", ""))
        self.assertEqual((code0, err0), (3, ""))
        self.assertEqual(out0, "caught: shared memory of the ranks: rank 1 has ended\n")


if __name__ == "__main__":
    unittest.main()
