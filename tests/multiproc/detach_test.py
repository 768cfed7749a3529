"""Tests detached jobs: dslaunch --detach, then ps, logs, attach and stop from other processes."""

import json
import os
import signal
import stat
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

JOB_ID = r"^[0-9a-f-]+\n$"
COUNT = 'echo "rank $RANK starts"; i=0; while [ $i -lt 600 ]; do echo "tick $i of rank $RANK"; i=$((i+1)); sleep 0.1; done'


class DetachTest(LauncherCase):
    def detach(self, *arguments, **options):
        """Starts a detached job; returns its id."""
        code, job = self.run_job(*arguments, **options)
        self.assert_code(0, code, job)
        self.assertRegex(job.stdout, JOB_ID, "the id is alone on stdout")
        return job.stdout.strip()

    def command(self, *arguments, timeout_s=60):
        """Runs dslaunch ps, logs, attach or stop; returns (exit code, Job)."""
        code, job = self.run_job(*arguments, timeout_s=timeout_s)
        self.assert_presentable(job)
        return code, job

    def jobs(self, *options):
        """Returns the entries of `dslaunch ps`, by job id."""
        code, job = self.command("ps", "--all", "--json", *options)
        self.assert_code(0, code, job)
        return {entry["job"]: entry for entry in json.loads(job.stdout)}

    def wait_for_state(self, job_id, state, timeout_s=30):
        wait_until(lambda: self.jobs()[job_id]["state"] == state, timeout_s)
        return self.jobs()[job_id]

    def job_folder(self, job_id):
        return self.folder / "state" / "dslaunch" / "jobs" / job_id

    def test_job_outlives_front_end_and_end_is_recorded(self):
        script = f'echo up; while [ ! -e {self.folder}/go ]; do sleep 0.05; done; exit $((RANK == 3 ? 9 : 0))'
        job_id = self.detach(TWO_BY_TWO, "--detach", bash(script))
        running = self.jobs()[job_id]
        self.assertEqual(("running", 4, ["node0", "node1"]),
                         (running["state"], running["ranks"], running["nodes"]))
        (self.folder / "go").touch()
        self.assertEqual(9, self.wait_for_state(job_id, "ended")["exit_code"])
        self.assert_nothing_left()
        for node in ("node0", "node1"):
            result = self.job_folder(job_id) / "nodes" / node / "result.json"
            self.assertEqual(9, json.loads(result.read_text())["exit_code"])
            self.assertEqual(0o600, stat.S_IMODE(result.stat().st_mode))
        code, job = self.command("attach", "last")
        self.assert_code(9, code, job)
        self.assert_prints(job, f"job {job_id} has ended with exit code 9",
                           r"dslaunch: rank 3 \(node1, local rank 1\) exited with code 9 after")
        code, logs = self.command("logs", job_id)
        self.assert_code(0, code, logs)
        self.assertIn("rank 3 (node1, local rank 1) exited with code 9", logs.stderr)
        code, described = self.command("describe", job_id[-4:])
        self.assert_code(0, code, described)
        self.assertRegex(described.stdout, r"(?m)^state +ended \(9\)$")
        self.assertRegex(described.stdout, r"(?m)^  its log: /\S+/attempt_1/rank_3/stderr.log$")
        log = described.stdout.split("its log: ")[1].split()[0]
        self.assertTrue(os.path.exists(log), log)
        code, job = self.command("ps")
        self.assertNotIn(job_id, job.stdout, "without --all only jobs that run are listed")

    def test_restart_of_detached_job_is_recorded(self):
        script = (f'while [ ! -e {self.folder}/go ]; do sleep 0.05; done; '
                  'if [ $RANK = 3 -a $DSLAUNCH_ATTEMPT = 1 ]; then kill -9 $$; fi; sleep 0.5')
        job_id = self.detach(TWO_BY_TWO, "--detach", "--max_restarts", "2", "--restart_delay_s", "0", bash(script))
        viewer = self.start("attach", job_id)
        time.sleep(1)
        (self.folder / "go").touch()
        code, job = self.wait(viewer), viewer
        self.assert_code(0, code, job)
        self.assertEqual(1, job.stderr.count("attempt 1 ended"), job.stderr)
        self.assert_prints(job, r"attempt 1 ended: rank 3 \(node1\) was killed by SIGKILL; restart 1 of 2",
                           r"4 ranks on 2 nodes succeeded in \S+ s with 1 restart")
        lines = [json.loads(line) for line in (self.job_folder(job_id) / "events.jsonl").read_text().splitlines()]
        kinds = [line["event"] for line in lines if line["event"] in ("started", "restarting", "end")]
        self.assertEqual(["started", "started", "restarting", "started", "end"], kinds)
        self.assertEqual((1, 2), (lines[-1]["restarts"], lines[-1]["attempts"]))
        self.assertEqual(sorted(line["t"] for line in lines), [line["t"] for line in lines])

    def test_saved_and_stopped_job_is_not_a_failure(self):
        script = """trap 'exit 85' INT TERM; echo up; while :; do sleep 0.05; done"""
        job_id = self.detach(TWO_BY_TWO, "--detach", bash(script))
        self.assert_code(0, *self.command("stop", job_id))
        self.assertEqual(85, self.wait_for_state(job_id, "ended")["exit_code"])
        code, described = self.command("describe", job_id)
        self.assert_code(0, code, described)
        self.assert_prints(described, r"(?m)^state +ended \(85\)$", r"stopped on request \(by dslaunch stop\)", "start the job again")
        self.assertNotIn("exited with code", described.stdout)
        code, job = self.command("attach", job_id)
        self.assert_code(85, code, job)

    def test_job_that_cannot_start_fails_as_if_attached(self):
        code, job = self.run_job(TWO_BY_TWO, "--detach", "/no/such/program")
        self.assert_code(127, code, job)
        self.assertEqual("", job.stdout)
        self.assert_nothing_left()

    def test_successful_job_ends_with_0(self):
        job_id = self.detach(TWO_BY_TWO, "--detach", "true")
        self.assertEqual(0, self.wait_for_state(job_id, "ended")["exit_code"])
        self.assert_nothing_left()

    def test_logs_start_at_a_time_and_follow_to_the_end(self):
        script = f'echo "first of $RANK"; echo err >&2; while [ ! -e {self.folder}/go ]; do sleep 0.05; done; echo "last of $RANK"'
        job_id = self.detach(TWO_BY_TWO, "--detach", bash(script))
        code, job = self.command("logs", job_id, "--rank", "2")
        self.assert_code(0, code, job)
        self.assertEqual("[node1:2] first of 2\n", job.stdout)
        follower = self.start("logs", job_id[:-1], "-f", "--show", "all")
        self.wait_for_output(follower, r"first of", 4)
        time.sleep(2.5)  # because marks of the logs are one second apart
        before_last = time.time()
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(follower), follower)
        for rank in range(4):
            self.assertEqual(1, follower.stdout.count(f"last of {rank}\n"), follower.output)
        self.wait_for_state(job_id, "ended")
        code, job = self.command("logs", job_id, "--since",
                                 time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before_last)))
        self.assertEqual("[node0:0] last of 0\n", job.stdout)
        code, job = self.command("logs", job_id, "--since", "1h")
        self.assertEqual("[node0:0] first of 0\n[node0:0] last of 0\n", job.stdout)

    def test_ctrl_c_ends_attach_and_not_the_job(self):
        job_id = self.detach(TWO_BY_TWO, "--detach", bash(COUNT))
        viewers = [self.start("attach", job_id, "--show", "all") for _ in range(2)]
        for viewer in viewers:
            self.wait_for_output(viewer, r"tick \d+ of rank 3")
            self.assertNotIn("starts", viewer.output, "output from now on")
        viewers[0].signal(signal.SIGINT)
        self.assert_code(130, self.wait(viewers[0]), viewers[0])
        self.assert_prints(viewers[0], f"job {job_id} continues")
        viewers[1].signal(signal.SIGKILL)
        self.assert_code(137, self.wait(viewers[1]), viewers[1])
        third = self.start("attach", job_id)
        self.wait_for_output(third, r"tick \d+ of rank 0", 3)
        code, job = self.command("stop", job_id)
        self.assert_code(0, code, job)
        self.assert_nothing_left()
        self.assert_code(143, self.wait(third), third)
        self.assert_prints(third, "stopped by dslaunch stop")
        self.assertEqual(143, self.jobs()[job_id]["exit_code"])

    def test_viewers_that_ignore_a_signal_continue(self):
        job_id = self.detach(TWO_BY_TWO, "--detach", bash(COUNT))
        viewers = [self.start_ignoring("HUP", *words, job_id) for words in (("attach",), ("logs", "-f"))]
        for viewer in viewers:
            self.wait_for_output(viewer, r"tick \d+ of rank 0")
            viewer.signal(signal.SIGHUP)
            self.wait_for_output(viewer, r"tick \d+ of rank 0", viewer.stdout.count("tick") + 3)
        code, job = self.command("stop", job_id)
        self.assert_code(0, code, job)
        for viewer in viewers:
            self.assertNotEqual(130, self.wait(viewer), viewer.output)
        self.assert_nothing_left()

    def test_stopped_viewer_does_not_delay_the_job(self):
        script = 'i=0; while [ $i -lt 400 ]; do head -c 100000 /dev/zero | tr "\\0" x; echo; i=$((i+1)); done; echo finished'
        gate = f'while [ ! -e {self.folder}/go ]; do sleep 0.05; done; '
        job_id = self.detach("--launcher", "local", "--num_gpus", "1", "--detach", bash(gate + script))
        viewer = self.start("attach", job_id)
        time.sleep(0.5)
        viewer.signal(signal.SIGSTOP)
        (self.folder / "go").touch()
        self.assertEqual(0, self.wait_for_state(job_id, "ended")["exit_code"])
        viewer.signal(signal.SIGKILL)
        self.wait(viewer)
        self.assert_nothing_left()
        log = next(self.job_folder(job_id).glob("nodes/*/attempt_1/rank_0/stdout.log"))
        self.assertEqual(400 * 100001 + len("finished\n"), log.stat().st_size)

    def test_stop_of_one_job_spares_another(self):
        first = self.detach(TWO_BY_TWO, "--detach", bash(COUNT))
        second = self.detach(TWO_BY_TWO, "--detach", bash(COUNT))
        viewer = self.start("attach", second)
        self.wait_for_output(viewer, "tick")
        code, job = self.command("stop", first)
        self.assert_code(0, code, job)
        seen = viewer.stdout.count("tick")
        self.wait_for_output(viewer, "tick", seen + 10)
        numbers = [int(line.split("tick ")[1].split()[0]) for line in viewer.stdout.splitlines()]
        self.assertEqual(list(range(numbers[0], numbers[0] + len(numbers))), numbers)
        self.assertEqual(("ended", "running"), (self.jobs()[first]["state"], self.jobs()[second]["state"]))
        code, job = self.command("stop", second, "--now")
        self.assert_code(0, code, job)
        self.assert_nothing_left()
        self.wait(viewer)

    def test_stop_now_skips_the_grace(self):
        job_id = self.detach("--launcher", "local", "--num_gpus", "1", "--grace", "60", "--detach",
                             bash('trap "" TERM; echo deaf; while :; do sleep 0.1; done'))
        began = time.time()
        code, job = self.command("stop", "last", "--now")
        self.assert_code(0, code, job)
        self.assertLess(time.time() - began, 30)
        self.assert_nothing_left()
        self.assertEqual("ended", self.jobs()[job_id]["state"])

    def test_killed_agent_makes_the_job_lost(self):
        job_id = self.detach("--launcher", "local", "--num_gpus", "1", "--detach", bash(COUNT))
        agents = [process for process in self.leftovers() if process.name.startswith("dslaunch-agent")]
        for process in agents:
            os.kill(process.pid, signal.SIGKILL)
        self.assert_nothing_left(within_s=15)
        self.assertEqual("lost", self.jobs()[job_id]["state"])
        code, job = self.command("ps", "--prune")
        self.assert_code(0, code, job)
        self.assertFalse(self.job_folder(job_id).exists())

    def test_prune_removes_only_ended_jobs(self):
        ended = self.detach(TWO_BY_TWO, "--detach", "true")
        running = self.detach(TWO_BY_TWO, "--detach", bash(COUNT))
        self.wait_for_state(ended, "ended")
        code, job = self.command("ps", "--prune", "--older_than", "1")
        self.assertTrue(self.job_folder(ended).exists())
        code, job = self.command("ps", "--prune")
        self.assert_code(0, code, job)
        self.assertFalse(self.job_folder(ended).exists())
        self.assertTrue(self.job_folder(running).exists())
        self.assertEqual([running], list(self.jobs()))
        self.assert_code(0, *self.command("stop", running))
        self.assert_nothing_left()

    def test_attached_job_is_listed_and_can_be_stopped(self):
        step = r"""printf '{"event":"step","step":3,"total_steps":10}\n' >&$DSLAUNCH_STATUS_FD; """
        job = self.start(TWO_BY_TWO, bash(step + COUNT))
        self.wait_for_output(job, "tick")
        wait_until(lambda: "3/10" in self.command("ps")[1].stdout, 20)
        code, ps = self.command("ps")
        self.assert_prints(ps, r"running \(front end alive\)  2 +4 +3/10 ")
        job_id = ps.stdout.splitlines()[1].split()[0]
        code, attach = self.command("attach", job_id)
        self.assert_code(64, code, attach)
        self.assert_prints(attach, f"its front end is process {job.pid}")
        code, stop = self.command("stop", job_id)
        self.assert_code(0, code, stop)
        self.assert_code(143, self.wait(job), job)
        self.assert_nothing_left()

    def test_rejects_unknown_jobs_and_words_with_a_hint(self):
        code, job = self.command("stop", "20260101-000000-abcdef")
        self.assert_code(64, code, job)
        job_id = self.detach("--launcher", "local", "--num_gpus", "1", "--detach", "true")
        self.wait_for_state(job_id, "ended")
        code, job = self.command("logs", "x" + job_id)
        self.assert_code(64, code, job)
        self.assert_prints(job, f"did you mean {job_id}", "dslaunch ps")
        for words in (["attach"], ["ps", "--al"], ["logs", job_id, "--since", "soon"], ["stop", job_id, "x"]):
            code, job = self.command(*words)
            self.assert_code(64, code, job)
            self.assertEqual(1, job.stderr.count("\n"), job.stderr)

    def test_runs_program_named_ps_as_dot_slash_ps(self):
        program = self.folder / "ps"
        program.write_text("#!/bin/sh\necho own ps\n")
        program.chmod(0o755)
        code, job = self.run_job("--launcher", "local", "--num_gpus", "1", "./ps")
        self.assert_code(0, code, job)
        self.assert_prints(job, "own ps")


if __name__ == "__main__":
    main()
