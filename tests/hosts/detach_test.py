"""Tests detached jobs on two test hosts: they outlive their front end, can be reached again over SSH, and leave no
process or file."""

import json
import os
import signal
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import AS_USER, HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

COUNT = """touch "$1/up.$RANK"; echo "host $(hostname)"
           i=0; until [ -e "$1/go" ]; do echo "tick $i of rank $RANK"; i=$((i+1)); sleep 0.1; done"""


class DetachCase(HostsCase):
    def detach(self, script, *options):
        """Starts a detached job of four ranks with the test's folder as $1; returns the job's id."""
        for path in [*self.folder.glob("up.*"), *self.folder.glob("go")]:
            path.unlink()
        code, job = self.run_job(self.two_by_two(), "--detach", *options, bash(script), "-", str(self.folder))
        self.assert_code(0, code, job)
        self.wait_for_files(job, "up.*", 4)
        self.assertRegex(job.stdout, r"^[0-9a-f-]+\n$")
        return job.stdout.strip()

    def command(self, *arguments):
        code, job = self.run_job(*arguments)
        self.assert_presentable(job)
        return code, job

    def state(self, job_id):
        code, job = self.command("ps", "--all", "--json")
        self.assert_code(0, code, job)
        return {entry["job"]: entry for entry in json.loads(job.stdout)}[job_id]

    def wait_for_end(self, job_id):
        wait_until(lambda: self.state(job_id)["state"] == "ended", 30)
        return self.state(job_id)["exit_code"]

    def results(self, job_id):
        """Returns the content of each node's result.json."""
        found = []
        for node in self.hosts.nodes:
            text = node.run(["find", node.home, "-name", "result.json", "-path", f"*{job_id}*", "-exec", "cat", "{}", ";"])
            found.append(json.loads(text.stdout or "null"))
        return found


class Ended(DetachCase):
    def test_stop_does_not_wait_for_unreachable_node(self):
        job_id = self.detach("touch $1/up.$RANK; until [ -e $1/go ]; do sleep 0.1; done")
        (self.folder / "go").touch()
        wait_until(lambda: all(self.results(job_id)), 30)
        self.hosts.nodes[1].link_down()
        self.addCleanup(self.hosts.nodes[1].link_up)
        code, job = self.run_job("stop", job_id, timeout_s=12)
        self.assert_code(0, code, job)
        self.assert_prints(job, "has ended with exit code 0")


class Detached(DetachCase):
    def test_job_finishes_without_its_front_end(self):
        job_id = self.detach(COUNT)
        self.assertEqual([], self.front.named("dslaunch"))
        self.assertEqual(("running", 4), (self.state(job_id)["state"], self.state(job_id)["ranks"]))
        viewer = self.start("attach", job_id, "--show", "all")
        self.wait_for_output(viewer, r"\[node1:1\] tick")
        self.wait_for_output(viewer, r"\[node2:3\] tick")
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(viewer), viewer)
        self.assertEqual(0, self.wait_for_end(job_id))
        self.assertEqual([0, 0], [result.get("exit_code", 0) for result in self.results(job_id)])
        self.assert_nothing_left()
        code, job = self.command("logs", job_id, "--rank", "3")
        self.assert_code(0, code, job)
        self.assert_prints(job, r"\[node2:3\] host node2", r"tick 0 of rank 3")

    def test_stop_leaves_no_process_or_file(self):
        job_id = self.detach("setsid sleep 300 </dev/null >/dev/null 2>&1 & " + COUNT)
        code, job = self.command("stop", job_id)
        self.assert_code(0, code, job)
        self.assert_nothing_left(2)
        self.assertEqual([143, 143], [result["exit_code"] for result in self.results(job_id)])
        code, job = self.command("ps", "--prune")
        self.assert_code(0, code, job)
        for node in self.hosts.nodes:
            left = node.run(["find", node.home, "/tmp", "-name", f"*{job_id}*"]).stdout
            self.assertEqual("", left)

    def test_killed_rank_ends_job_and_is_recorded(self):
        job_id = self.detach(COUNT)
        rank = min((process for process in self.hosts.nodes[1].named("bash")
                    if process.environ.get("RANK") == "2"), key=lambda process: process.pid)
        os.kill(rank.pid, signal.SIGKILL)
        self.assert_nothing_left(5)
        self.assertEqual(137, self.wait_for_end(job_id))
        for result in self.results(job_id):
            self.assertEqual((137, 2), (result["exit_code"], result["cause"]["rank"]))
        code, job = self.command("attach", job_id)
        self.assert_code(137, code, job)

    def test_records_job_with_killed_front_end(self):
        job = self.start(self.two_by_two(), bash(COUNT), "-", str(self.folder))
        self.wait_for_files(job, "up.*", 4)
        job.signal(signal.SIGKILL)
        self.wait(job)
        self.assert_nothing_left(5)
        code, ps = self.command("ps", "--all")
        self.assert_prints(ps, r"ended \(69\)")


class DetachedAsUser(DetachCase):
    host_options = AS_USER

    def is_inspector(self, process):
        return len(process.argv) > 1 and "/agent-" in process.argv[0] and process.argv[1] == "attach"

    def test_attach_resumes_output_after_lost_connection(self):
        job_id = self.detach(COUNT)
        viewer = self.start("attach", job_id, "--show", "3")
        self.wait_for_output(viewer, r"tick \d+ of rank 3", 5)
        # The inspector on the node connects the viewer to the job's agent.
        inspectors = [process for process in self.hosts.nodes[1].processes() if self.is_inspector(process)]
        self.assertEqual(1, len(inspectors), "\n".join(map(str, self.hosts.nodes[1].processes())))
        os.kill(inspectors[0].pid, signal.SIGKILL)
        seen = viewer.stdout.count("tick")
        self.wait_for_output(viewer, r"tick \d+ of rank 3", seen + 20)
        numbers = [int(line.split("tick ")[1].split()[0]) for line in viewer.stdout.splitlines()]
        self.assertEqual(list(range(numbers[0], numbers[0] + len(numbers))), numbers)
        code, job = self.command("stop", job_id, "--now")
        self.assert_code(0, code, job)
        self.assert_code(143, self.wait(viewer), viewer)
        self.assert_nothing_left(2)


if __name__ == "__main__":
    main()
