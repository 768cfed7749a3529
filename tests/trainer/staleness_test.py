"""Tests a parameter server that updates as gradients arrive. Ranks must be ahead by at most `staleness` steps, and
training must converge. The loss of a worker must not end the run, and the loss of a server must."""

import glob
import math
import os
import re
import shutil
import signal
import tempfile
import time
import unittest

from inputs import write_idx_part
from spawn import Job, recipe, run as run_whole, run_with_metrics, steps_of

BAD_INPUT, UNAVAILABLE, TIMED_OUT, PREEMPTED = 65, 69, 75, 85


def stale(staleness, servers=2):
    return {"parallel": {"mode": "parameter_server", "servers": servers, "staleness": staleness}}


class StalenessTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def start(self, staleness, world=4, servers=2, shared_memory=True, engine=None, data=None, **run):
        """Starts a job whose ranks write a record of each step into their own folders."""
        folders = {}
        for rank in range(world):
            folder = os.path.join(self.dir, "rank_%d" % rank)
            os.makedirs(folder, exist_ok=True)
            folders[rank] = {"DSLAUNCH_RANK_DIR": folder}
        if not shared_memory:
            for variables in folders.values():
                variables["DSLAUNCH_SHM_DISABLE"] = "1"
        run = {"seed": 3, "metrics_jsonl": os.path.join(self.dir, "metrics.jsonl"), **run}
        engine = {**stale(staleness, servers), **(engine or {})}
        return Job(recipe(engine=engine, run=run, data=data), world, env_of_rank=folders)

    def bounded(self, shared_memory):
        """Returns a short timeout for Gloo, because a rank whose peer is killed during a message waits until the
        timeout."""
        return {} if shared_memory else {"collective_timeout_s": 15}

    def steps(self, rank):
        """Returns the records of the rank; empty if it has written none."""
        try:
            with open(os.path.join(self.dir, "rank_%d" % rank, "metrics.jsonl")) as file:
                return steps_of([line for line in file if line.endswith("\n")])
        except FileNotFoundError:
            return []

    def last(self, rank):
        steps = self.steps(rank)
        return steps[-1]["step"] if steps else 0

    def where_they_stand(self):
        """Returns the last step of each rank, once no rank has completed a step for two seconds."""
        for _ in range(20):
            before = [self.last(rank) for rank in range(4)]
            time.sleep(2)
            if before == [self.last(rank) for rank in range(4)]:
                return before
        self.fail("ranks go on without the one that is stopped")

    def test_converges_at_each_staleness(self):
        for staleness in (0, 1, 3):
            for world, servers in (4, 2), (2, 1):
                with self.subTest(staleness=staleness, world=world, servers=servers):
                    whole = recipe(engine=stale(staleness, servers), run={"steps": 40, "seed": 3})
                    _, steps = run_with_metrics(whole, world)
                    losses = [step["loss"] for step in steps]
                    self.assertEqual(len(losses), 40)
                    self.assertTrue(all(map(math.isfinite, losses)), losses)
                    self.assertLess(sum(losses[-5:]) / 5, 0.7 * losses[0])

    def test_one_rank_matches_training_without_servers(self):
        optimizer = {"type": "AdamW", "params": {"lr": 0.002}}
        scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.002, "warmup_num_steps": 6}}
        run = {"steps": 10, "seed": 3}
        engine = {"scheduler": scheduler, "gradient_clipping": 0.5, "gradient_accumulation_steps": 2}
        _, alone = run_with_metrics(recipe(optimizer=optimizer, engine=engine, run=run), 1)
        _, served = run_with_metrics(recipe(optimizer=optimizer, engine={**engine, **stale(2, 1)}, run=run), 1)
        for one, other in zip(alone, served, strict=True):
            for key in ("step", "loss", "lr", "grad_norm"):
                self.assertAlmostEqual(one[key], other[key], delta=1e-6 * abs(one[key]), msg=key)

    def test_no_rank_exceeds_the_staleness(self):
        for staleness in (0, 3):
            for stopped in (3, 1):  # 3 is a worker; 1 is a server, which also trains
                with self.subTest(staleness=staleness, stopped=stopped), self.start(staleness, steps=10_000_000) as job:
                    job.wait_for(lambda: min(map(self.last, range(4))) > 5, 60, "the first steps are made")
                    job.processes[stopped].send_signal(signal.SIGSTOP)
                    ahead = self.where_they_stand()
                    # The stopped rank may have completed a step that it has not recorded. A stopped server answers no
                    # rank.
                    most = ahead[stopped] + staleness + 2
                    self.assertLessEqual(max(ahead), most)
                    if stopped == 3:
                        self.assertGreaterEqual(ahead[0], most - 1)
                        self.assertGreaterEqual(ahead[2], most - 1)
                    job.processes[stopped].send_signal(signal.SIGCONT)
                    job.wait_for(lambda: min(map(self.last, range(4))) > most, 60, "all go on with it")
                shutil.rmtree(self.dir)

    def test_training_continues_without_lost_worker(self):
        for shared_memory in (True, False):  # False uses Gloo
            with self.subTest(shared_memory=shared_memory), \
                    self.start(1, shared_memory=shared_memory, steps=300, checkpoint_dir=os.path.join(self.dir, "saved"),
                               save_every=100, eval_every=150, **self.bounded(shared_memory)) as job:
                job.wait_for(lambda: self.last(3) > 5, 60, "the first steps are made")
                job.processes[3].kill()
                ranks = job.finish(120)
                self.assertEqual(ranks[3].code, -9)
                self.assertIn('"loss_tolerated":true', ranks[3].status)
                self.assertIn('"loss_tolerated":true', ranks[2].status)
                self.assertNotIn("loss_tolerated", ranks[0].status + ranks[1].status, "of servers it is not")
                for number in (0, 1, 2):
                    self.assertEqual(ranks[number].code, 0, ranks[number].err)
                self.assertRegex(ranks[0].err, r"^rank 3 is lost; training continues without it .*\n$")
                self.assertEqual(ranks[1].err + ranks[2].err, "")
                self.assertEqual([self.last(rank) for rank in (0, 1, 2)], [300] * 3)
                self.assertIn("step_000300", os.listdir(os.path.join(self.dir, "saved")))
            shutil.rmtree(self.dir)

    def test_declares_stalled_worker_lost(self):
        """Ranks that wait for the stalled worker must not be declared lost. They wait for the next step or, with
        eval_every, for the evaluation."""
        for shared_memory in (True, False):
            for run in {"steps": 200}, {"steps": 40, "eval_every": 1}:
                with self.subTest(shared_memory=shared_memory, run=run), \
                        self.start(0, shared_memory=shared_memory, collective_timeout_s=5, **run) as job:
                    job.wait_for(lambda: min(map(self.last, range(4))) > 2, 60, "the first steps are made")
                    job.processes[3].send_signal(signal.SIGSTOP)
                    job.wait_for(lambda: all(each.poll() is not None for each in job.processes[:3]), 60, "the others end")
                    self.assertRegex(job.read(0, 1), r"^rank 3 is lost; training continues without it .*\n$")
                    self.assertEqual([job.processes[rank].poll() for rank in range(3)], [0, 0, 0],
                                     [job.read(rank, 1) for rank in (1, 2)])
                    self.assertEqual([self.last(rank) for rank in range(3)], [run["steps"]] * 3)
                shutil.rmtree(self.dir)

    def test_lost_server_ends_the_run(self):
        for victim in (0, 1):
            with self.subTest(victim=victim), self.start(3, steps=10_000_000) as job:
                job.wait_for(lambda: min(map(self.last, range(4))) > 5, 60, "the first steps are made")
                job.processes[victim].kill()
                for number, rank in enumerate(job.finish(20)):
                    self.assertEqual(rank.code, -9 if number == victim else UNAVAILABLE, rank.err)
                    if number != victim:
                        self.assertRegex(rank.err, r"(?m)^dslaunch-train: rank %d: another rank was lost, .*$" % number)
                        self.assertNotIn("continues without", rank.err)
            shutil.rmtree(self.dir)

    def test_does_not_report_workers_of_lost_server(self):
        """Rank 0 is waiting for its data when the other ranks exit."""
        slow = {"type": "plugin", "plugin": os.environ["DSLAUNCH_MISTAKEN_DATA"], "name": "mistaken",
                "params": {"rank": 0, "fetch_ms": 1000}}
        for shared_memory in (True, False):
            with self.subTest(shared_memory=shared_memory), \
                    self.start(1_000_000, shared_memory=shared_memory, engine={"train_batch_size": 16}, data=slow,
                               steps=10_000_000, **self.bounded(shared_memory)) as job:
                job.wait_for(lambda: min(map(self.last, (2, 3))) > 5, 60, "the first steps are made")
                job.processes[1].kill()
                ranks = job.finish(60)
                self.assertEqual(ranks[1].code, -9)
                for number in (0, 2, 3):
                    self.assertIn(ranks[number].code, [UNAVAILABLE] if shared_memory else [UNAVAILABLE, TIMED_OUT])
                lost = "was lost, " if shared_memory else "(was lost, |did not answer )"
                self.assertRegex(ranks[0].err, r"^dslaunch-train: rank 0: another rank %s.*\n$" % lost)
            shutil.rmtree(self.dir)

    def test_failed_worker_is_not_reported_lost(self):
        """The failed worker's own message gives the cause. With an agent, the other ranks would be ended."""
        torn = {"type": "plugin", "plugin": os.environ["DSLAUNCH_MISTAKEN_DATA"], "name": "mistaken",
                "params": {"rank": 3, "throws_at": 5}}
        with self.start(2, engine={"train_batch_size": 16}, data=torn, steps=300) as job:
            ranks = job.finish(60)
            self.assertEqual([rank.code for rank in ranks], [0, 0, 0, BAD_INPUT])
            self.assertEqual([rank.err for rank in ranks[:3]], [""] * 3)
            self.assertRegex(ranks[3].err, r"^dslaunch-train: rank 3: .*sample 5 is torn.*\n$")

    def test_stopped_run_resumes_from_checkpoint(self):
        saved = os.path.join(self.dir, "saved")
        with self.start(2, steps=10_000_000, checkpoint_dir=saved) as job:
            job.wait_for(lambda: min(map(self.last, range(4))) > 5, 60, "the first steps are made")
            for process in job.processes:
                process.send_signal(signal.SIGTERM)
            for rank in job.finish(30):
                self.assertEqual(rank.code, PREEMPTED, rank.err)
        at, = glob.glob(saved + "/step_*")
        step = int(at[-6:])
        first = self.steps(0)[0]["loss"]
        # The checkpoint can also be resumed in another mode.
        for engine, steps in (stale(2), step + 20), ({"zero_optimization": {"stage": 2}}, step + 30):
            whole = recipe(engine=engine, run={"steps": steps, "seed": 3, "checkpoint_dir": saved, "save_every": 10})
            _, metrics = run_with_metrics(whole, 4)
            self.assertEqual(metrics[0]["step"], step + 1)
            self.assertLess(metrics[0]["loss"], first)
            step = steps

    def test_rejects_options_that_need_all_ranks_per_step(self):
        for run in {"check_replicas_every": 1}, {"mode": "compare_precision"}:
            with Job(recipe(engine=stale(1), run={"steps": 3, **run}), 2) as job:
                for rank in job.finish(30):
                    self.assertEqual(rank.code, BAD_INPUT)
                    self.assertIn("run." + next(iter(run)), rank.err)
                    self.assertIn("with engine.parallel.staleness ranks make their steps apart", rank.err)

    def test_saves_at_last_step_without_deadlock(self):
        """The last step saves too, so the servers synchronize twice. The outcome depends on which server is faster."""
        for round in range(5):
            run = {"steps": 2, "seed": round, "checkpoint_dir": os.path.join(self.dir, str(round)), "save_every": 1}
            run_with_metrics(recipe(engine=stale(0, 3), run=run), 4)

    def test_saved_weights_match_evaluated_ones(self):
        run = {"steps": 20, "seed": 3, "checkpoint_dir": os.path.join(self.dir, "saved")}
        ranks, _ = run_with_metrics(recipe(engine=stale(2), run=run), 4)
        trained, = re.findall(r"test accuracy .*", ranks[0].out)
        for engine in stale(2), {}:
            whole = recipe(engine=engine, run={**run, "mode": "evaluate"})
            evaluated, = re.findall(r"test accuracy .*", run_whole(whole, 4)[0].out)
            self.assertEqual(evaluated, trained)


class ModelsTest(unittest.TestCase):
    """Tests every kind of built-in model, because each has gradients of different kinds of layers."""

    GPT2 = {"type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}

    def test_trains_each_model_with_servers(self):
        text = {"type": "text", "path": __file__}
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        write_idx_part(folder, {"train": 60, "t10k": 20})
        images = {"type": "idx", "path": folder}
        for model, data in ("mlp", images), ("cnn", images), ("resnet18", images), (self.GPT2, text):
            for parallel in {"mode": "parameter_server", "servers": 2}, stale(1)["parallel"]:
                with self.subTest(model=model, parallel=parallel):
                    whole = recipe(engine={"train_batch_size": 12, "parallel": parallel}, run={"steps": 2, "seed": 1})
                    whole["model"] = model if isinstance(model, dict) else {"type": model}
                    whole["data"] = data
                    ranks, steps = run_with_metrics(whole, 3)
                    self.assertEqual([step["step"] for step in steps], [1, 2])
                    self.assertTrue(all(math.isfinite(step["loss"]) for step in steps))


if __name__ == "__main__":
    unittest.main()
