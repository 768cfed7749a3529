"""Makes tokenizer.json files with the tokenizers package: the steps and patterns that models publish, and small
vocabularies that are trained on the spot."""

import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
POSSESSIVE = (r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
              r"\s*[\r\n]|\s+(?!\S)|\s").replace(r"\p{N}{1,3}+", r"\p{N}{1,3}").replace(r"\s++$|", "")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
            "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]

# Letters and marks of many scripts, digits, symbols, emoji with joiners, and unassigned code points.
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F),
          (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xE00, 0xE7F),
          (0x1100, 0x11FF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x20D0, 0x20FF), (0x2100, 0x218F),
          (0x3000, 0x30FF), (0x4E00, 0x4E80), (0xAC00, 0xAC80), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0x1D400, 0x1D4FF),
          (0x1F300, 0x1F64F), (0x1E900, 0x1E95F), (0x110000 - 64, 0x10FFFF), (0xFE00, 0xFE0F), (0x10A00, 0x10A40)]
MARKS = [chr(c) for c in range(0x20000) if unicodedata.combining(chr(c))]
WORDS = ["'s", "'LL", "'ſ", "'Re", "\r\n", "\n\n", "\t", "  ", " ", "\u3000", "\u0085", "\u200d", "the", "The", "ing", "12345",
         "٣٤٥", "e\u0301", "q\u0323\u0307", "\u1100\u1161\u11a8", "한국어", "漢字", "ελληνικά", "हिन्दी", "\ufb01", "ǅ", "K",
         "<|endoftext|>", "<|im_start|>", "<|im_end", "<s>", "</s>", "<think>", "<0x0A>", "▁", "Ġ", "é", "\u0000", "…", "/"]


def random_text(rng):
    """Returns a few words of random scripts."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(5)
        if kind == 4:
            parts.append(rng.choice("aeqAO가ㅏ") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 5))))
            continue
        if kind == 0:
            parts.append(rng.choice(WORDS))
        elif kind == 1:
            parts.append(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])))
        else:
            first, last = rng.choice(RANGES[:6] if kind == 2 else RANGES)
            parts.append("".join(chr(rng.randrange(first, last + 1)) for _ in range(rng.randrange(1, 8))))
        if rng.randrange(3) == 0:
            parts.append(" " * rng.choice([1, 1, 1, 2, 5]))
    return "".join(parts)


def corpus():
    """Returns the documentation of dslaunch, and random text, for merges beyond ASCII."""
    rng = random.Random(1)
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))]
    return pages + [random_text(rng) * 2 for _ in range(3000)]


def special(*words, **options):
    return [AddedToken(word, special=True, normalized=False, **options) for word in words]


def train(normalizer, pre_tokenizer, tokens=2000, texts=None, byte_level=True, **model):
    tokenizer = Tokenizer(models.BPE(**(model if byte_level else {})))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    tokenizer.train_from_iterator(texts or corpus(), trainers.BpeTrainer(
        vocab_size=tokens, initial_alphabet=alphabet, show_progress=False, limit_alphabet=300))
    if byte_level:
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer
    made = json.loads(tokenizer.to_str())
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)]
    learned = made["model"]["vocab"]
    made["model"]["vocab"] = {token: id for id, token in enumerate(first + sorted(learned, key=learned.get))}
    made["model"].update(model)
    return Tokenizer.from_str(json.dumps(made))


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2(tokens=2000, texts=None):
    tokenizer = train(None, pre_tokenizers.ByteLevel(add_prefix_space=False), tokens, texts)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    return tokenizer


def llama3(tokens=2000, texts=None):
    tokenizer = train(None, split(LLAMA3), tokens, texts, ignore_merges=True)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>"))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def qwen2(tokens=2000, texts=None):
    tokenizer = train(normalizers.NFC(), split(QWEN2), tokens, texts)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("e\u0301q", normalized=True)])
    return tokenizer


def o200k():
    tokenizer = train(None, split(O200K))
    tokenizer.add_special_tokens(special("<|endoftext|>", lstrip=True, rstrip=True))
    tokenizer.add_tokens([AddedToken(" \u3000x", normalized=False), AddedToken("The", rstrip=True)])
    return tokenizer


def deepseek():
    tokenizer = train(None, split(*DEEPSEEK))
    tokenizer.add_special_tokens(special("<｜begin▁of▁sentence｜>", "<|endoftext|>"))
    return tokenizer


def starcoder():
    return train(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                pre_tokenizers.ByteLevel(add_prefix_space=True)]))


def possessive():
    return train(None, split(POSSESSIVE))


def splits():
    """Returns a tokenizer with each behavior of Split, by words and by patterns."""
    steps = [pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.Split(Regex(r"[,.;]"), "merged_with_previous"),
             pre_tokenizers.Split(Regex(r"\p{Lu}"), "contiguous"), pre_tokenizers.Split("-", "removed"),
             pre_tokenizers.Split(Regex(r"[^\s\d_]+".replace(r"\d", "0-9")), "merged_with_next", invert=True),
             pre_tokenizers.Digits(individual_digits=False)]
    return train(None, pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(False, use_regex=False)]))


def llama2(tokens=2000, texts=None):
    """Returns a tokenizer for which the whole text is one word, and characters that the vocabulary lacks become
    bytes."""
    lines = pre_tokenizers.Sequence([pre_tokenizers.Split("\n", "removed"), pre_tokenizers.Metaspace()])
    tokenizer = train(None, lines, tokens, texts, byte_level=False, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral(tokens=2000, texts=None):
    tokenizer = llama2(tokens, texts)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def unknown():
    """Returns a tokenizer that maps each character that the vocabulary lacks to <unk>."""
    tokenizer = train(normalizers.Replace(Regex(r"\s+"), " "), pre_tokenizers.Metaspace(), byte_level=False,
                      unk_token="<unk>")
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


ALL = [gpt2, llama3, qwen2, o200k, deepseek, starcoder, possessive, splits, llama2, mistral, unknown]
# Tokenizers whose decoded tokens equal the text.
LOSSLESS = [gpt2, llama3, deepseek, possessive]
