"""Small models of every image task, built on the spot: random weights, always the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPVisionConfig,
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessor,
    DPTConfig,
    DPTForDepthEstimation,
    DPTImageProcessor,
    LayoutLMConfig,
    LayoutLMForQuestionAnswering,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    MaskFormerConfig,
    MaskFormerForInstanceSegmentation,
    MaskFormerImageProcessor,
    OwlViTConfig,
    OwlViTForObjectDetection,
    OwlViTImageProcessor,
    PreTrainedTokenizerFast,
    ResNetConfig,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SegformerImageProcessor,
    SuperGlueConfig,
    SuperGlueForKeypointMatching,
    SuperGlueImageProcessor,
    SuperPointConfig,
    SwinConfig,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
)

from tests.worker.small_models import SIZES, SPECIAL, WORDS, save_byte_tokenizer, save_tokenizer

SIDE = 32
SQUARE = {"height": SIDE, "width": SIDE}
TINY: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": SIDE, "patch_size": 8, "initializer_range": 0.5,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "vocab_size": len(SPECIAL) + len(WORDS), "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 20,
    "initializer_range": 0.5, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip


def _save(folder: Path, model: Any, *parts: Any) -> None:
    torch.manual_seed(7)
    for part in (model, *parts):
        part.save_pretrained(folder)


def _labels(kind: Any, count: int = 6, **options: Any) -> Any:
    return kind(num_labels=count, **options)


def classification(folder: Path) -> None:
    """ViT."""
    _save(
        folder,
        ViTForImageClassification(_labels(ViTConfig, **TINY)),
        ViTImageProcessor(size=SQUARE),
    )


def features(folder: Path) -> None:
    """ViT without a head."""
    _save(folder, ViTModel(ViTConfig(**TINY)), ViTImageProcessor(size=SQUARE))


def _backbone() -> ResNetConfig:
    return ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip


def detection(folder: Path) -> None:
    """DETR: pictures keep their shape, so that tensors differ."""
    config = DetrConfig(
        use_timm_backbone=False, backbone_config=_backbone(), backbone=None, d_model=16,
        encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2, num_queries=5, num_labels=4,
        use_pretrained_backbone=False, init_std=0.5,
    )  # fmt: skip
    processor = DetrImageProcessor(size={"shortest_edge": 48, "longest_edge": 96})
    _save(folder, DetrForObjectDetection(config), processor)


def semantic(folder: Path) -> None:
    """SegFormer."""
    config = SegformerConfig(
        hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 1, 1], depths=[1, 1, 1, 1],
        decoder_hidden_size=8, num_labels=4, initializer_range=0.5,
    )  # fmt: skip
    _save(folder, SegformerForSemanticSegmentation(config), SegformerImageProcessor(size=SQUARE))


def panoptic(folder: Path) -> None:
    """MaskFormer."""
    config = MaskFormerConfig(
        backbone_config=SwinConfig(
            image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 1, 1],
            window_size=2, out_features=["stage1", "stage2", "stage3", "stage4"],
        ),
        decoder_config=DetrConfig(
            use_timm_backbone=False, backbone_config=_backbone(), backbone=None, d_model=16,
            encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
            encoder_attention_heads=2, decoder_attention_heads=2, num_queries=4,
            use_pretrained_backbone=False,
        ),
        fpn_feature_size=32, mask_feature_size=32, num_labels=3, init_std=0.5,
    )  # fmt: skip
    processor = MaskFormerImageProcessor(
        size={"shortest_edge": 64, "longest_edge": 128}, size_divisor=32, num_labels=3
    )
    _save(folder, MaskFormerForInstanceSegmentation(config), processor)


def depth(folder: Path) -> None:
    """DPT."""
    config = DPTConfig(
        **{**TINY, "num_hidden_layers": 4, "initializer_range": 0.1},
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8,
        reassemble_factors=[4, 2, 1, 0.5],
    )  # fmt: skip
    _save(folder, DPTForDepthEstimation(config), DPTImageProcessor(size=SQUARE))


def _words(folder: Path) -> PreTrainedTokenizerFast:
    save_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


def zero_shot(folder: Path) -> None:
    """CLIP."""
    config = CLIPConfig(text_config=TEXT, vision_config=TINY, projection_dim=16)
    processor = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SQUARE)
    _save(folder, CLIPModel(config), processor, _words(folder))


def zero_shot_detection(folder: Path) -> None:
    """OWL-ViT."""
    text = {**TEXT, "max_position_embeddings": 16}
    config = OwlViTConfig(text_config=text, vision_config=TINY, projection_dim=16)
    processor = OwlViTImageProcessor(size=SQUARE, crop_size=SQUARE)
    _save(folder, OwlViTForObjectDetection(config), processor, _words(folder))


def keypoints(folder: Path) -> None:
    """SuperGlue on SuperPoint."""
    config = SuperGlueConfig(
        keypoint_detector_config=SuperPointConfig(
            encoder_hidden_sizes=[8, 8, 8, 8], decoder_hidden_size=8, keypoint_decoder_dim=65,
            descriptor_decoder_dim=16, max_keypoints=12, keypoint_threshold=0.0,
        ),
        hidden_size=16, keypoint_encoder_sizes=[8, 8], gnn_layers_types=["self", "cross"],
        sinkhorn_iterations=3, num_attention_heads=2, matching_threshold=0.0,
    )  # fmt: skip
    processor = SuperGlueImageProcessor(size={"height": 48, "width": 48})
    _save(folder, SuperGlueForKeypointMatching(config), processor)


def documents(folder: Path) -> None:
    """LayoutLM."""
    config = LayoutLMConfig(**SIZES, initializer_range=0.5, max_2d_position_embeddings=1024)
    save_tokenizer(folder)
    _save(folder, LayoutLMForQuestionAnswering(config))


def describing(folder: Path) -> None:
    """LLaVA."""
    save_byte_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    tokenizer.padding_side = "left"
    tokenizer.model_max_length = 128
    size = len(tokenizer)
    text = LlamaConfig(
        vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.5, pad_token_id=1, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**TINY), text_config=text, image_token_index=size - 1,
        image_seq_length=16, vision_feature_layer=-1,
    )  # fmt: skip
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SQUARE),
        tokenizer=tokenizer, patch_size=8, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, image_token="<image>",
        chat_template=(
            "{% for m in messages %}{% for c in m['content'] %}"
            "{% if c['type'] == 'image' %}<image>{% else %} {{ c['text'] }}{% endif %}"
            "{% endfor %} . {% endfor %}"
        ),
    )  # fmt: skip
    _save(folder, LlavaForConditionalGeneration(config), processor)


MAKERS: dict[str, Callable[[Path], None]] = {
    "depth-estimation": depth,
    "document-question-answering": documents,
    "image-classification": classification,
    "image-feature-extraction": features,
    "image-segmentation": panoptic,
    "image-text-to-text": describing,
    "keypoint-matching": keypoints,
    "object-detection": detection,
    "semantic": semantic,
    "zero-shot-image-classification": zero_shot,
    "zero-shot-object-detection": zero_shot_detection,
}

SECOND = {"semantic": "image-segmentation"}
"""Second models, and their tasks."""


def save_image_model(folder: Path, task: str) -> None:
    """A model of the task with all that its pipeline wants."""
    torch.manual_seed(7)
    MAKERS[task](folder)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        save_image_model(Path(sys.argv[1]) / name, name)
