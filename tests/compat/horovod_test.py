"""Tests Horovod's way (dslaunch/horovod.h). Cases named test_... are Horovod's own, and the program itself compares
them with plain arithmetic. Each rank is a process."""

import json
import os
import tempfile
import unittest

from style_program import run

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
CASES = [
    "test_horovod_allreduce", "test_horovod_allreduce_average", "test_horovod_allreduce_product",
    "test_horovod_allreduce_prescale", "test_horovod_allreduce_async_fused", "order_differs",
    "test_horovod_allreduce_error", "test_horovod_allreduce_duplicate_name_error", "test_horovod_grouped_allreduce",
    "test_horovod_allgather_variable_size", "test_horovod_broadcast", "test_horovod_alltoall",
    "test_horovod_join_allreduce", "join_uneven_data", "test_horovod_join_allgather", "test_broadcast_state",
    "test_horovod_grouped_allreduce_inplace", "test_horovod_broadcast_inplace", "test_horovod_alltoall_zero_splits",
    "test_horovod_join_broadcast", "test_broadcast_state_options", "test_broadcast_state_no_grad",
    "test_compression_fp16", "test_no_named_parameters",
    "test_duplicate_names", "test_gradient_clipping", "backward_passes_per_step", "test_dynamic_requires_grad",
    "elastic_sampler",
]
# The ranks agree without a cache, with a cache too small for the names, without fusion, and with small messages.
SETTINGS = [
    {}, {"HOROVOD_CACHE_CAPACITY": "0"}, {"HOROVOD_CACHE_CAPACITY": "7"}, {"HOROVOD_FUSION_THRESHOLD": "0"},
    {"HOROVOD_FUSION_THRESHOLD": "1000", "HOROVOD_CYCLE_TIME": "0.2"},
]


class HorovodTest(unittest.TestCase):
    def check(self, case, ranks, **variables):
        ended = run(case, ranks, **variables)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), "%s of %d ranks" % (case, ranks))
        return ended.stdout

    def test_cases_pass_on_1_to_4_ranks(self):
        for number, case in enumerate(CASES):
            for ranks in (1, 2, 3, 4) if FULL else (2, (1, 3, 4)[number % 3]):
                self.check(case, ranks)

    def test_ranks_agree_in_every_setting(self):
        for number, variables in enumerate(SETTINGS):
            for case in "order_differs", "test_horovod_allreduce_async_fused", "test_horovod_join_allreduce":
                self.check(case, 2 + number % 3, **variables)

    def test_process_sets_exchange_separately(self):
        for ranks in 2, 4:
            self.check("process_sets", ranks)
        for ranks in 3, 4:
            self.check("test_horovod_process_sets", ranks)

    def test_reports_local_and_cross_ranks(self):
        lines = self.check("places", 3).splitlines()
        self.assertEqual(sorted(lines), ["rank %d/3 local %d/3 cross 0/1" % (rank, rank) for rank in range(3)])

    def test_reports_rank_that_never_submits(self):
        ended = run("stall", 3)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(ended.stderr.splitlines()[0],
                         r"^horovod: rank 1 has not submitted 'never' \(allreduce\) for \d+ s, and the other ranks wait")

    def test_reports_error_of_failed_rank(self):
        ended = run("rank_throws", 3)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("enough", ended.stderr)
        self.assertIn("rank 1 ended with exit code 1", ended.stderr)

    def test_timeline_has_row_for_each_tensor(self):
        with tempfile.TemporaryDirectory() as folder:
            file = folder + "/timeline.json"
            self.check("test_horovod_allreduce_async_fused", 2, HOROVOD_TIMELINE=file)
            with open(file) as text:
                events = json.load(text)
            rows = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
            self.assertEqual(set(rows.values()), {"tensor.%d" % i for i in range(100)})
            for row, name in rows.items():
                of_row = {event["name"]: event for event in events if event["ph"] == "X" and event["pid"] == row}
                self.assertLessEqual({"negotiate allreduce", "allreduce"}, set(of_row), name)
                self.assertGreaterEqual(min(event["dur"] for event in of_row.values()), 0)
            self.assertTrue(any("fusion" in event["name"] for event in events))
            ended = run("test_horovod_broadcast", 2, HOROVOD_TIMELINE=folder + "/nowhere/timeline.json")
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn("/nowhere/timeline.json cannot be written", ended.stderr)

    def test_rejects_invalid_variable(self):
        ended = run("test_horovod_broadcast", 2, HOROVOD_CYCLE_TIME="soon")
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("HOROVOD_CYCLE_TIME is 'soon'; it must be a number of at least 0", ended.stderr)


if __name__ == "__main__":
    unittest.main()
