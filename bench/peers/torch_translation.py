"""Trains with PyTorch the model that the translator trained, for a given time, and logs validations as the translator does:

    torch_translation.py MODEL LOG --source train.de --target train.en --valid-source val.de --valid-target val.en --minutes 14

MODEL is the folder of a training with the schedule wsd: its options.json gives the sizes, the size of batches, the peak rate
and the dropout, its tokenizer.model the pieces. nn.Transformer with tied embeddings, label smoothing, fused Adam, batches of
similar lengths, and that schedule by the clock. Products in bf16 or float32, whichever is faster here; without torch.compile,
which compiles again for each shape. Tokenizing and that choice are part of the time, validations are not. `translator curves
--x minutes` draws LOG beside others. Needs torch, sentencepiece and sacrebleu.
"""
import argparse
import json
import math
import random
import sys
import time

try:
    import sacrebleu
    import sentencepiece
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as e:
    sys.exit(f"{sys.executable} has no {e.name}: {sys.executable} -m pip install torch==2.8.0 sentencepiece sacrebleu")

PAD = 0
# What this model and this training have; MODEL must have the same.
FIXED = {
    "model": dict(activation="relu", attention="softmax", attention_positions="none", bias=True, embedding_dropout=None,
                  final_norm=True, gated=False, head_dim=0, norm="layer_norm", num_key_value_heads=0, positions="sinusoidal",
                  projection_bias=True, residual_dropout=None, scale_embedding=True, tying="all"),
    "training": dict(accumulate=1, bpe_dropout=0.0, ema_decay=0.0, optimizer="adam", r_drop=0.0, schedule="wsd", weight_decay=0.0),
}


class Model(nn.Module):
    def __init__(self, o, rates):
        super().__init__()
        d = o["d_model"]
        self.embedding = nn.Embedding(o["source_vocab_size"], d)
        nn.init.normal_(self.embedding.weight, std=d ** -0.5)
        angles = torch.arange(512).float()[:, None] * torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.drop = nn.Dropout(o["dropout"])
        self.body = nn.Transformer(d, o["num_heads"], o["num_encoder_layers"], o["num_decoder_layers"], o["dim_feedforward"],
                                   o["dropout"], batch_first=True, norm_first=o["norm_first"])
        for layer in [*self.body.encoder.layers, *self.body.decoder.layers]:
            layer.dropout.p = rates["feed_forward_dropout"]  # inside the feed-forward network
            for part in (layer.self_attn, getattr(layer, "multihead_attn", None)):
                if part is not None:
                    part.dropout = rates["attention_dropout"]
        self.bias = nn.Parameter(torch.zeros(o["source_vocab_size"]))

    def embed(self, ids):
        return self.drop(self.embedding(ids) * math.sqrt(self.embedding.embedding_dim) + self.positions[: ids.shape[1]])

    def encode(self, source):
        return self.body.encoder(self.embed(source), src_key_padding_mask=source == PAD)

    def decode(self, memory, source, target):
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.body.decoder(self.embed(target), memory, tgt_mask=causal, memory_key_padding_mask=source == PAD)

    def logits(self, x):
        return F.linear(x, self.embedding.weight, self.bias)


def pad(rows):
    return nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True, padding_value=PAD)


def batches(pairs, tokens, rng):
    """Batches of pairs of similar lengths, of at most this many target tokens, in random order."""
    order = list(range(len(pairs)))
    rng.shuffle(order)
    order.sort(key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
    result, batch = [], []
    for i in order:
        if batch and (len(batch) + 1) * (len(pairs[i][1]) - 1) > tokens:
            result.append(batch)
            batch = []
        batch.append(pairs[i])
    result.append(batch)
    rng.shuffle(result)
    return result


def loss_of(model, batch, smoothing):
    source, target = pad([pair[0] for pair in batch]), pad([pair[1] for pair in batch])
    out = model.logits(model.decode(model.encode(source), source, target[:, :-1])).float()
    return F.cross_entropy(out.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing,
                           reduction="sum"), int((target[:, 1:] != PAD).sum())


def greedy(model, pieces, sources):
    lines = []
    for i in range(0, len(sources), 50):
        source = pad(sources[i:i + 50])
        memory, out = model.encode(source), torch.full((len(source), 1), pieces.bos_id())
        for _ in range(int(source.shape[1] * 1.5) + 10):
            best = model.logits(model.decode(memory, source, out)[:, -1]).argmax(-1, keepdim=True)
            out = torch.cat([out, best], 1)
            if (out == pieces.eos_id()).any(1).all():
                break
        for row in out[:, 1:].tolist():
            lines.append(pieces.decode(row[: row.index(pieces.eos_id())] if pieces.eos_id() in row else row))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("log")
    for name in ("source", "target", "valid-source", "valid-target"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--validations", type=int, default=12)
    parser.add_argument("--sample", type=int, default=500, help="validation pairs translated for BLEU")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with open(args.model + "/options.json", encoding="utf-8") as file:
        options = json.load(file)
    o, t = options["model"], options["training"]
    for part, values in FIXED.items():
        for name, value in values.items():
            if options[part].get(name, value) != value:
                sys.exit(f"{args.model}: {name} is {options[part][name]}, expected {value}")
    pieces = sentencepiece.SentencePieceProcessor(model_file=args.model + "/tokenizer.model")

    def lines(name):
        with open(name, encoding="utf-8") as file:
            return file.read().rstrip("\n").split("\n")

    def pairs(source, target):
        """Ids of both sides, and the text of the target."""
        sources, targets = lines(source), lines(target)
        if len(sources) != len(targets):
            sys.exit(f"{source} has {len(sources)} lines, {target} {len(targets)}, expected as many")
        return [([*s, pieces.eos_id()], [pieces.bos_id(), *t, pieces.eos_id()], text)
                for s, t, text in zip(pieces.encode(sources), pieces.encode(targets), targets)
                if 0 < len(s) < 250 and 0 < len(t) < 250]

    began = time.perf_counter()
    training, valid = pairs(args.source, args.target), pairs(args.valid_source, args.valid_target)
    count = min(len(valid), args.sample)
    sample = [valid[k * len(valid) // count + len(valid) // count // 2] for k in range(count)]
    model = Model(o, {k: o["dropout"] if o[k] is None else o[k] for k in ("feed_forward_dropout", "attention_dropout")})
    rng = random.Random(1)

    def optimizer():
        return torch.optim.Adam(model.parameters(), lr=0, betas=(t["beta1"], t["beta2"]), eps=t["adam_eps"], fused=True)

    def update(batch, rate, bf16):
        for group in adam.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss, tokens = loss_of(model, batch, t["label_smoothing"])
        adam.zero_grad(set_to_none=True)
        (loss / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), t["clip_norm"] or math.inf)
        adam.step()
        return tokens

    todo = batches(training, t["batch_tokens"], rng)
    adam, times = optimizer(), []
    for bf16 in (False, True):  # with a rate of 0: the weights stay
        update(todo[0], 0.0, bf16)
        start = time.perf_counter()
        for batch in todo[:10]:
            update(batch, 0.0, bf16)
        times.append(time.perf_counter() - start)
    adam, bf16 = optimizer(), times[1] < times[0]
    limit, step, tokens, epoch, validating, done, best = args.minutes * 60, 0, 0, 1, 0.0, 0, math.inf

    with open(args.log, "w", encoding="utf-8") as log:
        def say(**event):
            log.write(json.dumps(dict(time=time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()), **event)) + "\n")
            log.flush()

        say(event="start", step=0, seconds=0.0, resumed=False, format=1, version="torch " + torch.__version__, bf16=bf16)
        while True:
            passed = (time.perf_counter() - began - validating) / limit
            if passed >= (done + 1) / args.validations:
                start = time.perf_counter()
                model.eval()
                with torch.no_grad():
                    parts = [loss_of(model, b, 0.0) for b in batches(valid, 2048, rng)]
                    bleu = sacrebleu.corpus_bleu(greedy(model, pieces, [s for s, _, _ in sample]), [[r for _, _, r in sample]]).score
                model.train()
                loss = float(sum(p[0] for p in parts)) / sum(p[1] for p in parts)
                say(event="validation", step=step, seconds=passed * limit, epoch=epoch, tokens=tokens, by="loss", best=loss < best,
                    measures=dict(loss=loss, bleu=bleu))
                best = min(best, loss)
                print(f"{passed * limit / 60:.1f} minutes, {step} updates: loss {loss:.3f}, BLEU {bleu:.1f}", flush=True)
                validating += time.perf_counter() - start
                done += 1
                if done == args.validations:
                    break
            if not todo:
                todo, epoch = batches(training, t["batch_tokens"], rng), epoch + 1
            warm = min(1.0, (step + 1) / max(1, t["warmup"] or 1))
            decay = 1 - math.sqrt(min(1.0, max(0.0, (passed - 0.8) / 0.2)))
            tokens += update(todo.pop(), t["learning_rate"] * warm * decay, bf16)
            step += 1
        say(event="end", step=step, seconds=limit, reason="max_minutes")


if __name__ == "__main__":
    main()
