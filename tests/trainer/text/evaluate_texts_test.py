"""Tests --eval_only --eval_file: log-likelihoods, accuracies and perplexities must equal lm-eval's on the same model
and texts."""

import importlib.util
import json
import math
import os
import re
import shutil
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from generate_test import BAD_INPUT, Model  # noqa: E402
from spawn import assert_refused, run  # noqa: E402

CHOICES = ["a brown fox", "box", "dögs\u2003that jump", "five dozen liquor jugs of naïve café", "\u6f22\u5b57"]
QUERIES = ["The quick", "The quick ", "Pack my box with\n\n", "naïve café " * 30, "", "lazy\x1c", "fox:"]
QUESTIONS = [{"query": query, "choices": CHOICES[i % 2:3 + i % 3], "gold": (i * 7) % 2, "id": i}
             for i, query in enumerate(QUERIES * 2)]
DOCUMENTS = [{"text": text} for text in (
    "The quick brown fox jumps over the lazy dog. ", "x", "naïve café\n" * 60, "Pack my box. " * 45 + " end",
    " \u3000two  words\x85\x1d \t", "<|begin_of_text|>The quick")]
WITHIN = 1e-5  # relative deviation


class TextsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.models = {}
        for kind, tokenizer, special in (("llama", "llama3", {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}),
                                         ("gpt2", "gpt2", {"eos_token": "<|endoftext|>"})):
            model = cls.models[tokenizer] = Model(kind, tokenizer=tokenizer)
            cls.addClassCleanup(model.remove)
            with open(os.path.join(model.folder, "tokenizer_config.json"), "w") as file:
                json.dump(special, file)
            model.hf_tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model.tokenizer, **special)

    def write(self, lines, name="texts.jsonl"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        return path

    def recipe(self, model, lines, batch=4, engine=None, **keys):
        return model.recipe(batch=batch, engine=engine, mode="evaluate", eval_file=self.write(lines), **keys)

    def results(self, model, lines, world=1, **options):
        """Evaluates the lines; returns (line on stdout, results in the metrics file)."""
        metrics = os.path.join(self.folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.unlink(metrics)
        ranks = run(self.recipe(model, lines, metrics_jsonl=metrics, **options), world)
        self.assertEqual([rank.code for rank in ranks], [0] * world, [rank.err for rank in ranks])
        with open(metrics) as file:
            return ranks[0].out.splitlines()[-1], json.loads(file.readlines()[-1])["eval"]

    def assert_near(self, found, expected):
        self.assertLessEqual(set(expected), set(found))
        for name, value in expected.items():
            self.assertLess(abs(found[name] - value), WITHIN * max(1, abs(value)), (name, found[name], value))


class LmEvalTest(TextsCase):
    @unittest.skipUnless(importlib.util.find_spec("lm_eval"), "packaging/fetch-oracle installs lm_eval")
    def test_results_equal_lm_eval(self):
        os.environ["HF_DATASETS_CACHE"] = os.path.join(self.folder, "datasets")
        import logging
        from lm_eval import evaluator
        from lm_eval.api.task import ConfigurableTask
        from lm_eval.models.huggingface import HFLM
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)

        def task(name, lines, metrics, **config):
            data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": self.write(lines, name + ".jsonl")}}}
            return ConfigurableTask(config={"task": name, **data, "test_split": "test", **config,
                                            "metric_list": [{"metric": metric} for metric in metrics]})
        accuracies, perplexities = ("acc", "acc_norm", "acc_bytes"), ("word_perplexity", "byte_perplexity", "bits_per_byte")
        for name, model in self.models.items():
            with self.subTest(model=name):
                lm = HFLM(pretrained=model.hf, tokenizer=model.hf_tokenizer, batch_size=4, device="cpu")
                tasks = {"questions": task("questions", QUESTIONS, accuracies, output_type="multiple_choice",
                                           doc_to_text="query", doc_to_choice="choices", doc_to_target="gold"),
                         "documents": task("documents", DOCUMENTS, perplexities, output_type="loglikelihood_rolling",
                                           doc_to_text="", doc_to_target="text")}
                answer = evaluator.evaluate(lm, tasks, bootstrap_iters=0, log_samples=True)
                expected = {metric: answer["results"][task][metric + ",none"]
                            for task, metrics in (("questions", accuracies), ("documents", perplexities)) for metric in metrics}
                expected["nll"] = -sum(sample["filtered_resps"][0] for sample in answer["samples"]["documents"])
                self.assert_near(self.results(model, QUESTIONS + DOCUMENTS)[1], expected)


class FormulaTest(TextsCase):
    """Tests the published formulas on transformers' logits, with texts whose ends need no special handling."""

    def log_likelihood(self, model, tokens, scored):
        with torch.no_grad():
            chances = torch.log_softmax(model.hf(torch.tensor([tokens[:-1]])).logits[0].double(), -1)
        return sum(chances[i - 1, tokens[i]].item() for i in range(len(tokens) - scored, len(tokens)))

    def test_documents_equal_formulas(self):
        model = self.models["gpt2"]
        prefix = model.tokenizer.token_to_id("<|endoftext|>")
        nll = tokens = words = size = 0
        for document in DOCUMENTS:
            ids = model.tokenizer.encode(document["text"]).ids
            for begin in range(0, len(ids), 128):  # 128 is n_positions
                end = min(begin + 128, len(ids))
                nll -= self.log_likelihood(model, ([prefix] + ids)[max(0, end - 128):end + 1], end - begin)
            tokens += len(ids)
            words += len(re.split(r"\s+", document["text"]))
            size += len(document["text"].encode())
        line, found = self.results(model, DOCUMENTS)
        self.assert_near(found, {"nll": nll, "tokens": tokens, "documents": len(DOCUMENTS), "perplexity": math.exp(nll / tokens),
                                 "word_perplexity": math.exp(nll / words), "byte_perplexity": math.exp(nll / size),
                                 "bits_per_byte": nll / size / math.log(2)})
        self.assertRegex(line, r"^test word_perplexity \S+, byte_perplexity \S+, bits_per_byte \S+, perplexity \S+ "
                               r"\(nll \S+ of %d tokens in %d documents\)$" % (tokens, len(DOCUMENTS)))

    def test_questions_equal_formulas(self):
        model = self.models["gpt2"]
        questions = [{"query": "The %s fox" % word, "choices": CHOICES, "gold": i % len(CHOICES)}
                     for i, word in enumerate("quick lazy brown naïve five dozen box jugs over dog".split())]
        right = [0, 0, 0]
        for question in questions:
            context = model.tokenizer.encode(question["query"]).ids
            chances = []
            for choice in question["choices"]:
                ids = model.tokenizer.encode(question["query"] + " " + choice).ids
                chances.append(self.log_likelihood(model, ids, len(ids) - len(context)))
            for i, length in enumerate((lambda text: 1, len, lambda text: len(text.encode()))):
                values = [chance / length(choice) for chance, choice in zip(chances, question["choices"])]
                right[i] += values.index(max(values)) == question["gold"]
        line, found = self.results(model, questions)
        self.assert_near(found, {"questions": 10, **{name: right[i] / 10 for i, name in enumerate(("acc", "acc_norm", "acc_bytes"))}})
        self.assertEqual(line, "test acc %.2f%% (%d of 10), acc_norm %.2f%%, acc_bytes %.2f%%" % (
            10 * right[0], right[0], 10 * right[1], 10 * right[2]))

    def test_result_does_not_depend_on_ranks(self):
        model = self.models["llama3"]
        texts = QUESTIONS[:3] + DOCUMENTS
        alone = self.results(model, texts)
        for world, engine in ((3, {}), (2, {"zero_optimization": {"stage": 3}}), (2, {"pipeline": {"stages": 2}})):
            with self.subTest(world=world, **engine):
                line, found = self.results(model, texts, world=world, engine=engine)
                if not engine:
                    self.assertEqual((line, found), alone)
                self.assert_near(found, alone[1])
        self.assert_near(self.results(model, texts, batch=1)[1], alone[1])


class WrongInputTest(TextsCase):
    def refused(self, wanted, *words):
        assert_refused(self, run(wanted), BAD_INPUT, *words)

    def test_reports_bad_input_in_one_line(self):
        model = self.models["gpt2"]
        question = {"query": "a", "choices": ["b", "c"], "gold": 0}
        for lines, word in (
                ([], "has no text to evaluate on"), (["{}\n"], ":1: is neither a document"), (["{\n"], ":1"),
                ([question, {**question, "gold": 2}], ":2: gold is not the number of a choice"),
                ([{**question, "gold": "b"}], ":1: gold is not the number of a choice"),
                ([{**question, "choices": []}], ':1: has no list under the key "choices"'),
                ([{**question, "choices": ["b", ""]}], ":1: a choice is not a text or is empty"),
                ([{**question, "choices": ["b", "fox " * 300]}], ":1: a choice has "),
                ([{"text": 3}], ':1: has no text under the key "text"')):
            with self.subTest(word=word):
                self.refused(self.recipe(model, lines), word)
        os.rename(model.folder + "/tokenizer_config.json", model.folder + "/other")
        self.addCleanup(os.rename, model.folder + "/other", model.folder + "/tokenizer_config.json")
        self.refused(self.recipe(model, DOCUMENTS), "tokenizer_config.json")


if __name__ == "__main__":
    unittest.main()
