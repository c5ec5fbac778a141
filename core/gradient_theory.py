"""What mathematics predicts of the gradient ∂loss/∂x at initialization, at all sites but queries and keys.

The layers that the theory of the stream plays (`core.theory`) are played once more, from the last to the first, and the
products of gradients, Γ_ij = E g_i·g_j / width, are pulled back over the tape of each (`core.mean_field`): of them
comes back out·std² through a matrix, E φ'(h_i)·φ'(h_j) through a nonlinearity, 1/(s_i·s_j) through a norm, and through
attention by its values as by its scores. It starts at the gradient measured where the last block is left, for what a
loss asks for is no matter of the stack; all pairs of tokens alike.

Sources: Schoenholz et al. 2017 (arXiv:1611.01232), Xiong et al. 2020 (2002.04745), Noci et al. 2022 (2206.03126).
Assumptions beyond those of the stream: a gradient is independent of what it is the gradient of, so that the share 1/D
of it along x, which a norm takes out, is as good as nothing; products of different tokens do not scatter.
"""

from __future__ import annotations

import numpy as np

from core.experiment import Experiment
from core.gaussian_softmax import LARGEST
from core.mean_field import Layer
from core.tape import pull_back
from core.theory import NoPrediction, Prediction, all_alike, checked_start, layers, mean_cosine, rms
from core.vocabulary import EMBED

MOST_WORK = 2**20
"""L·T² beyond which nothing is predicted: every layer is played twice, and keeps all that is in it while it is."""

UNTOLD = frozenset({"q", "k"})
"""Sites of which nothing is predicted: what comes back to them hangs on how products scatter around their mean."""

Start = tuple[float, float]
"""rms and token_cosine of what a prediction starts at."""


def predict_gradient(experiment: Experiment, embedding: Start, top: Start) -> Prediction:
    """Return rms and token_cosine of ∂loss/∂x by (layer, site), the embedding among them; it tells nothing of heads.

    `embedding`: of the embedding, as `core.theory.predict` has it; `top`: of the gradient at resid_post of the last
    layer. Errors: NoPrediction, with the codes of `core.theory`, or ``gradient``, ``saturated``.
    """
    canonical = experiment.resolved()
    products = checked_start(canonical, *embedding)
    length = canonical.input.seq_len
    if canonical.model.n_layers * length**2 > MOST_WORK:
        raise NoPrediction("size")
    gradient = all_alike(length, *top, "gradient")
    below, sizes, likeness = [], {}, {}
    for played in layers(canonical, products):
        if is_saturated(played):
            raise NoPrediction("saturated")
        below.append(played.bottom.products)
    while below:
        played = Layer(canonical, len(below) - 1, below.pop())
        pull_back(played.top, gradient)
        gradient = played.bottom.gradient
        told = {(played.layer, site): tokens.gradient for site, tokens in played.sites.items() if site not in UNTOLD}
        for place, found in {**told, (EMBED, "embed"): gradient}.items():
            sizes[place], likeness[place] = rms(found), mean_cosine(found)
    return Prediction(sizes, likeness, {})


def is_saturated(played: Layer) -> bool:
    """Say whether the scores of a layer spread beyond LARGEST, where rows are one-hot but for ties.

    What comes back through them is then large on average and rests on ties so rare that a batch may have none.
    """
    return played.pattern is not None and bool((np.nan_to_num(played.pattern.std) > LARGEST).any())
