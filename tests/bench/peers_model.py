"""A BERT of six layers, 384 wide, with 30,522 words and random weights, for the comparison.

``python -m tests.bench.peers_model FOLDER`` builds it: always the same weights. What the weights
are does not matter for the time that a forward takes. Its words are those of the benchmark's
texts, one token each, single letters, and syllables up to the number.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

from service.bench import texts
from tests.tools import ROOT

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = 30_522
LAYERS, WIDTH, HEADS, MOST_TOKENS = 6, 384, 12, 512
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
_DONE = "model.safetensors"


def vocabulary() -> dict[str, int]:
    """Every token with its number."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    syllables = ["".join(pair) for pair in product(_CONSONANTS, _VOWELS)]
    words = ("".join(three) for three in product(syllables, repeat=3))
    known = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *texts._WORDS]
    tokens = dict.fromkeys(known)
    for word in words:
        if len(tokens) == VOCABULARY:
            break
        tokens[word] = None
    return {token: number for number, token in enumerate(tokens)}


def build(folder: Path) -> None:
    """Write model and tokenizer."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizer

    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        max_position_embeddings=MOST_TOKENS,
    )  # fmt: skip
    BertTokenizer(vocab=vocabulary(), model_max_length=MOST_TOKENS).save_pretrained(folder)
    BertForMaskedLM(config).save_pretrained(folder)


def built(folder: Path) -> Path:
    """The folder, built in a process of its own if it is not there."""
    if not (folder / _DONE).exists():
        command = [sys.executable, "-m", "tests.bench.peers_model", str(folder)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return folder


if __name__ == "__main__":
    build(Path(sys.argv[1]))
