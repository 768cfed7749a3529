"""Tests `dslaunch report`: the page about a job, made from files that its ranks left on their nodes, and opened in
Chromium."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from launcher_case import REPORT_DATA, TRAIN, TWO_BY_TWO, LauncherCase, bash, main, report_document  # noqa: E402

# Writes the files of a training program with two starts of four ranks. Rank 3 is slow, and rank 1 fails in the first
# start.
PROGRAM = r'''
import json, math, os, sys, time
rank, start = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
folder = os.environ["DSLAUNCH_RANK_DIR"]
first, last = (1, 300) if start == 1 else (201, 600)
with open(folder + "/metrics.jsonl", "w") as metrics:
    for step in range(first + 9, last + 1, 10):
        own = (0.40 if rank == 3 else 0.30) * (1 + 0.02 * math.sin(step + rank)) * (5 if step < first + 10 else 1)
        line = {"step": step, "steps": 10, "attempt": start, "step_s": max(own, 0.41), "compute_s": own}
        if rank == 0:
            line.update(epoch=1 + step // 400, loss=2 + 8 * math.exp(-step / 100) + 0.1 * math.sin(step),
                        lr=6e-4 * min(1, step / 100), grad_norm=1 + 0.3 * math.cos(step), loss_scale=65536 / 2 ** (step // 300),
                        skipped=step == 310, samples=step * 32, tokens=step * 32768, samples_per_s=32 / line["step_s"],
                        tokens_per_s=32768 / line["step_s"], mfu=0.4,
                        memory={"parameters": 5e8, "gradients": 5e8, "optimizer": 1e9, "activations": 1.9e9, "peak_rss": 4e9})
        metrics.write(json.dumps(line) + "\n")
    metrics.write("this is no JSON\n")
if start == 1 and rank == 1:
    time.sleep(0.5)
    sys.exit(9)
if start == 1:
    time.sleep(60)
if rank == 0:
    with open(folder + "/run.json", "w") as run:
        json.dump({"model": "gpt2", "parameters": 124439808, "dtype": "bf16", "world_size": 4, "zero_stage": 1,
                   "memory_plan": {"parameters": 5e8, "gradients": 5e8, "optimizer": 1e9, "activations": 1.8e9}}, run)
with open(folder + "/profile.json", "w") as profile:
    json.dump({"rank": rank, "steps": 3, "wall_s": 1.23,
               "operators": [{"name": name, "calls": 36, "self_s": s, "total_s": s, "self_bytes": 1e6}
                             for name, s in (("aten::addmm", 0.4), ("aten::mm<script>alert(1)</script>", 0.3), ("aten::gelu", 0.1))],
               "communication": {"total_s": 0.4, "hidden_s": 0.3,
                                 "kinds": [{"name": "all_reduce", "calls": 12, "bytes": 1.5e9, "s": 0.4}]}}, profile)
with open(folder + "/trace.json", "w") as trace:
    json.dump({"traceEvents": []}, trace)
'''

# Inspects the page from outside after its script has drawn it, and writes the findings as its own text.
HARNESS = '''<!DOCTYPE html><body style="margin:0"><iframe id="page" src="PAGE" style="border:0;width:WIDTHpx;height:900px">
</iframe><pre id="seen"></pre><script>
page.onload = () => {
  const inside = page.contentDocument, root = inside.documentElement;
  const box = element => { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  seen.textContent = JSON.stringify({
    title: inside.title, width: root.clientWidth, scroll_width: root.scrollWidth,
    sections: Object.fromEntries([...inside.querySelectorAll("main > [id]")].map(e => [e.id, e.innerText])),
    text: inside.body.innerText, background: getComputedStyle(inside.body).backgroundColor,
    scripts: inside.scripts.length,
    tile_columns: getComputedStyle(inside.getElementById("summary")).gridTemplateColumns.split(" ").length,
    empty_cards: [...inside.querySelectorAll(".card")].filter(e => !e.querySelector("svg,table,ul")).map(e => e.id),
    plots: [...inside.querySelectorAll("svg.plot")].filter(e => box(e)[2] > box(e)[0]).map(svg => ({
      section: svg.closest("section").id, box: box(svg), frame: box(svg.parentElement),
      lines: [...svg.querySelectorAll("polyline")].map(box), texts: [...svg.querySelectorAll("text")].map(box),
      labels: [...svg.querySelectorAll("text")].map(e => e.textContent),
      points: [...svg.querySelectorAll("polyline")].map(e => e.getAttribute("points")),
      shapes: Object.fromEntries([".mark.strong", ".band", ".cross", ".dot"].map(s => [s, svg.querySelectorAll(s).length])),
      tooltip: svg.querySelector("title")?.textContent}))});
};
</script></body>'''


class ReportTest(LauncherCase):
    def chromium(self, page, *options):
        """Opens a page without a network; returns (document after the page's script, Chromium's log)."""
        chromium = shutil.which("chromium")
        self.assertTrue(chromium, "chromium is not installed; packaging/install-debian-packages --tests")
        alone = ["unshare", "-n"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*alone, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={self.folder}/chromium", "--host-resolver-rules=MAP * ~NOTFOUND",
             "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=5000", *options,
             "--dump-dom", page.as_uri()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            env={**os.environ, "HOME": str(self.folder)})
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout, done.stderr

    def look(self, page, width=1280, *options):
        """Returns what HARNESS finds in the page, in a window of this width."""
        harness = self.folder / f"harness.{width}.html"
        harness.write_text(HARNESS.replace("PAGE", page.as_uri()).replace("WIDTH", str(width)))
        document, log = self.chromium(harness, f"--window-size={width},900", *options)
        seen = re.search(r'<pre id="seen">(.*?)</pre>', document, re.DOTALL)
        self.assertTrue(seen and seen[1], f"the page was not loaded:\n{log}")
        text = seen[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        seen = json.loads(text)
        self.assertEqual([], seen["empty_cards"], "cards with nothing in them")
        self.assertNotRegex(seen["text"], r"[-\u2212][\d.e+]+ ([KMGT]i)?B\b", "negative bytes")
        self.assertLessEqual(seen["scroll_width"], seen["width"], f"the page is wider than a window of {width}")
        for plot in seen["plots"]:
            self.assert_within([plot["box"][0], 0, plot["box"][2], 0], [plot["frame"][0], 0, plot["frame"][2], 0],
                               f"{plot['section']} is cut off at {width}")
            for one, other in itertools.combinations(plot["texts"], 2):
                self.assertTrue(one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 3 or
                                other[3] <= one[1] + 3, f"{plot['section']}: texts on each other at {width}")
        return seen

    def draw(self, page, *plots):
        """Returns what HARNESS finds in a page that shows these plots in place of its own document."""
        usual = {"title": "Plot", "unit": "", "number": "number", "scale": "linear", "from_zero": False, "height": 240}
        document = {"heading": "Plots", "tiles": [], "cards": [
            {"id": f"plot{i}", "heading": "Plot", "width": "half", "lead": "", "parts": [{"plot": {**usual, **plot}}]}
            for i, plot in enumerate(plots)]}
        other = page.with_suffix(".plots.html")
        other.write_text(REPORT_DATA.sub(lambda _: json.dumps(document), page.read_text()))
        return self.look(other)["plots"]

    def report(self, *arguments, code=0):
        got, job = self.run_job("report", *arguments)
        self.assert_code(code, got, job)
        self.assert_presentable(job)
        return job

    def program(self):
        path = self.folder / "train.py"
        path.write_text(PROGRAM)
        return ["--max_restarts", "1", "--restart_delay_s", "0", path]

    def job_folder(self):
        folders = list((self.folder / "state" / "dslaunch" / "jobs").iterdir())
        self.assertEqual(1, len(folders), folders)
        return folders[0]

    def assert_within(self, inner, outer, what):
        slack = 1
        self.assertTrue(inner[0] >= outer[0] - slack and inner[1] >= outer[1] - slack and
                        inner[2] <= outer[2] + slack and inner[3] <= outer[3] + slack,
                        f"{what}: {inner} is not within {outer}")

    def assert_plots(self, seen):
        self.assertEqual(["loss", "lr", "grad_norm", "loss_scale", "throughput", "mfu", "step_time"],
                         [plot["section"] for plot in seen["plots"]])
        for plot in seen["plots"]:
            left, top, right, bottom = plot["box"]
            self.assertGreater(right - left, 200, plot["section"])
            self.assertGreater(bottom - top, 100, plot["section"])
            self.assertGreater(len(plot["lines"]), 0, plot["section"])
            self.assertGreater(len(plot["texts"]), 5, plot["section"])
            for text in plot["texts"]:
                self.assert_within(text, plot["box"], plot["section"] + ", a text")
            self.assertTrue(any(line[2] - line[0] > 50 for line in plot["lines"]), plot["section"])

    def test_page_of_restarted_job_shows_all_attempts(self):
        code, job = self.run_job(TWO_BY_TWO, self.program())
        self.assert_code(0, code, job)
        told = self.report("last")
        job_id = self.job_folder().name
        page = self.folder / f"{job_id}.html"
        self.assert_prints(told, f"wrote {job_id}.html")

        document, log = self.chromium(page)
        # Messages of Chromium's own start page are excluded.
        said = [line for line in log.splitlines() if "CONSOLE" in line and "source: chrome://" not in line]
        self.assertEqual(said, [], "an error of the page")
        self.assertNotRegex(document, r"<script>alert|<img|<link|(src|href)=")

        seen = self.look(page)
        self.assertIn(job_id, seen["title"])
        self.assertEqual(2, seen["scripts"], "the document and the script that draws it")
        self.assertEqual("gpt2", report_document(page)["heading"])
        self.assert_plots(seen)
        for plot in seen["plots"]:
            self.assert_within([plot["box"][0], 0, plot["box"][2], 0], [0, 0, seen["width"], 0], plot["section"])
        for word in ("gpt2", "ended (0)", job_id, "124.4M parameters, bf16, ZeRO stage 1", "train.py"):
            self.assertIn(word, seen["text"])
        sections = seen["sections"]
        self.assertRegex(sections["summary"], r"Ranks\s+4\s+on 2 nodes: node0, node1")
        self.assertRegex(sections["summary"], r"Duration\s+.*\s+with 1 restart")
        self.assertRegex(sections["summary"], r"the slowest is rank 3, \+3\d%")
        self.assertRegex(sections["summary"], r"Communication hidden\s+75%")
        self.assertRegex(sections["step_time"], r"A straggler: rank 3 \(node1\) takes 4\d\d ms, 3\d% more")
        self.assertRegex(sections["loss"], r"at step 600")
        self.assertIn("restart 1", sections["loss"])
        self.assertIn("1 window with a skipped step", sections["loss_scale"])
        self.assertIn("aten::mm<script>alert(1)</script>", sections["operators"], "a name is only text")
        self.assertRegex(sections["communication"], r"all_reduce\s+4\s")
        self.assertRegex(sections["memory"], r"activations\s+1.7 GiB\s+1.8 GiB\s+\+5.6%")
        self.assertRegex(sections["starts"], r"1\s.*rank 1.*exit")
        self.assertEqual(4, sections["traces"].count("/attempt_2/rank_"))
        self.assertRegex(sections["left_out"], r"8 lines of the ranks' metrics could not be understood")
        self.assertNotIn("No rank", seen["text"])

        self.assertEqual(4, seen["tile_columns"])
        tablet = self.look(page, 900)
        self.assertEqual(4, tablet["tile_columns"])
        self.assert_plots(tablet)
        narrow = self.look(page, 390)
        self.assertEqual(2, narrow["tile_columns"])
        self.assert_plots(narrow)
        dark = self.look(page, 1280, "--blink-settings=preferredColorScheme=0")
        self.assertNotEqual(seen["background"], dark["background"])

    def test_script_draws_any_plot(self):
        code, job = self.run_job(["--launcher", "local"], "true")
        self.assert_code(0, code, job)
        page = self.folder / "page.html"
        self.report("last", "-o", page)
        def line(*points, **more):
            return {"name": "loss", "color": 0, "pieces": [list(points)], **more}
        linear, log, powers, marked, dot, narrow, *extreme = self.draw(
            page,
            {"lines": [line([1, 0], [2000, 10])], "from_zero": True},
            {"lines": [line([1, 1], [2, 10], [3, 100], [4, 0])], "scale": "log10"},
            {"lines": [line([1, 1024], [9, 65536])], "scale": "log2", "number": "whole"},
            {"lines": [line([0, 1], [100, 2]), line([0, 2], [100, 1], color=-1, name="other")],
             "band": [[0, 0.5, 1.5], [100, 1, 3]], "crosses": [20, 20, 80],
             "marks": [{"x": 50, "label": "restart 1", "strong": True}, {"x": 51, "label": "epoch 2"},
                       {"x": 500, "label": "beyond"}]},
            {"lines": [line([7, 0.5])], "number": "percent"},
            {"lines": [line([1, 0.2], [2, 0.4])], "scale": "log10", "number": "seconds"},
            *[{"lines": [line(*points)], "scale": scale} for scale in ("linear", "log10", "log2")
              for points in ([[1, 5], [2, 5]], [[1, 1e30], [2, -1e30]], [[1, 1e-30], [2, 1e-9]], [[9e15, 1], [9e15, 2]])])
        self.assertEqual(["0", "5", "10", "500", "1000", "1500", "2000", "step"], linear["labels"])
        first, last = [[float(part) for part in point.split(",")] for point in linear["points"][0].split(" ")]
        self.assertTrue(0 < first[0] < last[0] < 440 and 0 < last[1] < first[1] < 240, "more is further up")
        heights = [float(point.split(",")[1]) for point in log["points"][0].split(" ")]
        self.assertEqual(3, len(heights), "a logarithmic axis has no place for 0")
        self.assertAlmostEqual(heights[0] - heights[1], heights[1] - heights[2], delta=0.2)
        self.assertEqual(["1", "10", "100"], log["labels"][:3])
        self.assertEqual(["1024", "2048", "4096", "8192", "16384", "32768", "65536"][::2], powers["labels"][:4])
        self.assertEqual({".mark.strong": 1, ".band": 1, ".cross": 2, ".dot": 0}, marked["shapes"])
        self.assertIn("restart 1", marked["labels"])
        self.assertNotIn("epoch 2", marked["labels"], "there is no room for it")
        self.assertNotIn("beyond", marked["labels"])
        self.assertEqual("step 0\nloss: 1\nother: 2", marked["tooltip"])
        self.assertEqual(1, dot["shapes"][".dot"])
        self.assertIn("50%", dot["labels"])
        self.assertEqual(["200 ms", "250 ms", "300 ms", "350 ms", "400 ms"], narrow["labels"][:5])
        for plot in extreme:
            self.assertNotRegex(" ".join(plot["points"]), "NaN|Infinity")
            self.assertLessEqual(3, len(plot["labels"]))
            self.assertLessEqual(len(plot["labels"]), 25)

    @unittest.skipUnless(os.path.exists(TRAIN), "dslaunch was built without the trainer")
    def test_page_of_training_shows_its_sections(self):
        code, job = self.run_job(["--launcher", "local"], "--num_nodes", 2, "--num_gpus", 1, "train", "fashion_mnist",
                                 "--steps", 60, "--profile", "--set", "engine.memory_breakdown=true",
                                 "--set", "run.peak_tflops=0.1", timeout_s=120)
        self.assert_code(0, code, job)
        page = self.folder / "page.html"
        self.report("last", "-o", page)
        seen = self.look(page)
        sections = seen["sections"]
        self.assertLessEqual({"loss", "lr", "grad_norm", "throughput", "mfu", "step_time"},
                             {plot["section"] for plot in seen["plots"]})
        self.assertRegex(sections["loss"], r"at step 60")
        self.assertRegex(sections["summary"], r"Ranks\s+2\s+on 2 nodes")
        self.assertRegex(sections["summary"], r"Communication hidden\s+\d+%")
        self.assertIn("aten::addmm", sections["operators"])
        self.assertRegex(sections["communication"], r"all_reduce\s+\d+\s")
        for category in "parameters", "gradients", "optimizer":  # both ranks have equal values
            self.assertRegex(sections["memory"], category + r"\s+([\d.]+ [KM]iB)\s+\1\s")
        self.assertEqual(2, sections["traces"].count("/attempt_1/rank_"))
        self.assertNotIn("left_out", sections)
        self.assertRegex(seen["text"], r"Batch \d+ = \d+ x 1 x 2, AdamW?, lr [\d.]+; data /usr/share/datasets")
        for width in 400, 900, 1600:
            self.look(page, width)

    def test_page_of_failed_job_shows_only_the_cause(self):
        code, job = self.run_job(["--launcher", "local"], "--num_gpus", 2, bash("[ $RANK = 0 ] || exit 3; sleep 60"))
        self.assert_code(3, code, job)
        page = self.folder / "page.html"
        self.report("last", "-o", page)
        for width in 400, 900, 1600:
            seen = self.look(page, width)
        self.assertEqual({"summary", "cause", "goodput", "not_recorded"}, set(seen["sections"]))
        self.assertRegex(seen["sections"]["cause"], "rank 1 .*exited with code 3")
        self.assertIn("No rank has left a metrics.jsonl", seen["sections"]["not_recorded"])

    def test_reports_running_job_and_keeps_existing_files(self):
        script = ('echo \'{"step": 1, "step_s": 0.5, "loss": 3.5}\' > $DSLAUNCH_RANK_DIR/metrics.jsonl; touch up.$RANK; '
                  f'while [ ! -e {self.folder}/go ]; do sleep 0.05; done')
        running = self.start(TWO_BY_TWO, bash(script))
        self.wait_for_files(running, "up.*", 4)
        page = self.folder / "out" / "now.html"
        page.parent.mkdir()
        self.report("last", "-o", page)
        seen = self.look(page)
        self.assertIn("running", seen["text"])
        self.assertRegex(seen["sections"]["summary"], r"Last loss\s+3.5")
        for section, way in (("operators", "--profile"), ("memory", "memory_breakdown"), ("mfu", "peak_tflops")):
            self.assertIn(way, seen["sections"]["not_recorded"], section)
        before = page.read_bytes()
        self.assert_prints(self.report("last", "-o", page, code=64), "exists and was not changed; --force overwrites it")
        self.assertEqual(before, page.read_bytes())
        self.report("last", "-o", page, "--force")
        self.assertNotEqual(before, page.read_bytes(), "it says another time")
        (self.folder / "go").touch()
        self.assert_code(0, self.wait(running), running)
        self.assert_nothing_left()

    def test_reads_only_regular_files_of_nodes(self):
        secret = self.folder / "secret"
        secret.write_text('{"model": "the-secret"}\n')
        script = ('if [ $RANK = 0 ]; then ln -s {0} $DSLAUNCH_RANK_DIR/run.json; mkfifo $DSLAUNCH_RANK_DIR/metrics.jsonl; '
                  'mkdir $DSLAUNCH_RANK_DIR/profile.json; fi')
        code, job = self.run_job(TWO_BY_TWO, bash(script.format(secret)))
        self.assert_code(0, code, job)
        self.report("last", "-o", self.folder / "page.html")
        page = (self.folder / "page.html").read_text()
        self.assertNotIn("the-secret", page)
        self.assertIn("No rank has left a metrics.jsonl", page)

    def test_reports_unreachable_node_and_shows_the_rest(self):
        code, job = self.run_job(TWO_BY_TWO, self.program())
        self.assert_code(0, code, job)
        record = self.job_folder() / "job.json"
        told = json.loads(record.read_text())
        told["launcher"] = "per_node"  # because other nodes of such jobs cannot be reached
        record.write_text(json.dumps(told))
        page = self.folder / "page.html"
        said = self.report("last", "-o", page, code=69)
        self.assert_prints(said, "node1: its own command started this node", "wrote .*page.html")
        seen = self.look(page)
        self.assertIn("node1: its own command started this node", seen["sections"]["left_out"])
        self.assertRegex(seen["sections"]["loss"], "at step 600")
        self.assertNotIn("rank 3", seen["sections"]["step_time"])

    def test_rejects_wrong_use_with_a_hint(self):
        code, job = self.run_job(TWO_BY_TWO, "true")
        self.assert_code(0, code, job)
        job_id = self.job_folder().name
        misspelt = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
        self.assert_prints(self.report(misspelt, code=64), f"no job '{misspelt}'; did you mean {job_id}")
        self.assert_prints(self.report(code=64), "which job")
        self.assert_prints(self.report("last", "--froce", code=64), "did you mean --force")
        self.assert_prints(self.report("last", "-o", "/no/such/folder/page.html", code=74), "/no/such/folder/page.html")


if __name__ == "__main__":
    main()
