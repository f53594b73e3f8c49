"""How weights lie in memory: the way in which the matrix kernels read them.

A linear layer multiplies by the transpose of its weight, and as checkpoints have it each multiply
walks through the weight across its rows. Laid out once the other way, the same numbers are read one
after the other. On a CPU a lone input is answered about a tenth sooner, so is a batch of four,
and with some hundreds of tokens it makes hardly a difference (``python -m tests.bench.gains``).

Laws
- The numbers stay what they are; an answer changes in its last digits at most, as it does with the
  number of rows.
- A weight that another layer shares stays as it is: an embedding reads rows.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

MOST_BYTES = 2**29
"""A larger model keeps its weights as the file has them: they may be the file's own pages, which
all workers share, and laid out anew they would be each worker's own."""


def lay_out(model: nn.Module) -> int:
    """Lay out the weights of linear layers for small batches on a CPU.

    Returns:
        How many were laid out.
    """
    uses = Counter(
        id(weight)
        for module in model.modules()
        for weight in module._parameters.values()  # noqa: SLF001 - the public way leaves out repeats
        if weight is not None
    )
    found = [
        module.weight
        for module in model.modules()
        if type(module) is nn.Linear and uses[id(module.weight)] == 1
    ]
    if any(weight.dtype != torch.float32 or weight.device.type != "cpu" for weight in found):
        return 0
    if sum(weight.nbytes for weight in found) > MOST_BYTES:
        return 0
    for weight in found:
        weight.data = weight.data.t().contiguous().t()
    return len(found)
