"""How a job ends when its ranks end: whose exit code, how fast, what the summary says, and that nothing is left."""

import json
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main, seconds_since_written  # noqa: E402


LOOP = "while :; do sleep 0.05; done"


class Exits(LauncherCase):
    def fail_on_rank(self, rank, how, first="", others="exec sleep 60", options=(), timeout_s=30):
        """All ranks do `first`; when all are up, rank `rank` does `how` and the others do `others`. Returns (exit code,
        Job, seconds from the failure to dslaunch's end)."""
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

    def test_all_ranks_end_well(self):
        code, job = self.run_job(TWO_BY_TWO, "true")
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def test_a_ranks_exit_code_is_the_jobs_within_two_seconds(self):
        code, job, took_s = self.fail_on_rank(3, "exit 7")
        self.assert_code(7, code, job)
        self.assertLess(took_s, 2, job.output)
        self.assert_says(job, r"rank 3\b", r"\b7\b")
        self.assert_nothing_left()

    def test_rank_0_can_be_the_one(self):
        code, job, took_s = self.fail_on_rank(0, "exit 255")
        self.assert_code(255, code, job)
        self.assertLess(took_s, 2, job.output)
        self.assert_says(job, r"rank 0\b", r"\b255\b")
        self.assert_nothing_left()

    def test_the_first_cause_counts_not_what_it_caused(self):
        code, job, _ = self.fail_on_rank(2, "exit 3", first="trap 'exit 5' TERM", others=LOOP)
        self.assert_code(3, code, job)
        self.assert_says(job, r"rank 2\b")
        self.assert_nothing_left()

    def test_one_killed_counts_though_its_victim_ended_before_it(self):
        # A large process takes longer to die than its peers need to see its connections closed.
        code, job, _ = self.fail_on_rank(2, "echo 'gloo: Connection reset by peer' >&2; exit 69", others=LOOP,
                                         first="""[ "$RANK" != 3 ] || trap 'kill -KILL $$' TERM""")
        self.assert_code(137, code, job)
        self.assert_says(job, r"rank 3\b", "SIGKILL", "rank 2 failed because of it")
        self.assert_nothing_left()

    def test_a_timeout_names_the_ranks_that_still_run(self):
        raised = """printf 'Traceback (most recent call last):\\n  File "t.py", line 1\\n%s\\n' \\
            'torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 1/2 clients joined.' >&2
            exit 1"""
        code, job, _ = self.fail_on_rank(0, raised, others="[ $RANK != 3 ] || exit 0; exec sleep 60")
        self.assert_code(1, code, job)
        self.assert_says(job, r"rank 0 .* exited with code 1", "1/2 clients joined",
                         r"rank 1 \(.*, pid \d+\) was still running when rank 0 failed",
                         r"thread sleep: asleep",
                         "it timed out waiting for another rank, and no rank left an error of its own; "
                         "ranks 1-2 were still running")
        self.assertNotIn("effect of another rank's end", job.output)
        self.assertNotIn("rank 3 (", job.output)
        self.assert_nothing_left()

    def test_an_address_that_no_rank_reaches_is_the_cause_itself(self):
        error = ("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
                 "(10.255.255.1, 29601).")
        code, job = self.run_job(TWO_BY_TWO, "--json", bash(
            f"printf 'Traceback (most recent call last):\\n  File \"t.py\"\\n%s\\n' '{error}' >&2; exit 1"))
        self.assert_code(1, code, job)
        self.assertFalse(json.loads(job.stdout.splitlines()[-1])["cause"]["victim"], job.output)
        self.assertNotIn("another rank", job.stderr)
        self.assert_nothing_left()

    def test_a_signal_is_named(self):
        for name, code_expected in (("SIGKILL", 137), ("SIGSEGV", 139), ("SIGABRT", 134), ("SIGTERM", 143)):
            with self.subTest(signal=name):
                for path in self.folder.iterdir():
                    if path.is_file():
                        path.unlink()
                code, job, took_s = self.fail_on_rank(1, f"ulimit -c 0; kill -{name[3:]} $$")
                self.assert_code(code_expected, code, job)
                self.assertLess(took_s, 2, job.output)
                self.assert_says(job, r"rank 1\b", name)
                self.assert_nothing_left()

    def test_the_others_are_asked_to_end_before_they_are_killed(self):
        code, job, _ = self.fail_on_rank(
            1, "exit 9", first="""trap 'sleep 0.3; touch "$FOLDER/tidy.$RANK"; exit 0' TERM""", others=LOOP)
        self.assert_code(9, code, job)
        self.assertEqual({"tidy.0", "tidy.2", "tidy.3"}, {path.name for path in self.folder.glob("tidy.*")})
        self.assert_nothing_left()

    def test_one_that_ignores_sigterm_is_killed_after_the_grace(self):
        code, job, took_s = self.fail_on_rank(1, "exit 9", options=["--grace", "1"],
                                              first="trap '' TERM", others=LOOP)
        self.assert_code(9, code, job)
        self.assertGreater(took_s, 0.9)
        self.assertLess(took_s, 1 + 2.5)
        self.assert_nothing_left()

    def test_the_last_lines_of_the_failed_rank_are_shown(self):
        code, job, _ = self.fail_on_rank(3, "echo it was the disk >&2; exit 4")
        self.assert_code(4, code, job)
        self.assert_says(job, "it was the disk")

    def test_a_traceback_that_was_shown_is_not_repeated(self):
        script = self.folder / "fail.py"
        script.write_text("def train():\n    raise ValueError('no such layer')\ntrain()\n")
        for shown, traces in ((["--show", "all"], 1), (["--show", "none"], 1)):
            code, job = self.run_job("-n", "1", *shown, script)
            self.assert_code(1, code, job)
            self.assertEqual(traces, job.stderr.count("Traceback"), job.stderr)
            self.assert_says(job, r"exited with code 1 after .*(\n.*)*ValueError: no such layer(.*\n)*  its log: ")

    def test_ranks_may_finish_unevenly(self):
        code, job = self.run_job(TWO_BY_TWO, "--show", "all",
                                 bash('[ "$RANK" != 1 ] || sleep 2; echo "end of $RANK"'))
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assert_says(job, f"end of {rank}")

    def test_a_late_failure_counts_after_others_have_ended_well(self):
        code, job = self.run_job(TWO_BY_TWO, bash('[ "$RANK" != 2 ] || { sleep 1; exit 6; }'))
        self.assert_code(6, code, job)
        self.assert_says(job, r"rank 2\b")
        self.assert_nothing_left()

    def test_what_a_rank_left_behind_ends_with_the_job(self):
        # A daemon: its own session, its parent gone.
        code, job = self.run_job(TWO_BY_TWO, bash("setsid sleep 300 >/dev/null 2>&1 & disown; exit 0"))
        self.assert_code(0, code, job)
        self.assert_nothing_left()

    def test_what_a_rank_left_behind_ends_when_another_fails(self):
        code, job, _ = self.fail_on_rank(3, "exit 7", options=["--grace", "1"], others="""
            setsid bash -c 'trap "" TERM; while :; do sleep 0.1; done' >/dev/null 2>&1 & exec sleep 60""")
        self.assert_code(7, code, job)
        self.assert_nothing_left()

    def test_a_stopped_rank_is_told_and_does_not_hold_up_the_end(self):
        script = '[ "$RANK" != 1 ] || kill -STOP $$; [ "$RANK" != 2 ] || { sleep 1.5; exit 8; }; exec sleep 60'
        begin = time.monotonic()
        code, job = self.run_job(TWO_BY_TWO, "--grace", "1", bash(script))
        self.assert_code(8, code, job)
        self.assertLess(time.monotonic() - begin, 10)
        self.assert_says(job, r"(?i)rank 1\b.*stopped|stopped.*rank 1\b")
        self.assert_nothing_left()

    def test_many_ranks(self):
        code, job = self.run_job("--launcher", "local", "--num_nodes", "4", "--num_gpus", "8", "--show", "all",
                                 bash('echo "I am $RANK."'))
        self.assert_code(0, code, job)
        for rank in range(32):
            self.assert_says(job, rf"I am {rank}\.")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
