"""Small models of the tasks of sound and film, built on the spot: random weights, always the same.

As ``small_models``: their answers mean nothing; whether they are the stock pipeline's does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    ClapConfig,
    ClapFeatureExtractor,
    ClapModel,
    GenerationConfig,
    VideoMAEConfig,
    VideoMAEForVideoClassification,
    VideoMAEImageProcessorPil,
    VitsConfig,
    VitsModel,
    VitsTokenizer,
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    Wav2Vec2ForSequenceClassification,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

from tests.worker.small_models import SIZES, named, save_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
LABELS = ["dog", "bell", "rain", "engine", "speech", "silence"]

_WAVES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": [8, 8, 8],
    "conv_kernel": [10, 8, 4],
    "conv_stride": [8, 8, 5],  # 320 samples a frame, as the real ones
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "initializer_range": 0.5,
}


def save_waves(folder: Path, *, ctc: bool, masked: bool) -> None:
    """Wav2Vec2; only the masked kind hides padding."""
    torch.manual_seed(3)
    norm = "layer" if masked else "group"
    options = _WAVES | {"feat_extract_norm": norm, "do_stable_layer_norm": masked}
    Wav2Vec2FeatureExtractor(return_attention_mask=masked).save_pretrained(folder)
    if not ctc:
        config = Wav2Vec2Config(**options, **named(LABELS), classifier_proj_size=16)
        Wav2Vec2ForSequenceClassification(config).save_pretrained(folder)
        return
    words = ["<pad>", "<s>", "</s>", "<unk>", "|", *LETTERS]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({word: number for number, word in enumerate(words)}))
    Wav2Vec2CTCTokenizer(str(vocabulary)).save_pretrained(folder)
    config = Wav2Vec2Config(**options, vocab_size=len(words), pad_token_id=0)
    model = Wav2Vec2ForCTC(config)
    torch.nn.init.normal_(model.lm_head.weight)
    model.save_pretrained(folder)


def save_spectrogram_transformer(folder: Path) -> None:
    """A classifier that hears a window, however long the sound is."""
    torch.manual_seed(3)
    ASTFeatureExtractor(max_length=128, num_mel_bins=16).save_pretrained(folder)
    config = ASTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_length=128, num_mel_bins=16, initializer_range=0.5, **named(LABELS),
    )  # fmt: skip
    ASTForAudioClassification(config).save_pretrained(folder)


def save_clap(folder: Path) -> None:
    """A model that compares a sound with texts."""
    torch.manual_seed(3)
    save_tokenizer(folder)
    settings = folder / "tokenizer_config.json"
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | names))
    ClapFeatureExtractor(
        feature_size=16, sampling_rate=16000, max_length_s=1, hop_length=160,
        frequency_max=8000, fft_window_size=512, truncation="rand_trunc",
    ).save_pretrained(folder)  # fmt: skip
    config = ClapConfig(
        text_config={**SIZES, "initializer_range": 0.5, "max_position_embeddings": 60},
        audio_config={
            "spec_size": 64, "patch_size": 4, "patch_stride": [4, 4], "num_mel_bins": 16,
            "patch_embeds_hidden_size": 8, "hidden_size": 16, "depths": [1, 1], "window_size": 4,
            "num_attention_heads": [2, 2], "projection_dim": 16, "num_classes": 4,
        },
        projection_dim=16,
    )  # fmt: skip
    model = ClapModel(config)
    for layer in model.modules():  # or all sounds and texts are much the same to it
        if isinstance(layer, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(layer.weight, std=0.5)
    model.save_pretrained(folder)


def save_whisper(folder: Path) -> None:
    """A model that generates, with windows of two seconds."""
    torch.manual_seed(5)
    letters = [*map(chr, range(97, 123)), "Ġ"]
    (folder / "vocab.json").write_text(json.dumps({c: n for n, c in enumerate(letters)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = WhisperTokenizer(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=64
    )
    times = [f"<|{step * 0.02:.2f}|>" for step in range(101)]
    special = [
        "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>",
        "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
    ]  # fmt: skip
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens(times)
    tokenizer.save_pretrained(folder)
    ids = {word: tokenizer.convert_tokens_to_ids(word) for word in [*special, *times]}
    WhisperFeatureExtractor(feature_size=16, chunk_length=2).save_pretrained(folder)
    end = ids["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, d_model=16, encoder_ffn_dim=16,
        decoder_ffn_dim=16, max_source_positions=100, max_target_positions=64,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, init_std=0.4,
        decoder_start_token_id=ids["<|startoftranscript|>"], suppress_tokens=[],
        begin_suppress_tokens=[end], tie_word_embeddings=False,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():  # it says letters and not only signs
        model.proj_out.weight[: len(letters)] *= 3
    model.generation_config = GenerationConfig(
        pad_token_id=end, bos_token_id=end, eos_token_id=end, max_length=10,
        decoder_start_token_id=ids["<|startoftranscript|>"], is_multilingual=True,
        lang_to_id={"<|en|>": ids["<|en|>"], "<|de|>": ids["<|de|>"]},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"], alignment_heads=[[0, 0], [0, 1]],
        prev_sot_token_id=ids["<|startofprev|>"], max_initial_timestamp_index=50,
        begin_suppress_tokens=[end], suppress_tokens=[ids[word] for word in special[1:]],
    )  # fmt: skip
    model.save_pretrained(folder)


def save_vits(folder: Path) -> None:
    """A voice; with its noise at zero it always says a text the same way."""
    torch.manual_seed(3)
    words = [" ", *LETTERS, "<unk>", "<pad>"]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({word: number for number, word in enumerate(words)}))
    VitsTokenizer(str(vocabulary), is_uroman=False, phonemize=False).save_pretrained(folder)
    config = VitsConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        ffn_dim=16, flow_size=16, spectrogram_bins=9, upsample_initial_channel=16,
        upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3, 5]], prior_encoder_num_flows=1,
        duration_predictor_num_flows=1, posterior_encoder_num_wavenet_layers=1,
        prior_encoder_num_wavenet_layers=1, noise_scale=0.0, noise_scale_duration=0.0,
        use_stochastic_duration_prediction=False, duration_predictor_filter_channels=16,
        sampling_rate=8000,
    )  # fmt: skip
    VitsModel(config).save_pretrained(folder)


def save_film_model(folder: Path) -> None:
    """A classifier that looks at eight frames."""
    torch.manual_seed(3)
    sizes = {"height": 32, "width": 32}
    VideoMAEImageProcessorPil(size={"shortest_edge": 32}, crop_size=sizes).save_pretrained(folder)
    config = VideoMAEConfig(
        image_size=32, num_frames=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, initializer_range=0.5, **named(LABELS),
    )  # fmt: skip
    VideoMAEForVideoClassification(config).save_pretrained(folder)


MAKERS: dict[str, Callable[[Path], None]] = {
    "audio-classification": lambda folder: save_waves(folder, ctc=False, masked=True),
    "audio-classification:plain": lambda folder: save_waves(folder, ctc=False, masked=False),
    "audio-classification:window": save_spectrogram_transformer,
    "automatic-speech-recognition": lambda folder: save_waves(folder, ctc=True, masked=True),
    "automatic-speech-recognition:plain": lambda folder: save_waves(folder, ctc=True, masked=False),
    "automatic-speech-recognition:whisper": save_whisper,
    "zero-shot-audio-classification": save_clap,
    "text-to-audio": save_vits,
    "video-classification": save_film_model,
}
"""By task, and by the kind of model where they differ."""

if __name__ == "__main__":
    for name in sys.argv[2:]:
        made = Path(sys.argv[1]) / name
        made.mkdir()
        MAKERS[name](made)
