"""Runs the soak for ten minutes, in ./run-tests --full. python3 tests/hosts/soak.py --hours 2 runs it longer."""

import os
import random
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
import soak  # noqa: E402
from hosts_case import main  # noqa: E402

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"


@unittest.skipUnless(FULL, "takes ten minutes: DSLAUNCH_TEST_FULL=1")
class Soak(unittest.TestCase):
    def test_random_faults_for_five_minutes_per_user(self):
        for user in ("root", "tester"):
            with self.subTest(user=user):
                soak.soak(300, random.randrange(1 << 32), user, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
