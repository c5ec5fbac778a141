"""A small Transformer written by hand with sites in it, and what a recorder sees of one step of it."""

import numpy as np
import torch
from torch import nn

from core.recorder import Recorder
from core.sites import Heads, Site

B, T, D, H, L = 3, 8, 12, 2, 2


class TinyBlock(nn.Module):
    """A block written by hand: pre-norm attention in the open, an MLP, dropout."""

    def __init__(self, dropout):
        super().__init__()
        names = ("resid_pre", "norm1", "q", "k", "attn_scores", "attn_pattern", "attn_out", "resid_mid", "mlp_pre",
                 "mlp_act", "mlp_out", "resid_post")
        self.sites = nn.ModuleDict({name: Site() for name in names})
        self.heads = Heads((D // H) ** -0.5, None, "softmax", True)
        self.norm, self.dropout = nn.LayerNorm(D), nn.Dropout(dropout)
        sizes = ((D, 3 * D), (D, D), (D, 2 * D), (2 * D, D))
        self.qkv, self.o, self.up, self.down = (nn.Linear(a, b) for a, b in sizes)

    def forward(self, x, mask=None):
        see = self.sites
        x = see["resid_pre"](x)
        parts = self.qkv(see["norm1"](self.norm(x))).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in parts)
        q, k = see["q"](q), see["k"](k)
        self.heads(q, k, mask)
        scores = see["attn_scores"](q @ k.mT * self.heads.scale)
        hidden = torch.ones(x.shape[1], x.shape[1]).tril() == 0
        hidden = hidden if mask is None else hidden | ~mask[:, None, None, :]
        pattern = see["attn_pattern"](scores.masked_fill(hidden, -1e4).softmax(-1))
        x = see["resid_mid"](x + see["attn_out"](self.dropout(self.o((pattern @ v).transpose(1, 2).flatten(2)))))
        return see["resid_post"](x + see["mlp_out"](self.down(see["mlp_act"](see["mlp_pre"](self.up(x)).relu()))))


class Tiny(nn.Module):
    def __init__(self, dropout=0.0, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.ModuleDict({"token": nn.Embedding(10, D)})
        self.layers = nn.ModuleList(TinyBlock(dropout) for _ in range(L))
        self.final_norm, self.head = nn.LayerNorm(D), nn.Linear(D, 10)
        self.sites = nn.ModuleDict({name: Site() for name in ("embed", "final_norm", "logits")})
        self.to(dtype)

    def forward(self, tokens, mask=None, *, fail=False):
        x = self.sites["embed"](self.embed["token"](tokens))
        for layer in self.layers:
            x = layer(x, mask)
            if fail:
                raise KeyError("on purpose")
        return self.sites["logits"](self.head(self.sites["final_norm"](self.final_norm(x))))


TOKENS = torch.arange(B * T).reshape(B, T) % 10
MASK = torch.arange(T) < torch.tensor([T, 5, 1])[:, None]


def one_step(model, mask=None, scale=1.0, seed=3):
    torch.manual_seed(seed)
    logits = model(TOKENS, mask)
    loss = logits.float().square().mean() if mask is None else logits.float()[mask].square().mean()
    (loss * scale).backward()
    return logits.detach(), loss.detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def record(model, mask=None, detail="full", scale=1.0, **settings):
    model.zero_grad()
    with Recorder(model, detail, **settings) as recorder:
        recorder.begin(mask, scale)
        _, loss, _ = one_step(model, mask, scale)
        return recorder.snapshot(0, float(loss))


def row_of(snapshot, layer, site):
    return snapshot.layout.sites.index((layer, site))


def watched(model, tensors, gradients=None):
    """Hooks of our own that keep what passes every site."""
    handles = []
    for path, module in model.named_modules():
        if isinstance(module, Site):
            def keep(_module, _arguments, x, path=path):
                tensors[path] = x.detach().clone()
                if gradients is not None:
                    x.register_hook(lambda g: gradients.__setitem__(path, g.clone()))
            handles.append(module.register_forward_hook(keep))
    return handles


def path_of(layer, site):
    return f"layers.{layer}.sites.{site}" if 0 <= layer < L else f"sites.{site}"


def same_snapshots(first, second):
    for group in ("activations", "gradients", "heads", "parameters", "histograms"):
        ours, theirs = getattr(first, group), getattr(second, group)
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert np.array_equal(ours[name], theirs[name], equal_nan=True), (group, name)
    assert first.totals == second.totals and first.outliers == second.outliers
