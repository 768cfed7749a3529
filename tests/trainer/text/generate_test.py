"""Tests that dslaunch-train continues texts as transformers' generate does, whichever texts are continued together."""

import json
import os
import shutil
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import tokenizers_made
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from decoder_test import config_of, make  # noqa: E402
from spawn import Job, assert_refused, run  # noqa: E402

BAD_INPUT = 65
TEXTS = ["The quick brown fox jumps over the lazy dog. " * 3, "Pack my box with five dozen liquor jugs. ", "naïve café\n" * 4]
PROMPTS = ["The quick", "P", "naïve café, with more words than the window has, so that it slides over them all; "
           "box and fox and dog", "The quick", "jugs.\n"]
NEW = 24
DECODER_KEYS = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
                "rope_parameters", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
                "attention_bias", "mlp_bias")


def section_of(config):
    """Returns the recipe's section for a model of transformers."""
    given = config.to_dict()
    if given["model_type"] == "gpt2":
        return {"type": "gpt2", **{key: given[key] for key in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")}}
    section = {"type": "decoder", **{key: given[key] for key in DECODER_KEYS if given.get(key) is not None}}
    if given["model_type"] == "mistral":
        section.pop("layer_types", None)
    return section


class Model:
    """A tiny random model of transformers in a folder, with a tokenizer."""

    def __init__(self, kind, tokenizer="gpt2", **options):
        self.folder = tempfile.mkdtemp()
        self.tokenizer = getattr(tokenizers_made, tokenizer)(380, TEXTS)
        size = self.tokenizer.get_vocab_size() + 5  # models have more tokens than their tokenizers
        end = self.tokenizer.token_to_id("<|end_of_text|>" if tokenizer == "llama3" else "<|endoftext|>")
        keys = {"vocab_size": size, "eos_token_id": [end, 11], "bos_token_id": None, **options}
        if kind == "gpt2":
            config = transformers.GPT2Config(n_positions=128, n_embd=32, n_layer=2, n_head=4, **keys)
        else:
            config = config_of(kind, max_position_embeddings=128, **keys)
        self.hf = make(config).eval()
        with torch.no_grad():  # because generated text that repeats one token would hide mistakes
            for parameter in self.hf.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        self.hf.save_pretrained(self.folder)
        self.tokenizer.save(os.path.join(self.folder, "tokenizer.json"))
        self.section = section_of(self.hf.config)

    def remove(self):
        shutil.rmtree(self.folder)

    def expected(self, prompt, **options):
        """Returns the tokens that transformers generates after a prompt."""
        ids = self.tokenizer.encode(prompt).ids
        with torch.no_grad():
            out = self.hf.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, pad_token_id=0, **options)
        return out[0, len(ids):].tolist()

    def recipe(self, batch=8, engine=None, data=None, **keys):
        return {"model": self.section, "data": data or {"type": "tokens"},
                "engine": {"train_micro_batch_size_per_gpu": batch, **(engine or {})},
                "run": {"mode": "predict", "init_weights": self.folder, "max_new_tokens": NEW, "temperature": 0, **keys}}


class GenerateCase(unittest.TestCase):
    def write(self, lines, name="prompts.jsonl"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, name)
        with open(path, "w") as file:
            file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        return path

    def lines(self, model, prompts=PROMPTS, world=1, **options):
        """Generates after these prompts and returns the JSON lines."""
        path = self.write([{"prompt": prompt} for prompt in prompts])
        ranks = run(model.recipe(prompts=path, **options), world)
        self.assertEqual([rank.code for rank in ranks], [0] * world, [rank.err for rank in ranks])
        found = [json.loads(line) for line in ranks[0].out.splitlines()]
        self.assertEqual([(line["index"], line["prompt"]) for line in found], list(enumerate(prompts)))
        return found

    def refused(self, wanted, *words):
        assert_refused(self, run(wanted), BAD_INPUT, *words)


class GreedyTest(GenerateCase):
    def check(self, kind, **options):
        model = Model(kind, **options)
        self.addCleanup(model.remove)
        expected = [model.expected(prompt) for prompt in PROMPTS]
        self.assertGreater(len(set(sum(expected, []))), 10, "the model repeats itself")
        for batch in 8, 2:
            found = self.lines(model, batch=batch)
            self.assertEqual([line["token_ids"] for line in found], expected)
            for line, tokens in zip(found, expected):
                self.assertEqual(line["finish"], "length" if len(tokens) == NEW and tokens[-1] not in
                                 model.hf.generation_config.eos_token_id else "stop")

    def test_llama3_rope_matches_transformers(self):
        self.check("llama", rope="llama3", tokenizer="llama3", bias=True)

    def test_qwen2_matches_transformers(self):
        self.check("qwen2", window="first layer", rope="yarn", tied=True)

    def test_qwen3_matches_transformers(self):
        self.check("qwen3", window="last layer")

    def test_mistral_with_short_window_matches_transformers(self):
        self.check("mistral", window=5)

    def test_gpt2_matches_transformers(self):
        self.check("gpt2")

    def test_every_layout_gives_same_tokens(self):
        model = Model("llama", rope="llama3")
        self.addCleanup(model.remove)
        expected = [model.expected(prompt) for prompt in PROMPTS]
        cases = [(2, {}), (2, {"zero_optimization": {"stage": 3}}),
                 (2, {"pipeline": {"stages": 2}}), (3, {"zero_optimization": {"stage": 1}}),
                 (2, {"tensor_parallel": {"autotp_size": 2}}),
                 (2, {"tensor_parallel": {"autotp_size": 2, "sequence_parallel": True}}),
                 (4, {"tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3}})]
        for world, engine in cases:
            with self.subTest(world=world, **engine):
                found = self.lines(model, world=world, batch=2, engine=engine)
                self.assertEqual([line["token_ids"] for line in found], expected)


class SamplingTest(GenerateCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model("llama")
        cls.addClassCleanup(cls.model.remove)

    def test_draws_depend_on_seed_and_prompt_alone(self):
        options = {"temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": 3}
        together = self.lines(self.model, **options)
        self.assertEqual(self.lines(self.model, batch=2, world=2, **options), together)
        for index in (0, 2, 4):
            [alone] = self.lines(self.model, PROMPTS[index:index + 1], **options)
            self.assertEqual(alone["token_ids"], together[index]["token_ids"])
        self.assertNotEqual(together[0]["token_ids"], together[3]["token_ids"], "a repeated prompt")
        self.assertNotEqual(self.lines(self.model, **{**options, "seed": 4})[0]["token_ids"], together[0]["token_ids"])

    def test_different_prompts_draw_different_numbers(self):
        # At this temperature all tokens are equally likely, so equal random numbers would give equal texts.
        first, second = self.lines(self.model, PROMPTS[:2], temperature=1e6)
        self.assertNotEqual(first["token_ids"], second["token_ids"])

    def test_small_top_p_takes_likeliest_token(self):
        greedy = self.lines(self.model)
        for options in ({"top_p": 1e-6}, {"top_k": 1}):
            drawn = self.lines(self.model, temperature=2, **options)
            self.assertEqual([line["token_ids"] for line in drawn], [line["token_ids"] for line in greedy])


class StreamTest(GenerateCase):
    """A reader sees the first texts while later ones are not computed yet: ranks that are killed then have not written
    all. What they have written is whole lines in the order of the prompts."""

    LAYOUTS = [(1, {}), (2, {}), (2, {"zero_optimization": {"stage": 3}}), (2, {"pipeline": {"stages": 2}})]

    @classmethod
    def setUpClass(cls):
        cls.model = Model("llama", eos_token_id=None)
        cls.addClassCleanup(cls.model.remove)

    def lines_at_kill(self, world, **options):
        """Returns the lines of a job that is killed when a reader sees the first of them, and the prompts."""
        prompts = ["%d foxes" % i for i in range(400)]
        wanted = self.model.recipe(batch=2, prompts=self.write([{"prompt": prompt} for prompt in prompts]), **options)
        file = options.get("predictions")
        with Job(wanted, world) as job:
            def text():
                if file is None:
                    return job.read(0, 0)
                return open(file).read() if os.path.exists(file) else ""
            job.wait_for(lambda: "\n" in text(), 60, "a line can be read")
            for process in job.processes:
                process.kill()
            for process in job.processes:
                process.wait()
            self.assertEqual(text()[-1], "\n")
            return [json.loads(line) for line in text().splitlines()], prompts

    def check(self, world, **options):
        lines, prompts = self.lines_at_kill(world, **options)
        self.assertLess(len(lines), len(prompts))
        self.assertEqual([(line["index"], line["prompt"]) for line in lines], list(enumerate(prompts))[:len(lines)])

    def test_stdout_has_first_texts_before_last_are_computed(self):
        for world, engine in self.LAYOUTS:
            with self.subTest(world=world, **engine):
                self.check(world, engine=engine)

    def test_file_has_first_texts_before_last_are_computed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(2, predictions=os.path.join(folder, "out.jsonl"))
            self.assertEqual(os.listdir(folder), ["out.jsonl"])


class TextTest(GenerateCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model("llama", tokenizer="llama3")
        cls.addClassCleanup(cls.model.remove)

    def test_text_is_decoded_continuation(self):
        for line in self.lines(self.model):
            ids = line["token_ids"]
            if line["finish"] == "stop":
                ids = ids[:-1]
            self.assertEqual(line["text"], self.model.tokenizer.decode(ids))

    def test_stop_text_ends_and_is_left_out(self):
        whole = self.lines(self.model, PROMPTS[:1])[0]
        text = whole["text"]
        stop = text[len(text) // 2:len(text) // 2 + 2]
        line = self.lines(self.model, PROMPTS[:1], stop=["never in it", stop])[0]
        self.assertEqual(line["text"], text[:text.index(stop)])
        self.assertEqual(line["finish"], "stop")
        self.assertLess(len(line["token_ids"]), len(whole["token_ids"]))
        self.assertEqual(line["token_ids"], whole["token_ids"][:len(line["token_ids"])])

    def test_prompt_prints_text_alone(self):
        line = self.lines(self.model, PROMPTS[1:2])[0]
        [rank] = run(self.model.recipe(prompt=PROMPTS[1]))
        self.assertEqual(rank.code, 0, rank.err)
        self.assertEqual("".join(c for c in rank.out if c.isprintable()),
                         "".join(c for c in PROMPTS[1] + line["text"] if c.isprintable()))
        self.assertIn("the keys and values of 1 text of up to ", rank.err)

    def test_end_tokens_come_from_generation_config(self):
        tokens = self.lines(self.model, PROMPTS[:1])[0]["token_ids"]
        path = os.path.join(self.model.folder, "generation_config.json")
        shutil.copy(path, path + ".kept")
        self.addCleanup(os.replace, path + ".kept", path)
        for end in (tokens[3], [tokens[5], tokens[3]]):
            with open(path, "w") as file:
                json.dump({"eos_token_id": end}, file)
            line = self.lines(self.model, PROMPTS[:1])[0]
            self.assertEqual((line["token_ids"], line["finish"]), (tokens[:tokens.index(tokens[3]) + 1], "stop"))
        with open(path, "w") as file:
            file.write('{"eos_token_id": "x"}')
        self.refused(self.model.recipe(prompt="a"), "generation_config.json: eos_token_id is not a token's number")

    def test_reports_bad_input_in_one_line(self):
        recipe = self.model.recipe
        self.refused(recipe(prompts="/nonexistent.jsonl"), "/nonexistent.jsonl")
        self.refused(recipe(prompts=self.write(["a text\n"], "p.txt")), "p.txt: must have JSON lines")
        self.refused(recipe(prompts=self.write(["{}\n"])), ':1: has no text under the key "prompt"')
        self.refused(recipe(prompts=self.write(["\n", "[1]\n"])), ":2: is not a JSON object")
        self.refused(recipe(prompts=self.write(["\n"])), "has no prompts")
        self.refused(recipe(prompts=self.write([{"prompt": "fox " * 200}])), ":1: the prompt has ", " tokens, more than the model takes, 128")
        self.refused(recipe(prompt="a", init_weights="/nonexistent"), "there is no tokenizer for the texts; give --tokenizer")
        self.refused(recipe(prompt="a", tokenizer="/nonexistent"), "/nonexistent/tokenizer.json")
        self.refused(recipe(prompt="a", top_p=0), "run.top_p is 0; it must be above 0")
        self.refused(recipe(prompt="a", stop=[""]), "run.stop has an empty text")
        self.refused(recipe(prompt="a", prompts="b"), "exclude each other")


if __name__ == "__main__":
    unittest.main()
