"""Runs the blocks of docs/language-models.md.

By default the two runs are shorter, so the losses of the page are not compared. With DSLAUNCH_TEST_FULL=1 the runs
have the lengths of the page, and the validation losses must be those of the page."""

import os
import re
import unittest

from page_examples import ORACLE, PageCase
from launcher_case import main
from pages import ROOT

FULL = os.environ.get("DSLAUNCH_TEST_FULL") == "1"
LOSS = re.compile(r"test perplexity \d+\.\d+, loss (\d+\.\d+) ")
LOSS_TOLERANCE = 0.1  # other processors round differently, and 400 steps enlarge the difference
SHORTER = [
    (" > pretrain.yaml", " -e 's/400/16/; s/: 40$/: 2/; s/: 200/: 100/' > pretrain.yaml"),
    ("400 steps of", "16 steps of"),
    ("200 steps of", "4 steps of"),
    (" > lora.yaml", " -e 's/: 200/: 4/; s/: 20$/: 2/' > lora.yaml"),
    ("--save_every 50", "--save_every 4"),
    ("run/step_000200", "run/step_000004"),
    ("run/step_000400", "run/step_000016"),
    ("lora/step_000200", "lora/step_000004"),
]


def shorten(text):
    for old, new in SHORTER:
        if old not in text:
            raise ValueError(f"docs/language-models.md has no {old!r}, which this test replaces")
        text = text.replace(old, new)
    return text


class LanguageModelsTest(PageCase):
    block_timeout_s = 1200 if FULL else 120

    def compare_losses(self, wanted, got):
        stated, reached = LOSS.search(wanted), LOSS.search(got)
        if FULL and stated:
            self.assertAlmostEqual(float(stated.group(1)), float(reached.group(1)), delta=LOSS_TOLERANCE, msg=got)

    @unittest.skipUnless(ORACLE.exists(), "needs .deps/oracle; packaging/fetch-oracle fetches it")
    def test_language_models_examples_run(self):
        self.check_page(ROOT / "docs" / "language-models.md", "sh+python", edit=(lambda text: text) if FULL else shorten,
                        compare=self.compare_losses)


if __name__ == "__main__":
    main()
