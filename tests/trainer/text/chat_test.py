"""Tests that chat data gives the tokens and labels of transformers' apply_chat_template, and that only the answers
are trained."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import tokenizers_made
import torch
import transformers
from tokenizers import AddedToken, Tokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from decoder_test import config_of, make  # noqa: E402
from generate_test import section_of  # noqa: E402
from spawn import run  # noqa: E402

NO_TARGET, BAD_INPUT = -100, 65
# The templates were written for this test after the models' templates. {% generation %} marks the assistant's answers.
ANSWER = "{%% generation %%}{{ %s }}{%% endgeneration %%}"
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
              + ANSWER % "m['content'] + '<|im_end|>'" + "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}"
              "{% endfor %}",
    "llama3": "{% for m in messages %}{% if loop.index0 == 0 %}{{ bos_token }}{% endif %}"
              "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' }}{% if m['role'] == 'assistant' %}"
              + ANSWER % "m['content'] | trim + '<|eot_id|>'"
              + "{% else %}{{ m['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}",
    "mistral": "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
               "{{ raise_exception('turns') }}{% endif %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
               "{% else %}" + ANSWER % "m['content'] + eos_token" + "{% endif %}{% endfor %}",
    "zephyr": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
              "{% elif m['role'] == 'system' %}\n{{ '<|system|>\n' + m['content'] + eos_token }}\n"
              "{% elif m['role'] == 'assistant' %}\n{{ '<|assistant|>\n' }}" + ANSWER % "m['content'] + eos_token"
              + "{{ '\n' }}{% endif %}\n{% endfor %}",
}
NUMBERS = {"none": 0, "chatml": 1, "llama3": 2, "mistral": 3, "zephyr": 4}
KINDS = {"chatml": "qwen2", "llama3": "llama3", "mistral": "mistral", "zephyr": "llama2"}
TOKENS = {"chatml": ["<|im_start|>", "<|im_end|>"],
          "llama3": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "mistral": [], "zephyr": []}
BEGIN = {"chatml": None, "llama3": "<|begin_of_text|>", "mistral": "<s>", "zephyr": "<s>"}
END = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>", "zephyr": "</s>"}
WORDS = ["Hello", " ", "\n", "\n\n", "  ", "\x1c", "\u3000", "naïve", "e\u0301", "漢字", "<|im_end|>", "<s>", "]", "!?", "12", "ß"]


def random_content(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return ""
    if kind < 4:
        return "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 7)))
    return tokenizers_made.random_text(rng)


def random_messages(rng, name):
    """Returns messages with or without a system message, with turns in any order that the template permits."""
    messages = [{"role": "system", "content": random_content(rng)}] if name != "mistral" and rng.randrange(2) else []
    for i in range(rng.randrange(1, 7)):
        role = ("user", "assistant")[i % 2] if name == "mistral" or rng.randrange(4) else rng.choice(("user", "assistant"))
        messages.append({"role": role, "content": random_content(rng)})
    return messages


class ChatFiles:
    """A folder with a tokenizer for a template, and files of lines."""

    def __init__(self, name):
        self.held = tempfile.TemporaryDirectory()
        self.folder, self.name = self.held.name, name
        made = getattr(tokenizers_made, KINDS[name])(600, ["The quick brown fox says: no, it's naïve!\n" * 9])
        made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in TOKENS[name]])
        made.save(os.path.join(self.folder, "tokenizer.json"))
        keys = {"eos_token": END[name], **({"bos_token": BEGIN[name]} if BEGIN[name] else {})}
        with open(os.path.join(self.folder, "tokenizer_config.json"), "w") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **keys}, file)
        self.hf = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(made.to_str()),
                                                       clean_up_tokenization_spaces=False, **keys)
        self.hf.chat_template = TEMPLATES[name]

    def write(self, lines, file="chat.jsonl"):
        path = os.path.join(self.folder, file)
        with open(path, "w", encoding="utf-8") as out:
            out.writelines((line if isinstance(line, str) else json.dumps(line, ensure_ascii=len(line) > 1)) + "\n"
                           for line in lines)
        return path

    def expected(self, messages):
        """Returns (ids, labels) that transformers computes."""
        made = self.hf.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids = made["input_ids"]
        return ids, [id if mask else NO_TARGET for id, mask in zip(ids, made["assistant_masks"])]

    def samples(self, path, block, packing=False, documents=False, test="-"):
        """Returns (inputs, targets) of every sample."""
        asked = "chat %s %s %d %s %d %d %d\n" % (path, test, NUMBERS[self.name], self.folder, block, packing, documents)
        done = subprocess.run([os.environ["DSLAUNCH_DATA_TRACE"]], input=asked, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        numbers = list(map(int, done.stdout.split()))
        return [(numbers[i:i + block], numbers[i + block:i + 2 * block]) for i in range(0, len(numbers), 2 * block)]


def padded(ids, labels, block):
    """Returns (inputs, targets) of the sample of a conversation by itself."""
    inputs, targets = ids[:block], (labels[1:] + [NO_TARGET])[:block]
    return inputs + [0] * (block - len(inputs)), targets + [NO_TARGET] * (block - len(targets))


def learned(labels, block):
    return any(label != NO_TARGET for label in labels[1:block + 1])


class ChatTest(unittest.TestCase):
    def files(self, name):
        files = ChatFiles(name)
        self.addCleanup(files.held.cleanup)
        return files

    def test_tokens_and_labels_match_transformers(self):
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 31)))
        rng = random.Random(seed)
        for name in TEMPLATES:
            files = self.files(name)
            conversations = [random_messages(rng, name) for _ in range(1000)]
            path = files.write([{"messages": messages} for messages in conversations])
            expected = [files.expected(messages) for messages in conversations]
            for block in (96, 4096):
                with self.subTest(name, block=block, seed=seed):
                    kept = [padded(*pair, block) for pair in expected if learned(pair[1], block)]
                    self.assertGreater(len(kept), 500)
                    found = files.samples(path, block)
                    self.assertEqual(len(found), len(kept))
                    for ours, theirs in zip(found, kept):
                        self.assertEqual(ours, theirs)

    def test_packs_whole_conversations(self):
        files, block = self.files("chatml"), 200
        rng = random.Random(3)
        conversations = [random_messages(rng, "chatml") for _ in range(200)]
        path = files.write([{"messages": messages} for messages in conversations])
        pairs = [(ids[:block], (labels[1:] + [NO_TARGET])[:block]) for ids, labels in map(files.expected, conversations)
                 if learned(labels, block)]
        for documents in (False, True):
            with self.subTest(documents=documents):
                samples = files.samples(path, block, packing=True, documents=documents)
                self.assertLess(len(samples) * block, 1.3 * sum(len(ids) for ids, _ in pairs))
                left = list(pairs)
                for inputs, targets in samples:
                    at = 0
                    while any(target != NO_TARGET for target in targets[at:]):
                        tokens = [-1 - inputs[at]] + inputs[at + 1:] if documents and at else inputs[at:]
                        fits = [pair for pair in left if pair[0] == tokens[:len(pair[0])] and
                                pair[1] == targets[at:at + len(pair[1])]]
                        self.assertTrue(fits, "no conversation begins at %d of %s" % (at, inputs))
                        left.remove(fits[0])
                        at += len(fits[0][0])
                self.assertEqual(left, [])

    def test_reads_completions_and_token_ids(self):
        files = self.files("llama3")
        path = files.write([{"prompt": "Say ", "completion": "hello\n"}, "", {"input_ids": [5, 6, 7], "labels": [-100, 9, 7]}])
        begin, end = (files.hf.convert_tokens_to_ids(text) for text in ("<|begin_of_text|>", "<|eot_id|>"))
        whole = files.hf("Say hello\n")["input_ids"]
        prompt = files.hf("Say ", add_special_tokens=False)["input_ids"]
        self.assertEqual(whole[0], begin)
        same = 1
        while same <= len(prompt) and whole[same] == prompt[same - 1]:
            same += 1
        labels = [NO_TARGET] * same + whole[same:] + [end]
        self.assertEqual(files.samples(path, 24), [padded(whole + [end], labels, 24),
                                                   padded([5, 6, 7], [NO_TARGET, 9, 7], 24)])

    def test_trains_and_evaluates_like_transformers(self):
        """Compares the losses of two steps and of the evaluation, each as the mean over the targets."""
        files = self.files("chatml")
        rng = random.Random(11)
        sets = []
        for file in ("train.jsonl", "val.jsonl"):
            lines = [[{"role": "user", "content": rng.choice(WORDS)},
                      {"role": "assistant", "content": "".join(rng.choice(WORDS) for _ in range(4))}] for _ in range(8)]
            sets.append((files.write([{"messages": line} for line in lines], file), lines))
        model = make(config_of("llama", vocab_size=len(files.hf) + 3))
        source = os.path.join(files.folder, "model")
        model.save_pretrained(source)
        block = 40
        batches = [[(ids[:block], labels[:block]) for ids, labels in map(files.expected, lines)] for _, lines in sets]
        expected = []
        for step in range(2):
            loss = self.loss(model, batches[0][4 * step:4 * step + 4])
            expected.append(loss.item())
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        data = {"type": "chat", "path": sets[0][0], "val_path": sets[1][0], "template": "chatml",
                "tokenizer": files.folder, "block_size": block, "shuffle": False}
        steps, evaluations = self.train(section_of(model.config), data, source, files, batch=4, steps=2)
        for ours, theirs in zip(steps, expected, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)
        self.assertAlmostEqual(evaluations[-1], self.loss(model, batches[1]).item(), delta=1e-5)
        # In one step, all conversations are packed into a few samples.
        packed = len(files.samples(sets[0][0], 64, packing=True))
        self.assertLess(packed, 8)
        steps, _ = self.train(section_of(model.config), {**data, "packing": True, "documents": True, "block_size": 64},
                              source, files, batch=packed, steps=1)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager")
        self.assertAlmostEqual(steps[0], self.loss(model, batches[0]).item(), delta=1e-5)

    def test_eval_only_measures_answers(self):
        """The perplexity over the answers' tokens, for any number of ranks, packed or not."""
        files, block = self.files("chatml"), 40
        rng = random.Random(5)
        lines = [[{"role": "user", "content": rng.choice(WORDS)},
                  {"role": "assistant", "content": "".join(rng.choice(WORDS) for _ in range(n % 5 + 1))}] for n in range(9)]
        lines += [lines[0] + [{"role": "user", "content": "Hello " * 40}], lines[0][:1]]
        pairs = [(ids[:block + 1], labels[:block + 1]) for ids, labels in map(files.expected, lines[:-1])]
        model = make(config_of("llama", vocab_size=len(files.hf) + 3))
        source = os.path.join(files.folder, "model")
        model.save_pretrained(source)
        loss, count = self.loss(model, pairs).item(), sum(label != NO_TARGET for _, labels in pairs for label in labels)
        path = files.write([{"messages": line} for line in lines])
        train = files.write([{"messages": lines[0]}], "train.jsonl")
        for kept, engine, ranks in (({"val_path": path}, {}, 1), ({"val_path": path, "packing": True}, {}, 1),
                                    ({"val_path": path}, {"zero_optimization": {"stage": 3}}, 3),
                                    ({"val_path": path}, {"pipeline": {"stages": 2}}, 2)):
            with self.subTest(ranks=ranks, **kept):
                metrics = os.path.join(files.folder, "%d ranks%s" % (ranks, ", packed" * ("packing" in kept)))
                data = {"type": "chat", "path": train, "template": "chatml", "tokenizer": files.folder, "block_size": block,
                        "documents": "packing" in kept, **kept}
                done = run({"model": section_of(model.config), "data": data,
                            "run": {"mode": "evaluate", "init_weights": source, "metrics_jsonl": metrics},
                            "engine": {"train_micro_batch_size_per_gpu": 4, **engine}}, ranks)
                self.assertEqual([(rank.code, rank.err) for rank in done], [(0, "")] * ranks)
                with open(metrics) as file:
                    found = json.load(file)["eval"]
                self.assertAlmostEqual(found["loss"], loss, delta=1e-5)
                self.assertAlmostEqual(found["perplexity"], math.exp(loss), delta=1e-4 * math.exp(loss))
                self.assertEqual(found["tokens"], count)
                self.assertEqual(done[0].out.splitlines(), [
                    path + ": 1 line is cut to data.block_size tokens, 1 line is left out for lack of an answer in them",
                    "weights from " + source, "test perplexity %.4g, loss %.4f (%d tokens of answers)" % (
                        found["perplexity"], found["loss"], count)])

    def train(self, model, data, source, files, batch, steps):
        """Trains and returns the losses of the steps and of the evaluations."""
        metrics = os.path.join(files.folder, "metrics_%d" % steps)
        rank, = run({"model": model, "data": data,
                     "run": {"steps": steps, "init_weights": source, "loss_normalization": "tokens",
                             "metrics_jsonl": metrics, "eval_every": steps},
                     "engine": {"train_batch_size": batch, "gradient_clipping": 0.0,
                                "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}})
        self.assertEqual((rank.code, rank.err), (0, ""))
        with open(metrics) as file:
            records = list(map(json.loads, file))
        return ([record["loss"] for record in records if "eval" not in record],
                [record["eval"]["loss"] for record in records if "eval" in record])

    @staticmethod
    def loss(model, batch):
        length = max(len(ids) for ids, _ in batch)
        tokens = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in batch])
        labels = torch.tensor([labels + [NO_TARGET] * (length - len(labels)) for _, labels in batch])
        return model(input_ids=tokens, labels=labels).loss

    def test_rejects_wrong_lines_and_tokenizers(self):
        files = self.files("mistral")
        good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
        system = {"messages": [{"role": "system", "content": "a"}]}
        chatml = {"template": "chatml"}
        cases = [
            ("{", {}, "chat.jsonl:2"), ("[]", {}, "chat.jsonl:2: is neither a conversation"),
            ({"messages": []}, {}, "chat.jsonl:2: messages is not a list"),
            ({"messages": [{"role": "user"}]}, {}, 'chat.jsonl:2: message 1 has no text under the key "content"'),
            ({"messages": [{"role": "tool", "content": ""}]}, {}, "known: system, user and assistant"),
            (system, {}, "mistral does not have"),
            ({"messages": good["messages"][::-1]}, {}, "take turns, user first"),
            ({"prompt": "a"}, {}, 'no text under the key "completion"'),
            ({"input_ids": [1, 2], "labels": [1]}, {}, "has 2 input_ids, but 1 labels"),
            ({"input_ids": [99999], "labels": [1]}, {}, "input_ids[0] is not a token of the model"),
            (good, {"tokenizer": None}, "data.tokenizer is missing"), (good, {"template": "none"}, "data.template is missing"),
            (good, chatml, "data.tokenizer has no token '<|im_end|>'"), (good, {"documents": True}, "data.documents is true, but without packing"),
            (good, {"block_size": 2}, "has no line with an answer"),
        ]
        model = {"type": "gpt2", "vocab_size": 1200, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
        for line, change, words in cases:
            with self.subTest(words):
                data = {"type": "chat", "path": files.write([good, line]), "template": "mistral", "tokenizer": files.folder, **change}
                for rank in run({"model": model, "data": data, "run": {"steps": 1}, "engine": {"train_batch_size": 1}}):
                    self.assertEqual(rank.code, BAD_INPUT, rank.err)
                    self.assertIn(words, rank.err)

    def test_counts_lines_that_are_cut_or_left_out(self):
        files = self.files("mistral")
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        lines = [{"messages": turns}, {"messages": turns[:1]}, {"messages": turns * 20}]
        model = {"type": "gpt2", "vocab_size": 1200, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
        data = {"type": "chat", "path": files.write(lines), "template": "mistral", "tokenizer": files.folder}
        rank, = run({"model": model, "data": data, "run": {"steps": 1}, "engine": {"train_batch_size": 1}})
        self.assertEqual((rank.code, rank.err), (0, ""))
        self.assertIn("chat.jsonl: 1 line is cut to data.block_size tokens, 1 line is left out", rank.out)


if __name__ == "__main__":
    unittest.main()
