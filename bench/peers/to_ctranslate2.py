"""Writes a model folder of the translator as a CTranslate2 folder: to_ctranslate2.py MODEL OUT

For models as `translator train` makes them without options: layer norm, sinusoidal positions, ReLU, one vocabulary, all
embeddings tied. Needs ctranslate2, numpy and safetensors; the tokenizer stays the model folder's tokenizer.model.
"""
import json
import os
import sys

import numpy as np
import sentencepiece
from ctranslate2.specs import TransformerSpec
from safetensors.numpy import load_file


class Weights:
    """Copies tensors by our names into the parts of a specification."""

    def __init__(self, tensors, width):
        self.tensors, self.width = tensors, width

    def linear(self, part, name):
        part.weight, part.bias = self.tensors[name + ".weight"], self.tensors[name + ".bias"]

    def norm(self, part, name):
        part.gamma, part.beta = self.tensors[name + ".weight"], self.tensors[name + ".bias"]

    def attention(self, part, name, norm, memory=False):
        weight, bias = self.tensors[name + ".in_proj_weight"], self.tensors[name + ".in_proj_bias"]
        # CTranslate2 fuses all three projections of self-attention, and keys with values of a memory.
        cuts = [0, self.width, len(bias)] if memory else [0, len(bias)]
        for part_of, first, last in zip(part.linear, cuts, cuts[1:]):
            part_of.weight, part_of.bias = weight[first:last], bias[first:last]
        self.linear(part.linear[-1], name + ".out_proj")
        self.norm(part.layer_norm, norm)

    def feed_forward(self, part, layer, norm):
        self.norm(part.layer_norm, norm)
        self.linear(part.linear_0, layer + ".linear1")
        self.linear(part.linear_1, layer + ".linear2")


def sinusoids(length, width):
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table = np.zeros((length, width), np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, out = sys.argv[1:]
    with open(folder + "/options.json", encoding="utf-8") as file:
        options = json.load(file)["model"]
    tensors = load_file(folder + "/model.safetensors")
    if "target_embedding.weight" in tensors or "projection.weight" in tensors:
        sys.exit(f"{folder}: its embeddings are not tied, expected a model with --tying all")
    copy = Weights(tensors, options["d_model"])
    spec = TransformerSpec.from_config((options["num_encoder_layers"], options["num_decoder_layers"]), options["num_heads"],
                                       pre_norm=options["norm_first"])
    embedding = tensors["source_embedding.weight"]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = embedding
    spec.decoder.projection.bias = tensors.get("projection.bias", np.zeros(len(embedding), np.float32))
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        stack.position_encodings.encodings = sinusoids(512, options["d_model"])
        stack.scale_embeddings = True
        if name + ".norm.weight" in tensors:
            copy.norm(stack.layer_norm, name + ".norm")
        for i, part in enumerate(stack.layer):
            layer, norms = f"{name}.layers.{i}", iter(("norm1", "norm2", "norm3"))
            copy.attention(part.self_attention, layer + ".self_attn", f"{layer}.{next(norms)}")
            if name == "decoder":
                copy.attention(part.attention, layer + ".multihead_attn", f"{layer}.{next(norms)}", memory=True)
            copy.feed_forward(part.ffn, layer, f"{layer}.{next(norms)}")
    pieces = sentencepiece.SentencePieceProcessor(model_file=folder + "/tokenizer.model")
    words = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    words += [f"<unused{i}>" for i in range(len(embedding) - len(words))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = True
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", words[1]
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    os.makedirs(out, exist_ok=True)
    spec.save(out)


if __name__ == "__main__":
    main()
