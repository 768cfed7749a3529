"""Defines GPT-2 in plain PyTorch, with Hugging Face's names, weight layout and arithmetic."""

import math

import torch
from torch import nn
from torch.nn import functional


class Conv1D(nn.Module):
    """A linear layer whose weight has the shape [inputs, outputs]."""

    def __init__(self, inputs, outputs, std):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs).normal_(std=std))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config["n_embd"], config["n_head"]
        self.c_attn = Conv1D(width, 3 * width, 0.02)
        self.c_proj = Conv1D(width, width, 0.02 / math.sqrt(2 * config["n_layer"]))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.c_fc = Conv1D(width, 4 * width, 0.02)
        self.c_proj = Conv1D(4 * width, width, 0.02 / math.sqrt(2 * config["n_layer"]))

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config["n_embd"])
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config["n_embd"])
        self.mlp = Mlp(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """The model. `config` has Hugging Face's keys. Dropout is not supported and must be 0."""

    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config["vocab_size"], width),
            "wpe": nn.Embedding(config["n_positions"], width),
            "h": nn.ModuleList(Block(config) for _ in range(config["n_layer"])),
            "ln_f": nn.LayerNorm(width),
        })
        for name in ("wte", "wpe"):
            nn.init.normal_(self.transformer[name].weight, std=0.02)

    def forward(self, tokens):
        """Maps tokens, int64 [batch, time], to logits [batch, time, vocabulary]."""
        body = self.transformer
        positions = body["wpe"].weight[:tokens.shape[1]]
        x = body["wte"](tokens) + positions
        for block in body["h"]:
            x = block(x)
        return functional.linear(body["ln_f"](x), body["wte"].weight)
