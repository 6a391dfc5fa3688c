"""Writes what a PyTorch module was given and what it gave, in one file that eigenformer's check_parity() compares with.

    python make_fixture.py encoder.safetensors

makes one of a random nn.TransformerEncoder. For a module of your own import save_fixture().
"""

import argparse
import json

import torch
import torch.nn as nn
from safetensors.torch import save_file


def save_fixture(path, module, inputs, call=None, **options):
    """inputs: tensors by name; floating-point ones get gradients. call(module, inputs) returns the output, by default
    module(*inputs). options are stored as JSON, for the reader to build its module with.

    Everything is computed in float64, from the float32 values that are stored, so that differences are the reader's.
    Dropout must be off: make the module with a rate of 0, for eval() may take other paths than training does.
    """
    module = module.float().double()
    given = {k: v.float().double().requires_grad_() if v.is_floating_point() else v for k, v in inputs.items()}
    y = call(module, given) if call else module(*given.values())
    cotangent = torch.randn(y.shape).double()
    cotangent = cotangent.float().double()
    (y * cotangent).sum().backward()
    tensors = {"out.y": y, "in.cotangent": cotangent.float()}
    for name, value in given.items():
        tensors[f"in.{name}"] = value.float() if value.is_floating_point() else value
        if value.grad is not None:
            tensors[f"grad_in.{name}"] = value.grad
    for name, parameter in module.named_parameters():
        tensors[f"param.{name}"], tensors[f"grad.{name}"] = parameter.float(), parameter.grad
    tensors = {k: v.detach().contiguous().clone() for k, v in tensors.items()}
    save_file(tensors, path, metadata={"options": json.dumps(options)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--d_model", type=int, default=12)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--feed_forward", type=int, default=20)
    parser.add_argument("--norm_first", action="store_true")
    parser.add_argument("--activation", choices=["relu", "gelu"], default="relu")
    a = parser.parse_args()
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(a.d_model, a.heads, a.feed_forward, dropout=0.0, activation=a.activation,
                                       batch_first=True, norm_first=a.norm_first)
    encoder = nn.TransformerEncoder(layer, a.layers, norm=nn.LayerNorm(a.d_model), enable_nested_tensor=False)
    mask = torch.rand(7, 7) < 0.3
    mask[:, 0] = False
    save_fixture(a.path, encoder, {"src": torch.randn(2, 7, a.d_model), "mask": mask},
                 lambda m, x: m(x["src"], mask=x["mask"]), d_model=a.d_model, num_heads=a.heads, num_layers=a.layers,
                 dim_feedforward=a.feed_forward, norm_first=a.norm_first, activation=a.activation)
