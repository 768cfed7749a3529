"""Tests hosts under full CPU load for much longer than a node may be silent. No node may be declared lost."""

import os
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import bash  # noqa: E402

BUSY_S = 15
LOOPS_PER_CORE = 4
BUSY_LOOP = f"import time; end = time.monotonic() + {BUSY_S}\nwhile time.monotonic() < end: pass"


class Busy(HostsCase):
    def test_busy_node_is_not_declared_lost(self):
        script = """touch "$1/up.$RANK"; until [ -e "$1/go" ]; do sleep 0.1; done"""
        job = self.start(self.two_by_two(), bash(script), "-", str(self.folder))
        self.wait_for_files(job, "up.*", 4)
        begin = time.time()
        loops = [node.popen(["/usr/bin/python3", "-I", "-S", "-c", BUSY_LOOP])
                 for node in self.hosts.nodes
                 for _ in range(LOOPS_PER_CORE * (os.cpu_count() or 1) // len(self.hosts.nodes))]
        for loop in loops:
            self.assertEqual(0, loop.wait(timeout=4 * BUSY_S))
        self.assertTrue(job.running(), job.output)
        self.assertGreaterEqual(time.time() - begin, BUSY_S)
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(job, 15), job)
        self.assertNotRegex(job.output, r"\blost\b")
        self.assert_nothing_left(2)


if __name__ == "__main__":
    main()
