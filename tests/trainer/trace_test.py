"""Tests that the trace of a run shows its steps, and that gradients are exchanged while the backward pass is
running."""

import json
import os
import shutil
import tempfile
import unittest

from spawn import recipe, run

# The model has 12 MB of gradients, which is more than one bucket.
GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 256, "n_layer": 4, "n_head": 4}


class TraceTest(unittest.TestCase):
    def trace(self, overlap, steps=6):
        """Runs a training and returns [(name, begin, end)] of all events of each rank."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "text"), "wb") as file:
            file.write(bytes(range(256)) * 64)
        wanted = recipe(run={"steps": steps, "seed": 1, "trace": os.path.join(folder, "trace")},
                        engine={"train_batch_size": 8, "zero_optimization": {"stage": 0, "overlap_comm": overlap}})
        wanted.update(model=GPT2, data={"type": "text", "path": os.path.join(folder, "text")})
        ranks = run(wanted, 2)
        for rank in ranks:
            self.assertEqual((rank.code, rank.err), (0, ""))
        traces = []
        for rank in range(2):
            file = os.path.join(folder, "trace", "rank_%d.json" % rank)
            if not os.path.exists(file):
                traces.append(None)
                continue
            with open(file) as stream:
                events = json.load(stream)["traceEvents"]
            traces.append([(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("ph") == "X"])
        return ranks[0].out, traces

    def passes(self, events):
        """Returns [(begin, end)] of the backward passes, and the start times of the gradients' all-reduces."""
        embedding = sorted(e for e in events if e[0] == "autograd::engine::evaluate_function: EmbeddingBackward0")
        loss = sorted(e for e in events if e[0].startswith("autograd::engine::evaluate_function: NllLoss"))
        self.assertEqual(len(loss), 3, "three steps are recorded")
        backward = []
        for i, begin in enumerate(loss):
            limit = loss[i + 1][1] if i + 1 < len(loss) else float("inf")
            backward.append((begin[1], max(e[2] for e in embedding if begin[1] < e[1] < limit)))
        return backward, [e[1] for e in events if e[0] == "shm:all_reduce"]

    def overlapped(self, overlap):
        _, traces = self.trace(overlap)
        counts = []
        for events in traces:
            backward, begins = self.passes(events)
            for begin, end in backward:
                counts.append(sum(begin < at < end for at in begins))
        return counts

    def test_exchanges_gradients_during_backward(self):
        self.assertTrue(all(count > 0 for count in self.overlapped(True)))

    def test_exchanges_gradients_after_backward(self):
        self.assertEqual(self.overlapped(False), [0] * 6)

    def test_reports_run_too_short_for_trace(self):
        out, traces = self.trace(True, steps=2)
        self.assertEqual(traces, [None, None])
        self.assertIn("no profile: profiling starts at step 3, after the last step of this run", out)
        _, traces = self.trace(True, steps=3)
        self.assertTrue(all(traces))


if __name__ == "__main__":
    unittest.main()
