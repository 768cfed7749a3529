"""Tests that the JSON that dslaunch writes for programs has exactly the fields of docs/reference/json.md."""

import json
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from launcher_case import FASHION_MNIST, TWO_BY_TWO, LauncherCase, bash, main  # noqa: E402
from pages import ROOT, split  # noqa: E402

# These lists and objects are empty or null in this test's jobs.
MAY_BE_UNSEEN = re.compile(r"nodes\[\]\.left\[\]\.|train\.|nodes\[\]\.reach\[\]\.|rendezvous\.|"
                           r"ranks\[\]\.processes\[\]\.threads\[\]\.frames\[\]\.|missing\[\]\.|outliers\[\]\.|nodes\[\]\.gpus\[\]\.")


def documents():
    """Returns heading -> {field: meaning} for the page."""
    prose, _ = split((ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8"))
    found = {}
    for _, line in prose:
        if line.startswith("### "):
            fields = found.setdefault(line[4:], {})
        match = re.match(r"\| `([^`]+)` \| ?(.*) ?\|$", line)
        if match:
            fields[match.group(1)] = match.group(2).strip()
    return found


def paths(value, prefix=""):
    """Returns all fields of a JSON value, outermost first."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                yield from paths(item, prefix + "[]")
    if isinstance(value, dict):
        for key, child in value.items():
            path = f"{prefix}.{key}" if prefix else key
            yield path
            yield from paths(child, path)


class JsonTest(LauncherCase):
    def check(self, name, *values):
        fields = documents()[name]
        self.assertTrue(fields, name)
        # The keys of these objects are data.
        data = tuple(path for path, meaning in fields.items() if meaning.startswith("object:"))
        seen = set()
        for value in values:
            for path in paths(value):
                if not any(path.startswith(open_path + ".") or path.startswith(open_path + "[]")
                           for open_path in data):
                    seen.add(path)
        self.assertFalse(seen - set(fields), f"{name}: the page lacks these")
        unseen = {path for path in set(fields) - seen if not MAY_BE_UNSEEN.match(path)}
        self.assertFalse(unseen, f"{name}: nothing wrote these")

    def json_of(self, *arguments, code=0):
        got, job = self.run_job(*arguments)
        self.assert_code(code, got, job)
        return json.loads(job.stdout)

    def last_line(self, *arguments, code=0):
        got, job = self.run_job(*arguments)
        self.assert_code(code, got, job)
        return json.loads(job.stdout.splitlines()[-1])

    def events(self):
        for path in self.folder.rglob("events.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def test_job_ends_and_events_match_page(self):
        fails_once = bash("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || [ $RANK != 3 ] || exit 7; sleep 0.2")
        ends = [
            self.last_line(*TWO_BY_TWO, "--json", "true"),
            self.last_line(*TWO_BY_TWO, "--json", bash("[ $RANK != 3 ] || exit 7; sleep 60"), code=7),
            self.last_line(*TWO_BY_TWO, "--json", "--max_restarts", "1", "--restart_delay_s", "0", fails_once),
        ]
        job = self.start(*TWO_BY_TWO, "--json", "--grace", "1", bash("echo here; sleep 60"))
        self.wait_for_output(job, "here")
        self.check("dslaunch stacks --json", self.json_of("stacks", "last", "--json"))
        self.check("dslaunch top --json", self.json_of("top", "last", "--json"))
        job.signal(signal.SIGQUIT)
        self.wait_for_output(job, "where the ranks are")
        job.signal(2)
        self.assert_code(130, self.wait(job), job)
        ends.append(json.loads(job.stdout.splitlines()[-1]))
        self.check("dslaunch --json", *ends)

        events = list(self.events())
        documented = documents()
        for event in events:
            self.assertIn(event["event"], documented, "the page lacks this event")
        for name in ("plan", "node_connected", "started", "restarting", "worker_ended", "outcome", "node_done",
                     "interrupted", "stacks", "end"):
            found = [{key: value for key, value in event.items() if key not in ("t", "event")}
                     for event in events if event["event"] == name]
            with self.subTest(name):
                self.check(name, *found)

    def test_version_matches_page(self):
        installed = self.json_of("--version", "--json")
        self.check("dslaunch --version --json", installed)
        self.assertEqual(installed, self.json_of("version", "--json"))
        _, job = self.run_job("--version")
        self.assertRegex(job.stdout, rf"^dslaunch {re.escape(installed['version'])}\n")
        agent, *_ = installed["agents"]
        for fact in installed["build_id"][:12], agent["machine"], agent["build_id"][:12], installed["libtorch"] or "none":
            self.assertIn(fact, job.stdout)

    def test_dry_run_matches_page(self):
        hostfile = self.folder / "hosts.yaml"
        hostfile.write_text("hosts:\n- {name: a, slots: 1, labels: {rack: r}, env: {MODE: fast}}\n")
        self.check("dslaunch --dry_run --json", self.json_of("-H", hostfile, "--dry_run", "--json", "true"),
                   self.json_of("--dry_run", "--json", "--launcher", "local", "train", "fashion_mnist"))

    def test_ps_matches_page(self):
        self.run_job(*TWO_BY_TWO, "true")
        self.check("dslaunch ps --json", self.json_of("ps", "--all", "--json"))

    def test_doctor_matches_page(self):
        code, job = self.run_job("doctor", "--launcher", "local", "--num_nodes", "2", "--num_gpus", "1", "--bench", "--json")
        self.assertIn(code, (0, 69), job.output)  # the result depends on this machine
        self.check("dslaunch doctor --json", json.loads(job.stdout))

    def test_hostfile_check_matches_page(self):
        hostfile = self.folder / "hosts"
        hostfile.write_text("no-such-host.invalid slots=1\n")
        code, job = self.run_job("hostfile", "check", hostfile, "--json", "--connect_timeout", "5")
        self.assertNotEqual(0, code, job.output)
        self.check("dslaunch hostfile check --json", json.loads(job.stdout))

    def test_tune_matches_page(self):
        code, job = self.run_job("--launcher", "local", "-n", "2", "tune", *FASHION_MNIST, "--budget", "15", "--json",
                                 "--set", "run.device=cpu", timeout_s=120)
        self.assert_code(0, code, job)
        self.check("dslaunch tune --json", json.loads(job.stdout))

    def test_checkpoint_ls_matches_page(self):
        code, job = self.run_job("--num_gpus", "1", "train", "--steps", "2", "--save_every", "1", "--checkpoint_dir", "kept",
                                 timeout_s=120)
        self.assert_code(0, code, job)
        self.check("dslaunch checkpoint ls --json", self.json_of("checkpoint", "ls", "kept", "--json"))
        self.check("dslaunch checkpoint diff --json", self.json_of(
            "checkpoint", "diff", "kept/step_000001", "kept/step_000002", "--json", code=1))


if __name__ == "__main__":
    main()
