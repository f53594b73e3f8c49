"""Small models of kinds that stand beside those of ``small_image_models`` and ``small_sounds``.

Random weights, always the same: a document reader that writes its answer, a model of films whose
processor makes tubes of frames, and kinds that are not served.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    DonutImageProcessorPil,
    DonutSwinConfig,
    GenerationConfig,
    MBartConfig,
    PreTrainedTokenizerFast,
    SpeechT5Config,
    SpeechT5ForTextToSpeech,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    VivitConfig,
    VivitForVideoClassification,
    VJEPA2Config,
    VJEPA2ForVideoClassification,
)

from tests.worker.small_models import named, save_byte_tokenizer, save_tokenizer
from tests.worker.small_sounds import LABELS

WRITES = 48
"""Most tokens of the document reader, those of the question included."""

_MARKS = ["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>"]


def save_donut(folder: Path) -> None:
    """A model that reads the picture and writes; its last token always ends the answer."""
    save_byte_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(_MARKS, special_tokens=True)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    ids = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in _MARKS}
    torch.manual_seed(7)
    reads = DonutSwinConfig(
        image_size=[32, 32], patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2],
        window_size=4, initializer_range=0.5,
    )  # fmt: skip
    writes = MBartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1,
        decoder_attention_heads=2, decoder_ffn_dim=32, max_position_embeddings=64, is_decoder=True,
        add_cross_attention=True, is_encoder_decoder=False, init_std=0.5, scale_embedding=True,
        pad_token_id=1, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    model = VisionEncoderDecoderModel(
        VisionEncoderDecoderConfig.from_encoder_decoder_configs(reads, writes)
    )
    model.generation_config = GenerationConfig(
        max_length=WRITES, eos_token_id=0, pad_token_id=1, bos_token_id=0,
        decoder_start_token_id=ids["<s_docvqa>"], forced_eos_token_id=ids["</s_answer>"],
    )  # fmt: skip
    model.save_pretrained(folder)
    DonutImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)


def save_vivit(folder: Path) -> None:
    """A classifier that looks at tubes: two frames each."""
    torch.manual_seed(3)
    config = VivitConfig(
        image_size=32, num_frames=8, tubelet_size=[2, 16, 16], hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32, initializer_range=0.5, **named(LABELS),
    )  # fmt: skip
    VivitForVideoClassification(config).save_pretrained(folder)
    _write(
        folder, "preprocessor_config.json", image_processor_type="VivitImageProcessor",
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32},
    )  # fmt: skip


def save_vjepa(folder: Path) -> None:
    """A classifier whose processor takes whole films."""
    config = VJEPA2Config(
        patch_size=16, crop_size=32, frames_per_clip=8, hidden_size=32, num_attention_heads=2,
        num_hidden_layers=1, mlp_ratio=2, pred_hidden_size=32, pred_num_attention_heads=2,
        pred_num_hidden_layers=1, num_pooler_layers=1, num_labels=3,
    )  # fmt: skip
    VJEPA2ForVideoClassification(config).save_pretrained(folder)
    _write(folder, "video_preprocessor_config.json", video_processor_type="VJEPA2VideoProcessor")


def save_speecht5(folder: Path) -> None:
    """A model that makes spectrograms of a text and a voice."""
    save_tokenizer(folder)
    config = SpeechT5Config(
        vocab_size=40, hidden_size=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, speaker_embedding_dim=8, num_mel_bins=16,
        speech_decoder_prenet_units=16, speech_decoder_postnet_units=16, max_text_positions=64,
        max_speech_positions=100,
    )  # fmt: skip
    SpeechT5ForTextToSpeech(config).save_pretrained(folder)


def _write(folder: Path, name: str, **members: object) -> None:
    (folder / name).write_text(json.dumps(members))


MAKERS: dict[str, Callable[[Path], None]] = {
    "donut": save_donut,
    "speecht5": save_speecht5,
    "vivit": save_vivit,
    "vjepa": save_vjepa,
}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        made = Path(sys.argv[1]) / name
        made.mkdir()
        MAKERS[name](made)
