"""A Python torch.distributed script runs unchanged on two test hosts."""

import pathlib
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import ORACLE_PYTHON, HostsCase, main  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("ddp_script.py")


class TorchDdp(HostsCase):
    def setUp(self):
        super().setUp()
        if not ORACLE_PYTHON.exists():
            self.fail(f"{ORACLE_PYTHON} is missing; packaging/fetch-oracle makes it")

    def test_two_hosts(self):
        code, job = self.run_job(self.two_by_two(), ORACLE_PYTHON, SCRIPT, timeout_s=150)
        self.assert_code(0, code, job)
        self.assert_says(job, r"\[node1:0\] world 4 hosts \['node1', 'node2'\] same weights True loss fell True")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
