"""The definitions of measurements, written down a second time: plain NumPy in float64 (or wider), loops allowed.

Nothing here is shared with core.statistics; where the two disagree, one of them is wrong.
"""

from __future__ import annotations

import math

import numpy as np

WIDE = np.longdouble
QUANTILES = {"q01": 0.01, "q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95, "q99": 0.99}
QUERIES = {f"entropy_norm_p{percent:02d}": percent / 100 for percent in (5, 25, 50, 75, 95)}
TOKENS = {"token_rms_p05": 0.05, "token_rms_p50": 0.5, "token_rms_p95": 0.95}


def statistics(x: np.ndarray) -> dict[str, float]:
    """Every statistic of an array as one heap of entries, unsampled; `x` of any float dtype that NumPy knows."""
    entries = [float(value) for value in np.asarray(x, np.float64).reshape(-1)]
    finite = np.array([value for value in entries if math.isfinite(value)], WIDE)
    counts = {
        "n": len(entries),
        "n_nan": sum(math.isnan(value) for value in entries),
        "n_posinf": sum(value == math.inf for value in entries),
        "n_neginf": sum(value == -math.inf for value in entries),
    }
    return {**counts, **moments(finite), **shares(finite), **order(finite)}


def moments(finite: np.ndarray) -> dict[str, float]:
    names = ("mean", "std", "rms", "absmax", "min", "max", "norm", "kurtosis")
    if not len(finite):
        return dict.fromkeys(names, math.nan)
    mean = finite.sum() / len(finite)
    spread = finite - mean
    std = np.sqrt((spread**2).sum() / len(finite)) if finite.min() < finite.max() else WIDE(0)
    rms = np.sqrt((finite**2).sum() / len(finite))
    kurtosis = ((spread / std) ** 4).sum() / len(finite) if std > 0 else math.nan
    values = (mean, std, rms, abs(finite).max(), finite.min(), finite.max(), rms * math.sqrt(len(finite)), kurtosis)
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def shares(finite: np.ndarray) -> dict[str, float]:
    n = len(finite)
    found = {
        "zero_frac": sum(value == 0 for value in finite),
        "overflow_frac16": sum(abs(value) >= 65520 for value in finite),
        "subnormal_frac16": sum(0 < abs(value) < 2.0**-14 for value in finite),
    }
    return {name: count / n if n else math.nan for name, count in found.items()}


def order(finite: np.ndarray) -> dict[str, float]:
    if not len(finite):
        return dict.fromkeys(QUANTILES, math.nan)
    return {name: float(np.quantile(finite.astype(np.float64), q)) for name, q in QUANTILES.items()}


def histogram(x: np.ndarray) -> dict[str, int]:
    """Counts by floor(log2|x|) from −149 to 127 (the ends hold more), zero and nonfinite; no empty bins."""
    counts: dict[str, int] = {}
    for value in np.asarray(x, np.float64).reshape(-1).tolist():
        if not math.isfinite(value):
            name = "nonfinite"
        elif value == 0:
            name = "zero"
        else:
            name = str(min(127, max(-149, math.frexp(value)[1] - 1)))
        counts[name] = counts.get(name, 0) + 1
    return counts


def token_rms(x: np.ndarray) -> dict[str, float]:
    """Quantiles over tokens of √(mean over the finite features), `x` (tokens, features)."""
    found = []
    for token in np.asarray(x, WIDE):
        finite = token[np.isfinite(token)]
        if len(finite):
            found.append(float(np.sqrt((finite**2).sum() / len(finite))))
    return {name: float(np.quantile(found, q)) if found else math.nan for name, q in TOKENS.items()}


def token_cosine(sequences: list[np.ndarray]) -> float:
    """Mean cosine of all pairs of different tokens of the same sequence, pair by pair."""
    found = []
    for sequence in sequences:
        tokens = [token for token in np.asarray(sequence, WIDE) if has_direction(token)]
        for i, first in enumerate(tokens):
            found += [cosine(first, second) for j, second in enumerate(tokens) if i != j]
    return float(np.mean(found)) if found else math.nan


def mean_cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Mean over tokens of cos(x, y)."""
    pairs = zip(np.asarray(x, WIDE), np.asarray(y, WIDE), strict=True)
    found = [cosine(a, b) for a, b in pairs if has_direction(a) and has_direction(b)]
    return float(np.mean(found)) if found else math.nan


def has_direction(token: np.ndarray) -> bool:
    return bool(np.isfinite(token).all() and (token != 0).any())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a / abs(a).max(), b / abs(b).max()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def head(scores: np.ndarray, visible: np.ndarray, softcap: float | None = None,
         pattern: str = "softmax") -> dict[str, float]:
    """The measures of one head: `scores` (sequences, queries, keys) scaled, uncapped; `visible` the same shape."""
    rows: dict[str, list[float]] = {name: [] for name in (
        "entropy", "entropy_norm", "max_prob", "saturated_frac", "score_std", "softmax_gain", "score_absmax")}
    for sequence, seen in zip(np.asarray(scores, WIDE), visible, strict=True):
        for query, (row, keys) in enumerate(zip(sequence, seen, strict=True)):
            n = int(keys.sum())
            if n == 0:
                continue
            raw = row[keys]
            p = probabilities(raw, softcap, pattern, int(keys[:query].sum()))
            entropy = float(-sum(value * np.log(value) for value in p if value > 0))
            rows["entropy"].append(entropy)
            rows["max_prob"].append(float(p.max()))
            if n > 1:
                rows["score_absmax"].append(float(abs(raw).max()))
                rows["entropy_norm"].append(entropy / math.log(n))
                rows["saturated_frac"].append(float(p.max() > 0.99))
                rows["score_std"].append(float(np.sqrt(((raw - raw.mean()) ** 2).mean())))
                rows["softmax_gain"].append(float(1 - (p**2).sum()))
    largest, shares = rows.pop("score_absmax"), rows["entropy_norm"]
    measured = {name: float(np.mean(values)) if values else math.nan for name, values in rows.items()}
    spread = {name: float(np.quantile(shares, q)) if shares else math.nan for name, q in QUERIES.items()}
    return {**measured, "score_absmax": max(largest, default=math.nan), **spread}


def probabilities(raw: np.ndarray, softcap: float | None, pattern: str, own: int) -> np.ndarray:
    """One row's pattern over its visible keys; `own`: which of them is the query itself."""
    if pattern == "uniform":
        return np.full(len(raw), WIDE(1) / len(raw))
    if pattern == "identity":
        return np.eye(len(raw), dtype=WIDE)[own]
    capped = raw if softcap is None else softcap * np.tanh(raw / softcap)
    weight = np.exp(capped - capped.max())
    return weight / weight.sum()
