"""Tests how a job ends when its ranks end: its exit code, its time, its summary, and that no process is left."""

import json
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main, seconds_since_written  # noqa: E402


LOOP = "while :; do sleep 0.05; done"


class Exits(LauncherCase):
    def fail_on_rank(self, rank, how, first="", others="exec sleep 60", options=(), timeout_s=30):
        """Runs `first` in all ranks. When all are up, rank `rank` runs `how` and the other ranks run `others`.
        Returns (exit code, Job, seconds from the failure to dslaunch's end)."""
        script = f"""
            {first}
            touch "$FOLDER/up.$RANK"
            until [ -e "$FOLDER/go" ]; do sleep 0.02; done
            if [ "$RANK" = {rank} ]; then touch "$FOLDER/failed"; {how}; fi
            {others}"""
        job = self.start(TWO_BY_TWO, *options, bash(script), env={"FOLDER": str(self.folder)})
        self.wait_for_files(job, "up.*", 4)
        (self.folder / "go").touch()
        code = self.wait(job, timeout_s)
        return code, job, seconds_since_written(self.folder / "failed", job.ended_at)

    def test_job_succeeds_when_all_ranks_do(self):
        code, job = self.run_job(TWO_BY_TWO, "true")
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def test_exit_code_of_a_rank_ends_job_within_2_s(self):
        code, job, took_s = self.fail_on_rank(3, "exit 7")
        self.assert_code(7, code, job)
        self.assertLess(took_s, 2, job.output)
        self.assert_prints(job, r"rank 3\b", r"\b7\b")
        self.assert_nothing_left()

    def test_failure_of_rank_0_is_the_cause(self):
        code, job, took_s = self.fail_on_rank(0, "exit 255")
        self.assert_code(255, code, job)
        self.assertLess(took_s, 2, job.output)
        self.assert_prints(job, r"rank 0\b", r"\b255\b")
        self.assert_nothing_left()

    def test_first_cause_counts_before_its_effects(self):
        code, job, _ = self.fail_on_rank(2, "exit 3", first="trap 'exit 5' TERM", others=LOOP)
        self.assert_code(3, code, job)
        self.assert_prints(job, r"rank 2\b")
        self.assert_nothing_left()

    def test_killed_rank_is_cause_if_victim_ended_first(self):
        # A large process may take longer to die than its peers take to detect that its connections are closed.
        code, job, _ = self.fail_on_rank(2, "echo 'gloo: Connection reset by peer' >&2; exit 69", others=LOOP,
                                         first="""[ "$RANK" != 3 ] || trap 'kill -KILL $$' TERM""")
        self.assert_code(137, code, job)
        self.assert_prints(job, r"rank 3\b", "SIGKILL", "rank 2 failed because of it")
        self.assert_nothing_left()

    def test_timeout_names_ranks_that_still_run(self):
        raised = """printf 'Traceback (most recent call last):\\n  File "t.py", line 1\\n%s\\n' \\
            'torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 1/2 clients joined.' >&2
            exit 1"""
        code, job, _ = self.fail_on_rank(0, raised, others="[ $RANK != 3 ] || exit 0; exec sleep 60")
        self.assert_code(1, code, job)
        self.assert_prints(job, r"rank 0 .* exited with code 1", "1/2 clients joined",
                           r"rank 1 \(.*, pid \d+\) was still running when rank 0 failed",
                           r"thread sleep: asleep",
                           "it timed out waiting for another rank, and no rank left an error of its own; "
                           "ranks 1-2 were still running")
        self.assertNotIn("effect of another rank's end", job.output)
        self.assertNotIn("rank 3 (", job.output)
        self.assert_nothing_left()

    def test_unreachable_address_is_a_cause_not_an_effect(self):
        error = ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
                 "(10.255.255.1, 29601).")
        code, job = self.run_job(TWO_BY_TWO, "--json", bash(
            f"printf 'Traceback (most recent call last):\\n  File \"t.py\"\\n%s\\n' '{error}' >&2; exit 1"))
        self.assert_code(1, code, job)
        self.assertFalse(json.loads(job.stdout.splitlines()[-1])["cause"]["victim"], job.output)
        self.assertNotIn("another rank", job.stderr)
        self.assert_nothing_left()

    def test_reports_the_signal_that_killed_a_rank(self):
        for name, code_expected in (("SIGKILL", 137), ("SIGSEGV", 139), ("SIGABRT", 134), ("SIGTERM", 143)):
            with self.subTest(signal=name):
                for path in self.folder.iterdir():
                    if path.is_file():
                        path.unlink()
                code, job, took_s = self.fail_on_rank(1, f"ulimit -c 0; kill -{name[3:]} $$")
                self.assert_code(code_expected, code, job)
                self.assertLess(took_s, 2, job.output)
                self.assert_prints(job, r"rank 1\b", name)
                self.assert_nothing_left()

    def test_other_ranks_get_sigterm_before_sigkill(self):
        code, job, _ = self.fail_on_rank(
            1, "exit 9", first="""trap 'sleep 0.3; touch "$FOLDER/tidy.$RANK"; exit 0' TERM""", others=LOOP)
        self.assert_code(9, code, job)
        self.assertEqual({"tidy.0", "tidy.2", "tidy.3"}, {path.name for path in self.folder.glob("tidy.*")})
        self.assert_nothing_left()

    def test_kills_rank_that_ignores_sigterm_after_grace(self):
        code, job, took_s = self.fail_on_rank(1, "exit 9", options=["--grace", "1"],
                                              first="trap '' TERM", others=LOOP)
        self.assert_code(9, code, job)
        self.assertGreater(took_s, 0.9)
        self.assertLess(took_s, 1 + 2.5)
        self.assert_nothing_left()

    def test_shows_last_lines_of_failed_rank(self):
        code, job, _ = self.fail_on_rank(3, "echo it was the disk >&2; exit 4")
        self.assert_code(4, code, job)
        self.assert_prints(job, "it was the disk")

    def test_does_not_repeat_a_shown_traceback(self):
        script = self.folder / "fail.py"
        script.write_text("def train():\n    raise ValueError('no such layer')\ntrain()\n")
        for shown, traces in ((["--show", "all"], 1), (["--show", "none"], 1)):
            code, job = self.run_job("-n", "1", *shown, script)
            self.assert_code(1, code, job)
            self.assertEqual(traces, job.stderr.count("Traceback"), job.stderr)
            self.assert_prints(job, r"exited with code 1 after .*(\n.*)*ValueError: no such layer(.*\n)*  its log: ")

    def test_ranks_may_finish_at_different_times(self):
        code, job = self.run_job(TWO_BY_TWO, "--show", "all",
                                 bash('[ "$RANK" != 1 ] || sleep 2; echo "end of $RANK"'))
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assert_prints(job, f"end of {rank}")

    def test_late_failure_counts_after_other_successes(self):
        code, job = self.run_job(TWO_BY_TWO, bash('[ "$RANK" != 2 ] || { sleep 1; exit 6; }'))
        self.assert_code(6, code, job)
        self.assert_prints(job, r"rank 2\b")
        self.assert_nothing_left()

    def test_daemon_of_a_rank_ends_with_the_job(self):
        # A daemon has its own session, and its parent has exited.
        code, job = self.run_job(TWO_BY_TWO, bash("setsid sleep 300 >/dev/null 2>&1 & disown; exit 0"))
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def test_daemon_of_a_rank_ends_when_another_fails(self):
        code, job, _ = self.fail_on_rank(3, "exit 7", options=["--grace", "1"], others="""
            setsid bash -c 'trap "" TERM; while :; do sleep 0.1; done' >/dev/null 2>&1 & exec sleep 60""")
        self.assert_code(7, code, job)
        self.assert_nothing_left()

    def test_stopped_rank_is_reported_and_does_not_delay(self):
        script = '[ "$RANK" != 1 ] || kill -STOP $$; [ "$RANK" != 2 ] || { sleep 1.5; exit 8; }; exec sleep 60'
        begin = time.monotonic()
        code, job = self.run_job(TWO_BY_TWO, "--grace", "1", bash(script))
        self.assert_code(8, code, job)
        self.assertLess(time.monotonic() - begin, 10)
        self.assert_prints(job, r"(?i)rank 1\b.*stopped|stopped.*rank 1\b")
        self.assert_nothing_left()

    def test_32_ranks_on_4_nodes_succeed(self):
        code, job = self.run_job("--launcher", "local", "--num_nodes", "4", "--num_gpus", "8", "--show", "all",
                                 bash('echo "I am $RANK."'))
        self.assert_code(0, code, job)
        for rank in range(32):
            self.assert_prints(job, rf"I am {rank}\.")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
