"""Tests the output of ranks: whole tagged lines on the terminal, and every byte in the log files."""

import hashlib
import os
import pathlib
import pty
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import DSLAUNCH, MARK, TWO_BY_TWO, Job, LauncherCase, bash, main  # noqa: E402

HELLO = bash('echo "out of $RANK"; echo "err of $RANK" >&2')

# Writes output that must not reach the user's terminal, in pieces that are read separately.
HOSTILE = r"""import os, random, time
seed = random.randrange(1 << 32)
rng = random.Random(seed)
pieces = [b"\x1b[2J\x1b[H", b"\x1b]0;title\x07", b"\x1b]52;c;cm0gLXJm\x1b\\", b"\x1b[31m", b"\x1bP+q544e\x1b\\",
          b"\x1b[6n", b"\x1bc", b"\x1b", b"\x1b[", b"\x1b]", b"\x9b31m", b"\xc2\x9b2J", b"\x90q\x9c", b"\xe2\x80\xae",
          b"\xe2\x81\xa6", b"\xff\xfe", b"\xe2\x82", b"\x07", b"\x08", b"\x0e", b"\x7f", b"\xc3\xb6", b"text", b"\n", b"\r"]
for stream in (1, 2):
    os.write(stream, b"seed %d\n\x1b]0;ti" % seed)
    time.sleep(0.3)  # dslaunch shows the unfinished line meanwhile
    os.write(stream, b"tle\x07" + b"\x9b" * 70000 + b"\n\xf0\x9f")
    for _ in range(2000):
        os.write(stream, b"".join(rng.choices(pieces, k=rng.randrange(1, 20))))
    os.write(stream, b"\nthe end of %d\n\x1b[?1049h" % stream)
os.kill(os.getpid(), 9)
"""
# Sequences that dslaunch itself writes: to redraw its live lines, and colours.
OWN_SEQUENCES = re.compile("\r\x1b\\[K(\x1b\\[A\x1b\\[K)*|\x1b\\[[0-9;:]*m")
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")


def step(number, total):
    return f"""printf '{{"event":"step","step":{number},"total_steps":{total}}}\\n' >&$DSLAUNCH_STATUS_FD"""


class Output(LauncherCase):
    def log(self, rank, stream, folder="logs"):
        path, = (self.folder / folder).glob(f"**/rank_{rank}/{stream}.log")
        return path

    def test_shows_rank_0_by_default(self):
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assert_prints(job, r"(?m)^\[[^\]\n]+:0\] out of 0$", r"(?m)^\[[^\]\n]+:0\] err of 0$")
        for rank in (1, 2, 3):
            self.assertNotIn(f"of {rank}", job.output)

    def test_show_chooses_the_ranks(self):
        for ranks, shown in (("all", {0, 1, 2, 3}), ("1,3", {1, 3}), ("none", set())):
            with self.subTest(ranks=ranks):
                code, job = self.run_job(TWO_BY_TWO, "--show", ranks, HELLO)
                self.assert_code(0, code, job)
                found = {int(rank) for rank in re.findall(r"(?m)^\[[^\]\n]+:(\d+)\] out of \1$", job.output)}
                self.assertEqual(shown, found, job.output)

    def test_stdout_has_output_of_ranks(self):
        # `dslaunch ... > file` must contain the ranks' stdout, without dslaunch's notices.
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assertIn("out of 0", job.stdout)

    def test_lines_of_many_ranks_do_not_mix(self):
        script = 'for i in $(seq 300); do printf "%s-%s-" "$RANK" "$i"; printf "%060d\\n" "$i"; done'
        code, job = self.run_job(TWO_BY_TWO, "--show", "all", bash(script))
        self.assert_code(0, code, job)
        for rank in range(4):
            lines = re.findall(rf"(?m)^\[[^\]\n]+:{rank}\] {rank}-(\d+)-(\d{{60}})$", job.output)
            self.assertEqual(list(range(1, 301)), [int(number) for number, _ in lines], f"rank {rank}")

    def test_shows_last_line_without_newline(self):
        code, job = self.run_job(TWO_BY_TWO, bash("printf 'no newline at end'"))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"\[[^\]\n]+:0\] no newline at end")

    def test_shows_partial_line_while_rank_waits(self):
        job = self.start(TWO_BY_TWO, bash("printf 'password: '; exec sleep 30"))
        self.wait_for_output(job, "password: ", timeout_s=5)
        job.signal(2)
        self.wait(job, 8)

    def test_limits_lines_that_are_redrawn(self):
        """A bar that is redrawn 10 times a second for hours must not fill job.out with 288,000 lines."""
        script = "import sys, time\nfor i in range(101):\n    sys.stderr.write('\\r%3d%%|##' % i)\n    sys.stderr.flush()\n" \
                 "    time.sleep(0.01)\nsys.stderr.write('\\n')\n"
        code, job = self.run_job("-n", "1", "python3", "-c", script)
        self.assert_code(0, code, job)
        self.assertEqual(["  0%|##", "100%|##"], re.findall(r"(?m)^\[localhost:0\] (.*##)$", job.stderr))
        code, logs = self.run_job("logs", "last")
        self.assert_code(0, code, logs)
        self.assertEqual(["  0%|##", "100%|##"], re.findall(r"(?m)^\[localhost:0\] (.*##)$", logs.stderr))
        log, = (self.folder / "state").glob("**/stderr.log")
        self.assertEqual(101, log.read_bytes().count(b"\r"), "the file has all of it")

    def test_log_files_of_killed_ranks_are_complete(self):
        # Each rank writes 6 MB of bytes without line structure on both streams, and one process is killed right after
        # writing.
        script = """import hashlib, os, sys
rank = int(os.environ["RANK"])
for stream in (1, 2):
    data = os.urandom(1000003) * 6
    open(os.environ["FOLDER"] + f"/sum.{rank}.{stream}", "w").write(hashlib.sha256(data).hexdigest())
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view):]
if rank == 2:
    os.kill(os.getpid(), 9)
"""
        (self.folder / "writer.py").write_text(script)
        code, job = self.run_job(TWO_BY_TWO, "--show", "none", "--log_dir", self.folder / "logs",
                                 "python3", self.folder / "writer.py", env={"FOLDER": str(self.folder)})
        self.assert_code(137, code, job)
        checked = 0
        for number, stream in ((1, "stdout"), (2, "stderr")):
            for rank in range(4):
                sum_file = self.folder / f"sum.{rank}.{number}"
                data = self.log(rank, stream).read_bytes()
                if len(data) == 6 * 1000003 or rank == 2:  # another rank may have been stopped while it was writing
                    self.assertEqual(sum_file.read_text(), hashlib.sha256(data).hexdigest(), f"{rank} {stream}")
                    checked += 1
        self.assertGreaterEqual(checked, 2)

    def test_log_files_of_successful_job_are_complete(self):
        script = 'seq -f "$RANK %.0f" 200000; seq -f "e $RANK %.0f" 1000 >&2'
        code, job = self.run_job(TWO_BY_TWO, "--log_dir", self.folder / "logs", bash(script))
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assertEqual("".join(f"{rank} {i}\n" for i in range(1, 200001)), self.log(rank, "stdout").read_text())
            self.assertEqual("".join(f"e {rank} {i}\n" for i in range(1, 1001)), self.log(rank, "stderr").read_text())
            mode = self.log(rank, "stdout").parents[0].stat().st_mode & 0o077
            self.assertEqual(0, mode, "others can look into the log folder")

    def test_logs_are_in_state_folder_by_default(self):
        code, job = self.run_job(TWO_BY_TWO, HELLO)
        self.assert_code(0, code, job)
        self.assertEqual("out of 3\n", self.log(3, "stdout", "state").read_text())

    def test_stalled_reader_does_not_stall_ranks(self):
        read_end, write_end = os.pipe()
        env = {**self.base_environment(), MARK: self.mark}
        with os.fdopen(read_end, "rb") as reader:
            job = Job(lambda **files: self.popen(
                [str(word) for word in (DSLAUNCH, *TWO_BY_TWO, "--show", "all", "--log_dir",
                                        self.folder / "logs", *bash('seq 1000000; touch done.$RANK'))],
                env, str(self.folder), **{**files, "stdout": write_end}), self.folder)
            self.last_job = job
            os.close(write_end)
            self.wait_for_files(job, "done.*", 4, timeout_s=30)
            while reader.read(1 << 20):
                pass
        self.assert_code(0, self.wait(job, 20), job)
        self.assertEqual(6888896, self.log(3, "stdout").stat().st_size)
        self.assert_nothing_left()

    def test_early_close_of_stdout_leaves_no_process(self):
        # Simulates `dslaunch ... | head -n 1`.
        env = {**self.base_environment(), MARK: self.mark}
        script = "for i in $(seq 60); do echo $i; sleep 0.05; done"
        job = Job(lambda **files: self.popen(
            [DSLAUNCH, *TWO_BY_TWO, *bash(script)], env, str(self.folder),
            **{**files, "stdout": subprocess.PIPE}), self.folder)
        self.last_job = job
        job.process.stdout.readline()
        job.process.stdout.close()
        self.wait(job, 20)
        self.assert_presentable(job)
        self.assert_nothing_left()

    def test_shows_progress_from_status_pipe(self):
        script = """for step in 1 2 3 4; do
            [ "$RANK" != 0 ] || printf '{"event":"step","step":%d,"total_steps":4,"loss":0.%d,"samples_per_s":512}\\n' \
                $step $step >&$DSLAUNCH_STATUS_FD
            sleep 0.4; done"""
        code, job = self.run_job(TWO_BY_TWO, bash(script))
        self.assert_code(0, code, job)
        self.assert_prints(job, r"4/4", r"0\.[1234]", r"512")

    def run_on_terminal(self, *arguments, env=None):
        """Runs dslaunch with a terminal as its stdout and stderr; returns (exit code, bytes that the terminal
        received)."""
        screen, terminal = pty.openpty()
        environment = {**self.base_environment(), MARK: self.mark, "TERM": "dumb", **(env or {})}
        argv = [str(word) for word in (DSLAUNCH, *arguments)]
        shown = []

        def read():
            try:
                while data := os.read(screen, 1 << 16):
                    shown.append(data)
            except OSError:
                pass  # raised when the terminal's other side is closed
        process = self.popen(argv, environment, str(self.folder), stdout=terminal, stderr=terminal)
        os.close(terminal)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            code = process.wait(60)
        finally:
            process.kill()
            reader.join(10)
            os.close(screen)
        return code, b"".join(shown)

    def test_local_ranks_filter_chooses_shown_ranks(self):
        for arguments, shown in ((["--local_ranks_filter", "1"], {1, 3}),
                                 (["--local-ranks-filter=0", "--show", "0,1"], {0})):
            with self.subTest(arguments=arguments):
                code, job = self.run_job(TWO_BY_TWO, arguments, HELLO)
                self.assert_code(0, code, job)
                self.assertEqual(shown, {int(rank) for rank in re.findall(r"(?m)^\[[^\]\n]+:(\d+)\] out of", job.output)})

    def test_duplicates_lines_that_match_filters(self):
        code, job = self.run_job(TWO_BY_TWO, "--show", "all", "--log_dir", self.folder / "logs",
                                 "--duplicate_stdout_filters", "out of 1,out of 3", HELLO)
        self.assert_code(0, code, job)
        for rank in range(4):
            self.assertIn(f"] out of {rank}\n", job.stdout)
        copies = sorted(path.read_text() for path in (self.folder / "logs").glob("**/filtered_stdout.log"))
        self.assertEqual(2, len(copies))
        self.assertRegex(copies[0], r"\A\[[^\]\n]+:1\] out of 1\n\Z")
        self.assertRegex(copies[1], r"\A\[[^\]\n]+:3\] out of 3\n\Z")
        self.assertEqual([], list((self.folder / "logs").glob("**/filtered_stderr.log")))

    def test_tags_lines_by_template_of_torchrun(self):
        template = "<${role_name} ${rank}.${local_rank}> "
        code, job = self.run_job(TWO_BY_TWO, "--show", "3", HELLO, env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": template})
        self.assert_code(0, code, job)
        self.assertEqual("<default 3.1> out of 3\n", job.stdout)

    def test_quiet_prints_only_output_and_cause(self):
        code, job = self.run_job(TWO_BY_TWO, "--quiet", bash('echo fine; ' + step(1, 1)))
        self.assert_code(0, code, job)
        self.assertRegex(job.stdout, r"\A\[[^\]\n]+:0\] fine\n\Z")
        self.assertEqual("", job.stderr)
        code, job = self.run_job(TWO_BY_TWO, "--quiet", "--show", "none", bash('[ "$RANK" != 2 ] || exit 7; sleep 9'))
        self.assert_code(7, code, job)
        self.assertRegex(job.stderr, r"\Adslaunch: rank 2 .* exited with code 7")

    def test_log_level_selects_messages(self):
        for level, says, says_not in (("warning", [], ["slots", "succeeded"]),
                                      ("info", ["slots", "succeeded"], ["is reached"]),
                                      ("debug", ["is reached", " pid ", "succeeded"], [])):
            with self.subTest(level=level):
                code, job = self.run_job(TWO_BY_TWO, "--log_level", level, "true")
                self.assert_code(0, code, job)
                for text in says:
                    self.assertIn(text, job.stderr)
                for text in says_not:
                    self.assertNotIn(text, job.stderr)

    def test_terminal_shows_common_line_of_ranks_once(self):
        # All ranks are up before the first line, so they write at the same time even on a busy machine.
        program = ["--show", "all", "--env", f"FOLDER={self.folder}", *bash(
            'touch "$FOLDER/up.$RANK"; until [ $(ls "$FOLDER" | grep -c "^up") = 4 ]; do sleep 0.01; done; '
            'echo loading; echo "I am $RANK"; echo loading')]
        code, shown = self.run_on_terminal(*TWO_BY_TWO, *program)
        self.assertEqual(0, code, shown)
        lines = shown.decode().splitlines()
        self.assertEqual(2, lines.count("[x4 ranks: 0-3] loading"), lines)
        for rank in range(4):
            self.assertRegex("\n".join(lines), rf"(?m)^\[[^\]\n ]+:{rank}\] I am {rank}$")
        code, job = self.run_job(TWO_BY_TWO, program)  # lines are not folded in a file
        self.assert_code(0, code, job)
        self.assertEqual(8, len(re.findall(r"(?m)^\[[^\]\n ]+:\d\] loading$", job.stdout)))

    def test_terminal_gets_no_control_sequence_of_ranks(self):
        # Checks the ranks' lines and the closing block.
        (self.folder / "hostile.py").write_text(HOSTILE)
        for term in ("xterm", "dumb"):
            code, shown = self.run_on_terminal(*TWO_BY_TWO, "--show", "all", "python3", self.folder / "hostile.py",
                                               env={"TERM": term})
            self.assertEqual(137, code, shown[-2000:])
            text = shown.decode("utf-8")  # valid UTF-8, whatever the ranks wrote
            if term == "xterm":
                text = OWN_SEQUENCES.sub("", text)
            found = FORBIDDEN.search(text)
            self.assertIsNone(found, found and text[max(0, found.start() - 200):found.end() + 20])
            self.assertIn("the end of 1", text)
            self.assertIn("was killed by SIGKILL", text)

    def test_redraws_progress_only_on_capable_terminals(self):
        script = "".join(f'[ "$RANK" != 0 ] || {step(i, 3)}; sleep 0.2; ' for i in (1, 2, 3))
        for env in ({"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            with self.subTest(env=env):
                code, shown = self.run_on_terminal(*TWO_BY_TWO, *bash(script), env=env)
                self.assertEqual(0, code, shown)
                self.assertIn(b"step 3/3", shown)
                redrawn = shown.count(b"\r\x1b[K")
                self.assertEqual(redrawn, shown.count(b"\x1b"), shown)  # excludes other sequences, such as colours
                self.assertEqual(env["TERM"] == "xterm", redrawn > 0, shown)

    # A failure keeps its code if output is lost. A success becomes a failure.
    def test_broken_output_does_not_hide_a_failure(self):
        script = 'echo "out $RANK"; echo "err $RANK" >&2; [ "$RANK" != 1 ] || exit $0'
        full = "/dev/full"
        for redirections in (">&-", "2>&-", ">&- 2>&-", f">{full}", f"2>{full}", f">{full} 2>{full}", "| true",
                             "2>&1 | true"):
            for result in (0, 7):
                with self.subTest(redirections=redirections, result=result):
                    line = f'set -o pipefail; "$@" {redirections}'
                    process = self.popen(["bash", "-c", line, "-", DSLAUNCH, *TWO_BY_TWO, "--show", "all",
                                          "bash", "-c", script, str(result)],
                                         {**self.base_environment(), MARK: self.mark}, str(self.folder),
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    output = process.communicate(timeout=60)[0]
                    expected = 74 if result == 0 and redirections.startswith(f">{full}") else result
                    self.assertEqual(expected, process.returncode, output.decode(errors="replace"))

    def test_idle_job_uses_no_cpu(self):
        job = self.start(TWO_BY_TWO, bash(": > up.$RANK; exec sleep 60"))
        self.wait_for_files(job, "up.*", 4)
        time.sleep(0.5)

        def cpu_s():
            ticks = 0
            for process in self.leftovers():
                if process.name.startswith("dslaunch"):
                    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                    ticks += int(fields[11]) + int(fields[12])
            return ticks / os.sysconf("SC_CLK_TCK")
        before = cpu_s()
        time.sleep(4)
        used_s = cpu_s() - before
        job.signal(2)
        self.wait(job, 8)
        self.assertLess(used_s, 0.4, "dslaunch, two supervisors and two agents used this much CPU in 4 s")


if __name__ == "__main__":
    main()
