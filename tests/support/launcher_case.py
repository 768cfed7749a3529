"""Provides the base of the end-to-end tests: starts dslaunch, reads its output, and checks that no process of a job is
left.

The binaries are in $DSLAUNCH_BUILD_DIR (default: build/ of this checkout).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from test_hosts import processes_with, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DSLAUNCH_BUILD_DIR", ROOT / "build")).resolve()
DSLAUNCH = str(BUILD / "bin" / "dslaunch")
TRAIN = str(BUILD / "bin" / "dslaunch-train")
TEST_DATA = BUILD / "tests" / "fashion-mnist-part"  # a tenth of the data, unpacked
FASHION_MNIST = ["fashion_mnist", "--data", TEST_DATA]  # the recipe's name and its data
TWO_BY_TWO = ["--launcher", "local", "--num_nodes", "2", "--num_gpus", "2"]

# Every process of a test has this variable with the test's own value, unless the process deliberately removes it.
MARK = "DSLAUNCH_TEST_MARK"

# A test that runs in the background may inherit these signals as ignored, and its jobs would inherit that, so the
# handler is restored.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)

# Matches text that a user must never see.
STACK_TRACE = re.compile(r"terminate called|Traceback|what\(\):|Segmentation fault|#[0-9]+ 0x|"
                         r"Assertion|AddressSanitizer")


def bash(script):
    """Returns the argv of a rank that runs `script`. To report that the rank is up, a script uses `: > FILE` instead
    of `touch`, because bash survives a SIGINT that arrives while it waits for `touch`."""
    return ["bash", "-c", script]


def is_agent_binary(process):
    return process.name.startswith(("dslaunch-agent", "agent-"))  # built here; copied to a node


def supervisors_and_agents(processes):
    """Returns (supervisors, agents) among `processes`. A supervisor is the parent of its node's agent and watchdog;
    all of them run the same binary."""
    ours = {process.pid: process for process in processes
            if is_agent_binary(process) and process.comm not in ("dslaunch-watch", "dslaunch-call")}
    agents = [process for process in ours.values() if process.ppid in ours]
    supervisors = [process for process in ours.values() if process.ppid not in ours]
    return supervisors, agents


class Job:
    """A running dslaunch. Its stdout and stderr go to files, so that dslaunch never blocks on a test that does not
    read."""

    def __init__(self, popen, folder):
        """Starts dslaunch by calling popen(stdout=, stderr=). The Popen that it returns may have `inner_pid`,
        dslaunch's own pid."""
        self._out = pathlib.Path(folder) / f"dslaunch.{uuid.uuid4().hex}.stdout"
        self._err = self._out.with_suffix(".stderr")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.started_at = time.time()
            self.process = popen(stdout=out, stderr=err)
        self.pid = getattr(self.process, "inner_pid", None) or self.process.pid
        self.ended_at = None

    @property
    def stdout(self):
        return self._out.read_text(errors="replace")

    @property
    def stderr(self):
        return self._err.read_text(errors="replace")

    @property
    def output(self):
        return self.stdout + self.stderr

    def signal(self, number):
        os.kill(self.pid, number)

    def running(self):
        return self.process.poll() is None

    def has_failed(self):
        """Returns whether dslaunch has failed. A front end that exited with 0 may have left a detached job, which
        counts as no failure."""
        return self.process.poll() not in (None, 0)

    def wait(self, timeout_s=60):
        """Waits for dslaunch and returns its exit code as a shell does: 128 + signal if a signal killed dslaunch."""
        code = self.process.wait(timeout=timeout_s)
        self.ended_at = time.time()
        return code if code >= 0 else 128 - code


class LauncherCase(unittest.TestCase):
    """Base of tests that run dslaunch on this machine. Each test has a temporary folder (self.folder) and a mark."""

    def setUp(self):
        for binary in ("dslaunch", "dslaunch-agent"):
            if not (BUILD / "bin" / binary).exists():
                self.fail(f"{BUILD}/bin/{binary} is not built; cmake --build {BUILD}")
        self.mark = uuid.uuid4().hex
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dslaunch-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.end_leftovers)

    # These three methods define where dslaunch runs; the tests on test hosts override them.

    def popen(self, argv, env, cwd, **options):
        return subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, **options)

    def base_environment(self):
        place = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "DSLAUNCH_", "TORCHELASTIC_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(place)}
        return {**env, "XDG_STATE_HOME": str(self.folder / "state")}

    def leftovers(self):
        """Returns the living processes of the test's jobs, including dslaunch itself."""
        return processes_with(MARK, self.mark)

    # The following methods start dslaunch.

    def start(self, *arguments, env=None, cwd=None):
        """Starts dslaunch and returns the Job. Arguments may be str, bytes, Path or lists of them."""
        argv = [DSLAUNCH]
        for argument in arguments:
            argv += argument if isinstance(argument, list) else [argument]
        argv = [word if isinstance(word, bytes) else str(word) for word in argv]
        environment = {**self.base_environment(), MARK: self.mark, **(env or {})}
        job = Job(lambda **files: self.popen(argv, environment, cwd or str(self.folder), **files), self.folder)
        self.last_job = job
        return job

    def start_ignoring(self, signal_name, *arguments, **options):
        """Starts dslaunch with the signal ignored, as nohup does."""
        popen = self.popen
        self.popen = lambda argv, *rest, **files: popen(["env", "--ignore-signal=" + signal_name, *argv], *rest, **files)
        try:
            return self.start(*arguments, **options)
        finally:
            self.popen = popen

    def run_job(self, *arguments, timeout_s=60, **options):
        """Runs dslaunch until it exits; returns (exit code, Job)."""
        job = self.start(*arguments, **options)
        return self.wait(job, timeout_s), job

    def wait(self, job, timeout_s=60):
        try:
            return job.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.fail(f"dslaunch still runs after {timeout_s} s; its output:\n{job.output}\n"
                      "and these processes:\n" + "\n".join(map(str, self.leftovers())))

    def wait_for_output(self, job, pattern, count=1, timeout_s=20):
        """Waits until `pattern` occurs in dslaunch's output `count` times. Fails the test on timeout or if dslaunch
        exits first."""
        def enough():
            return len(re.findall(pattern, job.output)) >= count or not job.running()
        try:
            wait_until(enough, timeout_s)
        except TimeoutError:
            pass
        found = len(re.findall(pattern, job.output))
        self.assertGreaterEqual(found, count, f"'{pattern}' was not seen {count} times; the output:\n{job.output}")

    def wait_for_files(self, job, pattern, count, timeout_s=20):
        """Waits until self.folder has `count` files that match `pattern`; ranks create such files to report
        progress. Fails the test on timeout or if dslaunch fails first."""
        def enough():
            return len(list(self.folder.glob(pattern))) >= count or job.has_failed()
        try:
            wait_until(enough, timeout_s)
        except TimeoutError:
            pass
        found = sorted(path.name for path in self.folder.glob(pattern))
        self.assertGreaterEqual(len(found), count, f"files {pattern}: only {found}; the output:\n{job.output}")
        return found

    # The following methods check results.

    def assert_code(self, expected, code, job):
        self.assertEqual(expected, code, f"wrong exit code; the output:\n{job.output}")

    def assert_prints(self, job, *patterns):
        for pattern in patterns:
            self.assertRegex(job.output, pattern)

    def assert_presentable(self, job):
        self.assertNotRegex(job.output, STACK_TRACE)

    def assert_nothing_left(self, within_s=5, since=None):
        """Checks that no process of the job is alive `within_s` seconds after `since` (time.time(); default: now)."""
        left_s = within_s - (time.time() - since if since else 0)
        try:
            wait_until(lambda: not self.leftovers(), max(left_s, 0.05))
        except TimeoutError:
            self.fail(f"still alive after {within_s} s:\n" + "\n".join(map(str, self.leftovers())) +
                      f"\nthe output:\n{self.last_job.output}")

    def assert_secret_nowhere(self, *secrets, but=None):
        """Checks that no process has a secret in its arguments or environment, and that no file in self.folder
        except `but` contains a secret."""
        def check(where, content):
            for secret in secrets:
                self.assertNotIn(secret, content, f"{where} has a secret")
        for process in processes_with(MARK, self.mark):
            for name in ("cmdline", "environ"):
                try:
                    check(f"{name} of {process}", pathlib.Path(f"/proc/{process.pid}/{name}").read_bytes())
                except (FileNotFoundError, ProcessLookupError):
                    pass
        for path in self.folder.rglob("*"):
            if path != but and path.is_file():
                check(path, path.read_bytes())

    def end_leftovers(self):
        for process in self.leftovers():
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


REPORT_DATA = re.compile(r'(?<=<script type="application/json" id="data">).*?(?=</script>)', re.DOTALL)


def report_document(page):
    """Returns the JSON document in a page of `dslaunch report`."""
    return json.loads(REPORT_DATA.search(pathlib.Path(page).read_text())[0])


def seconds_since_written(path, ended_at):
    """Returns the seconds between the last write to `path` and `ended_at` (time.time())."""
    return ended_at - os.stat(path).st_mtime


def main():
    """Runs the tests. Exits with 77 if every test was skipped, so that ctest does not count the file as passed."""
    result = unittest.main(module="__main__", verbosity=2, argv=[sys.argv[0], *sys.argv[1:]], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun > 0 and len(result.skipped) == result.testsRun else 0)
