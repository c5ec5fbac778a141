"""Variants that are measured in this process, as the views of pages get them."""

from core.experiment import parse
from core.trace import Trace
from core.train import train
from pages.ui.cache import Measured
from pages.ui.link import Variant


def probed(name, base, changes):
    """The variant `name`: what `changes` make of `base`, with its trace and no run in a store."""
    experiment = parse({}).with_values({**base, **changes})
    return Measured(Variant(changes, experiment, name), None, Trace(tuple(train(experiment))))
