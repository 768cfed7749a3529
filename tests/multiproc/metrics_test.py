"""Tests metrics and goodput of a running job: files, sockets and ps --openmetrics, also with Prometheus' own
readers."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import ROOT, TWO_BY_TWO, LauncherCase, main  # noqa: E402
from test_hosts import wait_until  # noqa: E402

DASHBOARD = ROOT / "docs" / "grafana-dashboard.json"
QUICK = ["--heartbeat_s", "0.2", "--suspect_s", "0.6", "--dead_s", "2", "--grace", "1", "--restart_delay_s", "0.2"]

# Makes steps of 0.15 s. Attempt 1 ends after step 20, and attempt 2 repeats half of the steps. If HOLD_UNTIL is set,
# the ranks wait at the end until the file that it names exists.
STEPS = """
import dslaunch, os, signal, time
job = dslaunch.current_job()
reporter = dslaunch.Reporter()
time.sleep(0.3)
reporter.ready()
time.sleep(0.5)
for step in range(1 if job.attempt == 1 else 11, 41):
    time.sleep(0.15)
    reporter.step(step, total_steps=40, loss=1 / step, samples_per_s=64)
    if step == 15:
        with reporter.saving(step):
            time.sleep(0.3)
    if step == 20 and job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL) if job.rank == 1 else time.sleep(60)
while "HOLD_UNTIL" in os.environ and not os.path.exists(os.environ["HOLD_UNTIL"]):
    time.sleep(0.05)
"""


def promtool_accepts(text):
    """Returns promtool's errors about the text; "" if there are none or promtool is not installed."""
    if not shutil.which("promtool"):
        return ""
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=20)
    return checked.stdout + checked.stderr if checked.returncode else ""


# Prints the families by name as lists of (labels, value), as prometheus-client reads them.
PARSE = """
import json, sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    sys.exit(77)
json.dump({family.name: [(sample.labels, sample.value) for sample in family.samples]
           for family in text_string_to_metric_families(sys.stdin.read())}, sys.stdout)
"""


def openmetrics_families(test, text):
    """Returns the output of PARSE. Skips the test if no Python on this machine has prometheus-client, which is
    Debian's package python3-prometheus-client."""
    for python in (sys.executable, "/usr/bin/python3"):
        parsed = subprocess.run([python, "-c", PARSE], input=text, capture_output=True, text=True, timeout=60, env={})
        if parsed.returncode == 0:
            return json.loads(parsed.stdout)
        if parsed.returncode != 77:
            test.fail(f"{parsed.stderr}\n{text}")
    test.skipTest("needs python3-prometheus-client")


class Metrics(LauncherCase):
    def start_steps(self, *options, **env):
        script = self.folder / "steps.py"
        script.write_text(STEPS)
        return self.start(TWO_BY_TWO, QUICK, "--max_restarts", "1", "--json", *options, script,
                          env={"PYTHONPATH": str(ROOT / "python"), **env})

    def start_held_steps(self, *options):
        """Starts a job whose ranks wait after their last step until the returned file exists, so that slow readers
        still find the job. Returns (Job, file)."""
        go = self.folder / "go"
        return self.start_steps(*options, HOLD_UNTIL=str(go)), go

    def ask(self, path, accept="application/openmetrics-text"):
        """Returns the status and the body of GET /metrics on a Unix socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode())
            response = b"".join(iter(lambda: connection.recv(65536), b""))
        head, body = response.split(b"\r\n\r\n", 1)
        return int(head.split()[1]), body.decode()

    def test_readers_accept_file_and_socket(self):
        file, place = self.folder / "job.prom", self.folder / "metrics"
        job, go = self.start_held_steps("--metrics_file", file, "--metrics_socket", place)
        wait_until(lambda: place.exists() and self.ask(place)[1].count("\ndslaunch_rank_loss{") == 4, 60)
        status, text = self.ask(place)
        self.assertEqual(200, status)
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertEqual("", promtool_accepts(self.ask(place, accept="*/*")[1]))
        self.assertEqual("", promtool_accepts(file.read_text()))
        go.touch()
        self.assert_code(0, self.wait(job), job)
        self.assertFalse(file.exists() or place.exists(), "they end with the job")
        self.assert_nothing_left()
        families = openmetrics_families(self, text)
        self.assertEqual({"0", "1", "2", "3"}, {labels["rank"] for labels, _ in families["dslaunch_rank_step"]})
        self.assertEqual(11, len({labels["bucket"] for labels, _ in families["dslaunch_rank_goodput_seconds"]}))

    def test_ps_prints_samples_of_running_jobs(self):
        job, go = self.start_held_steps()
        samples = []

        def all_ranks_have_steps():
            samples[:] = self.run_job("ps", "--openmetrics")
            return samples[1].stdout.count("\ndslaunch_rank_step{") == 4

        wait_until(all_ranks_have_steps, 60)
        code, ps = samples
        self.assert_code(0, code, ps)
        go.touch()
        self.assert_code(0, self.wait(job), job)
        families = openmetrics_families(self, ps.stdout)
        self.assertEqual([1, 1], [up for _, up in families["dslaunch_node_up"]])
        for labels, step in families["dslaunch_rank_step"]:
            self.assertTrue(1 <= step <= 40, labels)
        for labels, memory in families["dslaunch_rank_memory_bytes"]:
            self.assertGreater(memory, 4 << 20, f"a Python process: {labels}")
        for labels, seconds in families["dslaunch_rank_cpu_seconds"]:
            self.assertTrue(0 < seconds < 60, labels)
        code, ended = self.run_job("ps", "--openmetrics")
        self.assert_code(0, code, ended)
        self.assertEqual("# EOF\n", ended.stdout)

    def test_goodput_adds_up_and_finds_repeated_steps(self):
        job = self.start_steps()
        self.assert_code(0, self.wait(job), job)
        goodput = json.loads(job.stdout.splitlines()[-1])["goodput"]
        seconds = goodput["seconds"]
        self.assertAlmostEqual(goodput["wall_s"] * 4, sum(seconds.values()), delta=0.01 * goodput["wall_s"] * 4)
        # Steps 2 to 20 and 21 to 40 are new, and steps 12 to 20 are repeated, each with 0.15 s on four ranks. The first
        # step of an attempt counts as "first_step".
        self.assertAlmostEqual(4 * 0.15 * 9, seconds["recomputed"], delta=3)
        self.assertAlmostEqual(4 * 0.15 * 39, seconds["productive"] + seconds["waiting"] + seconds["hang"], delta=12)
        self.assertAlmostEqual(2 * 4 * 0.3, seconds["save"], delta=1.5)
        self.assertGreater(seconds["first_step"], 2 * 4 * 0.6)
        self.assertEqual(0, seconds["lost"])
        (job_id,) = (path.name for path in (self.folder / "state/dslaunch/jobs").iterdir())
        code, described = self.run_job("describe", job_id)
        self.assert_code(0, code, described)
        self.assertRegex(described.stdout, r"goodput +\d+\.\d % productive of 4 ranks")

    def test_port_and_token_file_belong_together(self):
        for options in (["--metrics_port", "9464"], ["--metrics_token_file", "x"]):
            code, job = self.run_job(options, "true")
            self.assert_code(64, code, job)
            self.assert_prints(job, "belong together")

    def test_detached_job_has_no_places(self):
        code, job = self.run_job("--detach", "--metrics_file", "x.prom", "true")
        self.assert_code(64, code, job)
        self.assert_prints(job, "ps --openmetrics")

    def test_verdict_is_printed_and_obeyed(self):
        script = self.folder / "fails.py"
        script.write_text("import no_such_module_of_ours\n")
        code, job = self.run_job("--launcher", "local", "--num_gpus", "1", "--max_restarts", "3", "--restart_delay_s", "0",
                                 "--restart_on", "transient,unknown", "--json", script)
        self.assert_code(1, code, job)
        self.assert_prints(job, "a restart cannot help: the installed software does not fit",
                           "no restart: a restart cannot help .*--restart_on allows no restart")
        end = json.loads(job.stdout.splitlines()[-1])
        self.assertEqual((1, "cannot_help"), (end["attempts"], end["cause"]["restart"]))

    def test_dashboard_uses_metrics_that_exist(self):
        source = (ROOT / "cli/metrics/job_metrics.cc").read_text()
        counters = {name for name in re.findall(r'\{"(dslaunch_\w+)", kCounter', source)}
        names = {name + "_total" if name in counters else name for name in re.findall(r'"(dslaunch_\w+)"', source)}
        dashboard = json.loads(DASHBOARD.read_text())
        used = set()
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                self.assertTrue(target["expr"], panel["title"])
                used |= set(re.findall(r"dslaunch_\w+", target["expr"]))
        self.assertTrue(used)
        self.assertEqual(set(), used - names)

    def test_promtool_parses_dashboard(self):
        if not shutil.which("promtool"):
            self.skipTest("needs promtool (Debian's package prometheus)")
        rules = []
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$job", ".*").replace("$__rate_interval", "1m")
                rules.append({"record": f"test:rule{len(rules)}", "expr": expression})
        file = self.folder / "rules.json"  # contains JSON, which is also YAML
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, timeout=20)
        self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)


class LogMetrics(LauncherCase):
    """Tests examples/python/log_metrics.py with fake MLflow and W&B modules that record the calls to them."""

    FAKE = "calls = open({path!r}, 'a')\n" \
           "def __getattr__(name):\n" \
           "    return lambda *args, **named: calls.write(repr((name, args, named)) + '\\n') and calls.flush()\n"

    def log(self, service):
        lines = [{"step": 1, "attempt": 1, "loss": 0.5, "lr": 0.1, "memory": {"parameters": 7}},
                 {"step": 2, "attempt": 1, "eval": {"loss": 0.25, "accuracy": 0.9}}]
        metrics = self.folder / "metrics.jsonl"
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "lo')
        calls = self.folder / "calls"
        (self.folder / f"{service}.py").write_text(self.FAKE.format(path=str(calls)))
        done = subprocess.run([sys.executable, ROOT / "examples/python/log_metrics.py", service, metrics],
                              env={**os.environ, "PYTHONPATH": str(self.folder)}, capture_output=True, text=True, timeout=20)
        self.assertEqual(0, done.returncode, done.stderr)
        return calls.read_text()

    def test_logs_to_mlflow(self):
        calls = self.log("mlflow")
        self.assertIn("('log_metrics', ({'loss': 0.5, 'lr': 0.1, 'memory/parameters': 7.0},), {'step': 1})", calls)
        self.assertIn("('log_metrics', ({'eval/loss': 0.25, 'eval/accuracy': 0.9},), {'step': 2})", calls)

    def test_logs_to_wandb(self):
        calls = self.log("wandb")
        self.assertIn("('log', ({'loss': 0.5, 'lr': 0.1, 'memory/parameters': 7.0},), {'step': 1})", calls)


if __name__ == "__main__":
    main()
