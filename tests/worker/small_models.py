"""Small models of every text task, built on the spot: random weights, always the same.

A tokenizer of whole words and their pieces, so that a word may be several tokens, and networks of a
few thousand numbers. Their answers mean nothing; whether they are the stock pipeline's does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    GPT2Config,
    PreTrainedTokenizerFast,
    TapasConfig,
    TapasForQuestionAnswering,
    TapasTokenizer,
)

TEXT = (
    "the a harbour wall was built of grey stone and it still stand ##s every winter when waves "
    "strike at night paris is capital city in france anna live berlin work for hamburg ferry "
    "leaves noon this example travel cook ##ing politics rain ##ed all day . , {} lovely look "
    "morning long before any ##body now alive born fish ##er ##man"
)
WORDS = TEXT.split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
POSITIONS = 40

SIZES: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}


def save_tokenizer(folder: Path) -> None:
    """Words and pieces; a text stands between two special tokens."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    raw = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    raw.normalizer = BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    tokenizer.save_pretrained(folder)


def save_byte_tokenizer(folder: Path) -> int:
    """Bytes and what often stands together in the words, as generating models have it."""
    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = " ".join(word.removeprefix("##") for word in WORDS)
    raw.train_from_iterator([text, text.title()], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} . {% endfor %}"
    tokenizer.save_pretrained(folder)
    return int(raw.get_vocab_size())


def save_model(folder: Path, task: str, **options: Any) -> None:
    """A model of the task with its tokenizer."""
    torch.manual_seed(7)
    if task == "table-question-answering":
        save_table_model(folder)
        return
    # Random weights as they are made say much the same of every text: larger ones do not.
    sizes = SIZES | {"initializer_range": 0.5} | options
    model: Any
    if task == "text-generation":
        config: Any = GPT2Config(
            vocab_size=save_byte_tokenizer(folder), n_embd=16, n_layer=2, n_head=2,
            n_positions=POSITIONS, initializer_range=0.5, eos_token_id=0, pad_token_id=1,
            bos_token_id=0,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_config(config)
    elif task == "token-classification":
        labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
        model = AutoModelForTokenClassification.from_config(BertConfig(**sizes, **named(labels)))
    elif task == "feature-extraction":
        model = AutoModel.from_config(BertConfig(**sizes))
    else:
        labels = ["contradiction", "neutral", "entailment"]
        if task == "text-classification":
            labels = ["bad", "poor", "fair", "good", "great", "superb", "perfect"]
        config = BertConfig(**sizes, **named(labels))
        model = AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(folder)
    if task != "text-generation":
        save_tokenizer(folder)


def save_table_model(folder: Path) -> None:
    """A model that reads tables, with its own kind of tokenizer."""
    pieces = [*"0123456789", *(f"##{digit}" for digit in range(10))]
    words = [*SPECIAL, "[EMPTY]", *WORDS, *pieces]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in words))
    TapasTokenizer(str(vocabulary)).save_pretrained(folder)
    aggregations = dict(enumerate(["NONE", "SUM", "AVERAGE", "COUNT"]))
    config = TapasConfig(
        **SIZES | {"vocab_size": len(words)}, initializer_range=0.5,
        aggregation_labels=aggregations, num_aggregation_labels=len(aggregations),
        no_aggregation_label_index=0,
    )  # fmt: skip
    TapasForQuestionAnswering(config).save_pretrained(folder)


def named(labels: list[str]) -> dict[str, Any]:
    """Labels as a configuration has them."""
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


if __name__ == "__main__":
    for name in sys.argv[2:]:
        made = Path(sys.argv[1]) / name
        made.mkdir()
        save_model(made, name)
