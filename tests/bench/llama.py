"""Defines Llama in plain PyTorch, with Hugging Face's names, as a user of torch.compile would write the model. Its
settings are the section "model" of a recipe. It has no biases and sliding windows; rotary embeddings are of type
default or llama3."""

import math

import torch
from torch import nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu


def inverse_frequencies(section, width, device):
    rope = section.get("rope_parameters", {})
    frequencies = rope.get("rope_theta", 10000.0) ** (-torch.arange(0, width, 2, device=device) / width)
    if rope.get("rope_type", "default") == "default":
        return frequencies
    factor, original = rope["factor"], rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    wavelengths = 2 * math.pi / frequencies
    share = ((original / wavelengths - low) / (high - low)).clamp(0, 1)
    return frequencies * ((1 - share) / factor + share)


def rotate(x, cosines, sines):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)


class Norm(nn.Module):
    def __init__(self, section):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(section["hidden_size"]))
        self.epsilon = section.get("rms_norm_eps", 1e-6)

    def forward(self, x):
        return rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class Attention(nn.Module):
    def __init__(self, section):
        super().__init__()
        self.heads, self.kv_heads = section["num_attention_heads"], section["num_key_value_heads"]
        hidden = section["hidden_size"]
        self.width = section.get("head_dim", hidden // self.heads)
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=False)

    def forward(self, x, cosines, sines):
        def heads(projection):
            return projection(x).unflatten(-1, (-1, self.width)).transpose(1, 2)

        mixed = scaled_dot_product_attention(rotate(heads(self.q_proj), cosines, sines),
                                             rotate(heads(self.k_proj), cosines, sines), heads(self.v_proj), is_causal=True,
                                             enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, section):
        super().__init__()
        hidden, inner = section["hidden_size"], section["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, section):
        super().__init__()
        self.self_attn, self.mlp = Attention(section), FeedForward(section)
        self.input_layernorm, self.post_attention_layernorm = Norm(section), Norm(section)

    def forward(self, x, cosines, sines):
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, section):
        super().__init__()
        self.embed_tokens = nn.Embedding(section["vocab_size"], section["hidden_size"])
        self.layers = nn.ModuleList(Block(section) for _ in range(section["num_hidden_layers"]))
        self.norm = Norm(section)


class Llama(nn.Module):
    """The whole model, with a tied head."""

    def __init__(self, section):
        super().__init__()
        self.model = Body(section)
        self.section = section
        self.width = section.get("head_dim", section["hidden_size"] // section["num_attention_heads"])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=section.get("initializer_range", 0.02))

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        # Computed in fp32, even if the model is converted to bf16.
        frequencies = inverse_frequencies(self.section, self.width, x.device)
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device), frequencies)
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.model.layers:
            x = block(x, cosines, sines)
        return linear(self.model.norm(x), self.model.embed_tokens.weight)
