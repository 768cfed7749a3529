"""Tests signals to the front end, and SIGKILL for each of dslaunch's own processes."""

import fcntl
import os
import pty
import signal
import sys
import time
from unittest import mock

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import (DSLAUNCH, MARK, TWO_BY_TWO, LauncherCase, bash, supervisors_and_agents,  # noqa: E402
                           main)
from test_hosts import wait_until  # noqa: E402

HEEDS_TERM = """trap 'touch "$FOLDER/term.$RANK"; exit 0' TERM
                trap 'echo >> "$FOLDER/int.$RANK"; exit 0' INT; touch "$FOLDER/up.$RANK"
                while :; do sleep 0.05; done"""
IGNORES_TERM = """trap '' TERM INT HUP; touch "$FOLDER/up.$RANK"; while :; do sleep 0.05; done"""
# Starts a child in its own session, which signals to the process group do not reach.
WITH_GRANDCHILD = "setsid sleep 300 </dev/null >/dev/null 2>&1 & " + HEEDS_TERM


SOON_S = 20  # enough on a busy machine, and less than the grace of 30 s before SIGKILL


class SignalCase(LauncherCase):
    def start_ranks(self, script, *options, grace_s=30):
        job = self.start(TWO_BY_TWO, "--grace", grace_s, *options, bash(script), env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.*", 4)
        return job

    def assert_all_got_signal(self, by="term"):
        self.assertEqual(4, len(list(self.folder.glob(f"{by}.*"))), "not every rank got the signal")


class Signals(SignalCase):
    def test_ctrl_c_ends_ranks_and_exits_130(self):
        job = self.start_ranks(HEEDS_TERM)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, SOON_S), job)
        self.assert_all_got_signal("int")
        self.assert_nothing_left()

    def test_programs_that_catch_ctrl_c_can_save(self):
        (self.folder / "train.py").write_text("""import os, time
try:
    open(os.environ["FOLDER"] + "/up." + os.environ["RANK"], "w")
    time.sleep(60)
except KeyboardInterrupt:
    open(os.environ["FOLDER"] + "/saved." + os.environ["RANK"], "w")
""")
        job = self.start(TWO_BY_TWO, "python3", self.folder / "train.py", env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 15), job)
        self.assert_all_got_signal("saved")

    def test_sigterm_follows_sigint_unless_chosen(self):
        # The ranks get one SIGINT and then SIGTERM, or the signal that the user chooses.
        ignores_int = HEEDS_TERM.replace("; exit 0' INT", "' INT")
        job = self.start_ranks(ignores_int, grace_s=2)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 15), job)
        self.assert_all_got_signal("term")
        self.assertEqual(["\n"] * 4, [path.read_text() for path in self.folder.glob("int.*")])
        for path in [*self.folder.glob("*.[0-3]")]:
            path.unlink()
        job = self.start_ranks(HEEDS_TERM, "--stop_signal", "SIGTERM")
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 15), job)
        self.assert_all_got_signal("term")
        self.assertEqual([], list(self.folder.glob("int.*")))

    def test_job_that_saved_exits_85(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                for path in self.folder.glob("up.*"):
                    path.unlink()
                job = self.start_ranks("""trap 'sleep 0.1; exit 85' INT TERM; touch "$FOLDER/up.$RANK"
                                          while :; do sleep 0.05; done""")
                job.signal(number)
                self.assert_code(85, self.wait(job, 15), job)
                self.assert_prints(job, rf"stopped on request \({signal.Signals(number).name}\)", "start the job again")
                self.assertNotIn("exited with code", job.stderr)

    def test_sigterm_ends_ranks_and_exits_143(self):
        job = self.start_ranks(HEEDS_TERM)
        job.signal(signal.SIGTERM)
        self.assert_code(143, self.wait(job, SOON_S), job)
        self.assert_all_got_signal()
        self.assert_nothing_left()

    def test_signals_of_batch_systems_let_ranks_save(self):
        for number in (signal.SIGXCPU,):
            with self.subTest(signal=number):
                for path in self.folder.glob("*.[0-3]"):
                    path.unlink()
                job = self.start_ranks(HEEDS_TERM.replace("; exit 0' TERM", "; sleep 0.2; touch \"$FOLDER/saved.$RANK\"; exit 0' TERM"))
                job.signal(number)
                self.assert_code(128 + number, self.wait(job, SOON_S), job)
                self.assert_all_got_signal("saved")
                self.assert_nothing_left()

    def test_user_signals_during_stop_keep_exit_code(self):
        job = self.start_ranks("""trap 'touch "$FOLDER/term.$RANK"; sleep 0.5; exit 0' TERM; trap : USR1; touch "$FOLDER/up.$RANK"
                                  while :; do sleep 0.05; done""")
        job.signal(signal.SIGTERM)
        while job.running():
            job.signal(signal.SIGUSR1)
            time.sleep(0.02)
        self.assert_code(143, self.wait(job, SOON_S), job)

    def test_sighup_ends_ranks_and_exits_129(self):
        job = self.start_ranks(HEEDS_TERM)
        job.signal(signal.SIGHUP)
        self.assert_code(129, self.wait(job, SOON_S), job)
        self.assert_all_got_signal()
        self.assert_nothing_left()

    def test_signal_ignored_at_start_stays_ignored(self):
        script = 'touch "$FOLDER/up.$RANK"; until [ -e "$FOLDER/go" ]; do sleep 0.05; done'
        job = self.start_ignoring("HUP", TWO_BY_TWO, bash(script), env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGHUP)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job), job)
        self.assert_nothing_left()

    def test_ctrl_c_ends_job_with_stalled_reader(self):
        # The ranks continue to write, because their files are the buffer. Their node's reports wait behind their
        # output.
        script = 'yes | head -c 10000000; : > "$FOLDER/up.$RANK"; exec sleep 300'
        unread, stdout = os.pipe()
        self.addCleanup(os.close, unread)
        popen = self.popen
        self.popen = lambda argv, env, cwd, **files: popen(argv, env, cwd, **{**files, "stdout": stdout})
        job = self.start_ranks(script, "--show", "all")
        os.close(stdout)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, 40), job)
        self.assertNotIn("lost", job.stderr)
        self.assert_prints(job, "this output is no longer read")
        self.assert_nothing_left()

    def test_ctrl_c_after_a_failure_keeps_its_code(self):
        """A stalled reader has not read the last output. The exit code must not be death by the signal, which salloc
        treats as success."""
        for code, seen in ((7, 7), (0, 130)):
            unread, stdout = os.pipe()
            self.addCleanup(os.close, unread)
            fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, 4096)
            with open(stdout, "wb"), mock.patch.object(self, "popen", lambda *args, popen=self.popen, **files: popen(
                    *args, **{**files, "stdout": stdout})):
                # The first failed rank ends the others, so each rank waits until all have written.
                script = ('seq 5000; : > "$FOLDER/wrote.$0.$RANK"; '
                          'until [ -e "$FOLDER/wrote.$0.3" -a -e "$FOLDER/wrote.$0.2" -a -e "$FOLDER/wrote.$0.1" '
                          '-a -e "$FOLDER/wrote.$0.0" ]; do sleep 0.02; done; exit $0')
                job = self.start(TWO_BY_TWO, bash(script), code, env={"FOLDER": str(self.folder)})
            wait_until(lambda: [process.comm for process in self.leftovers()] == ["dslaunch"], 20)
            time.sleep(0.5)
            self.assertTrue(job.running())
            job.signal(signal.SIGINT)
            self.assert_code(seen, self.wait(job, SOON_S), job)

    def test_ctrl_c_waits_for_the_grace(self):
        job = self.start_ranks(IGNORES_TERM, grace_s=1)
        begin = time.monotonic()
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, SOON_S), job)
        self.assertGreater(time.monotonic() - begin, 0.9)
        self.assert_nothing_left()

    def test_second_ctrl_c_kills_at_once(self):
        job = self.start_ranks(IGNORES_TERM)
        job.signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertTrue(job.running(), job.output)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, SOON_S), job)
        self.assert_nothing_left()

    def test_ctrl_c_before_ranks_are_up_leaves_nothing(self):
        for delay_s in (0.0, 0.01, 0.03, 0.1):
            with self.subTest(delay_s=delay_s):
                job = self.start(TWO_BY_TWO, "sleep", "60")
                time.sleep(delay_s)
                job.signal(signal.SIGINT)
                self.assert_code(130, self.wait(job, SOON_S), job)
                self.assert_nothing_left()

    def test_user_signals_reach_the_ranks(self):
        for name in ("USR1", "USR2"):
            with self.subTest(signal=name):
                for path in self.folder.glob("up.*"):
                    path.unlink()
                job = self.start_ranks(f"""trap 'touch "$FOLDER/{name}.$RANK"; exit 0' {name}
                                           touch "$FOLDER/up.$RANK"; while :; do sleep 0.05; done""")
                job.signal(getattr(signal, "SIG" + name))
                self.assert_code(0, self.wait(job, SOON_S), job)
                self.assertEqual(4, len(list(self.folder.glob(f"{name}.*"))))

    def test_ctrl_c_at_terminal_signals_each_rank_once(self):
        # The terminal signals the whole foreground group, but the ranks must get the signal only from dslaunch.
        script = HEEDS_TERM
        environment = {**self.base_environment(), MARK: self.mark, "FOLDER": str(self.folder), "TERM": "xterm"}
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(DSLAUNCH, [DSLAUNCH, *TWO_BY_TWO, *bash(script)], environment)
        self.addCleanup(os.close, terminal)
        os.set_blocking(terminal, False)
        shown = b""

        def ended():
            nonlocal shown
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                pass
            done, status = os.waitpid(pid, os.WNOHANG)
            return (os.waitstatus_to_exitcode(status),) if done else None
        wait_until(lambda: ended() or len(list(self.folder.glob("up.*"))) == 4, 20, "ranks up")
        os.write(terminal, b"\x03")
        code, = wait_until(ended, SOON_S, "end after Ctrl-C")
        self.assertEqual(130, code, shown.decode(errors="replace"))
        self.assert_all_got_signal("int")
        self.assertEqual(["\n"] * 4, [path.read_text() for path in self.folder.glob("int.*")])
        self.last_job = None
        wait_until(lambda: not self.leftovers(), 5, "nothing left")

    def test_job_survives_a_stopped_front_end(self):
        job = self.start_ranks(HEEDS_TERM)
        job.signal(signal.SIGSTOP)
        time.sleep(2)
        job.signal(signal.SIGCONT)
        time.sleep(1)
        self.assertTrue(job.running(), job.output)
        job.signal(signal.SIGINT)
        self.assert_code(130, self.wait(job, SOON_S), job)
        self.assert_nothing_left()


class SuddenDeath(SignalCase):
    """Tests SIGKILL for dslaunch's own processes."""

    def own_processes(self, count=2):
        # A forked process looks like its parent until its exec, so this polls.
        def as_many():
            supervisors, agents = supervisors_and_agents(self.leftovers())
            return (supervisors, agents) if len(supervisors) == len(agents) == count else None
        return wait_until(as_many, 5, f"{count} supervisors with an agent each")

    def test_kill_of_front_end_stops_ranks(self):
        job = self.start_ranks(WITH_GRANDCHILD)
        job.signal(signal.SIGKILL)
        self.wait(job, SOON_S)
        self.assert_nothing_left(5, since=job.ended_at)
        self.assert_all_got_signal()

    def test_kill_of_front_end_stops_deaf_ranks(self):
        job = self.start_ranks(IGNORES_TERM, grace_s=1)
        job.signal(signal.SIGKILL)
        self.wait(job, SOON_S)
        self.assert_nothing_left(1 + 5, since=job.ended_at)

    def test_kill_of_agent_loses_node(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                for path in self.folder.glob("up.*"):
                    path.unlink()
                job = self.start_ranks(WITH_GRANDCHILD)
                _, agents = self.own_processes()
                begin = time.time()
                os.kill(agents[victim].pid, signal.SIGKILL)
                self.assert_code(69, self.wait(job, 10), job)
                self.assert_presentable(job)
                self.assert_nothing_left(5, since=begin)

    def test_kill_of_supervisor_loses_node(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                for path in self.folder.glob("up.*"):
                    path.unlink()
                job = self.start_ranks(WITH_GRANDCHILD)
                supervisors, _ = self.own_processes()
                begin = time.time()
                os.kill(supervisors[victim].pid, signal.SIGKILL)
                self.assert_code(69, self.wait(job, 10), job)
                self.assert_presentable(job)
                self.assert_nothing_left(5, since=begin)

    def test_kill_of_whole_node_leaves_no_process(self):
        # The ranks end by their parent-death signal, and processes that ranks started by the supervisor's watchdog.
        job = self.start_ranks(WITH_GRANDCHILD)
        supervisors, agents = self.own_processes()
        node = supervisors[1]
        agent, = [agent for agent in agents if agent.ppid == node.pid]
        begin = time.time()
        os.kill(agent.pid, signal.SIGSTOP)
        os.kill(node.pid, signal.SIGKILL)
        os.kill(agent.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job, 15), job)
        self.assert_nothing_left(5, since=begin)

    def test_stopped_agent_counts_as_lost_node(self):
        job = self.start_ranks(HEEDS_TERM)
        _, agents = self.own_processes()
        begin = time.time()
        os.kill(agents[1].pid, signal.SIGSTOP)
        self.assert_code(69, self.wait(job, 20), job)
        self.assertLess(time.time() - begin, 15)
        self.assert_nothing_left(5)


if __name__ == "__main__":
    main()
