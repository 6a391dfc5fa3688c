#pragma once

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/train/options.hpp"

namespace translator {

namespace ef = eigenformer;

/// The settings of `translator train` besides the model folder. visit_train_options() lists them once; flags,
/// options.json and --resume follow from that list.
struct TrainSettings {
  std::string source, target, tsv;
  std::string valid_source, valid_target;
  std::string tokenizer = ef::has_subword_tokenizer() ? "subword" : "word";
  ef::index_t vocab_size = 8000;
  bool separate_vocab = false;
  ef::index_t max_length = 256;
  ef::index_t d_model = 256;
  ef::index_t heads = 8;
  ef::index_t layers = 3;
  ef::index_t ff = 1024;
  double dropout = 0.1;
  bool pre_norm = false;
  std::string positions = "sinusoidal";
  ef::index_t kv_heads = 0;
  ef::index_t head_dim = 0;
  ef::index_t window = 0;
  bool qk_norm = false;
  ef::NormKind qk_norm_kind = ef::NormKind::layer_norm;
  ef::NormKind norm = ef::NormKind::layer_norm;
  bool sandwich_norm = false;
  bool embedding_norm = false;
  ef::Activation activation = ef::Activation::relu;
  bool gated = false;
  ef::AttentionKind attention = ef::AttentionKind::softmax;
  double layer_drop = 0;
  std::string tie = "auto";
  bool bf16 = false;
  ef::TrainingOptions training{};

  ef::Seq2SeqOptions model(ef::index_t source_size, ef::index_t target_size) const;
  void validate() const;

  static void fields(auto& self, auto&& visit);
};

/// Whether an option may change when a training goes on.
enum class Change { free, never };

/// Calls visit(name, field, change, help) for every option.
void visit_train_options(auto& s, auto&& visit) {
  auto& t = s.training;
  auto& loop = t.loop;
  visit("source", s.source, Change::free, "sentences to translate from, one a line");
  visit("target", s.target, Change::free, "their translations, line by line");
  visit("tsv", s.tsv, Change::free,
        "in place of both: one file of source, tab, target; further columns are ignored");
  visit("valid_source", s.valid_source, Change::free,
        "sentences to validate on; else 1 % of the pairs is held out");
  visit("valid_target", s.valid_target, Change::free, "their translations");
  visit("tokenizer", s.tokenizer, Change::never, "char, word or subword");
  visit("vocab_size", s.vocab_size, Change::never, "entries of a vocabulary at most");
  visit("separate_vocab", s.separate_vocab, Change::never,
        "a vocabulary for each language, not one for both");
  visit("max_length", s.max_length, Change::never, "pairs with more tokens on one side are left out");
  visit("d_model", s.d_model, Change::never, "width of the model");
  visit("heads", s.heads, Change::never, "attention heads");
  visit("layers", s.layers, Change::never, "layers of the encoder, and of the decoder");
  visit("ff", s.ff, Change::never, "width inside the feed-forward networks");
  visit("dropout", s.dropout, Change::never, "dropout rate");
  visit("pre_norm", s.pre_norm, Change::never, "layer norm before each sub-layer, not after");
  visit("positions", s.positions, Change::never,
        "sinusoidal, learned, rotary, alibi, relative, shaw or none");
  visit("kv_heads", s.kv_heads, Change::never,
        "heads of keys and values, which heads of queries share; 0: as many");
  visit("head_dim", s.head_dim, Change::never, "width of a head; 0: d-model / heads");
  visit("window", s.window, Change::never, "self-attention reaches tokens less than this far away; 0: all");
  visit("qk_norm", s.qk_norm, Change::never, "a norm of each head's queries and keys");
  visit("qk_norm_kind", s.qk_norm_kind, Change::never, "which: layer_norm or rms_norm");
  visit("norm", s.norm, Change::never, "kind of all norms: layer_norm or rms_norm");
  visit("sandwich_norm", s.sandwich_norm, Change::never, "a norm before and one after each sub-layer");
  visit("embedding_norm", s.embedding_norm, Change::never, "a norm of the embeddings");
  visit("activation", s.activation, Change::never,
        "in the feed-forward networks: relu, relu_squared, gelu, gelu_tanh, silu, sigmoid, tanh");
  visit("gated", s.gated, Change::never,
        "gated feed-forward networks: silu makes them SwiGLU, gelu GEGLU, sigmoid GLU");
  visit("attention", s.attention, Change::never,
        "softmax, or linear: cost grows with the length, not with its square");
  visit("layer_drop", s.layer_drop, Change::never, "stochastic depth: rate of leaving out the last layers");
  visit("tie", s.tie, Change::never,
        "embeddings that are one matrix: none, target (with the projection), all, or auto");
  visit("bf16", s.bf16, Change::free, "matrix products of bfloat16 numbers with float sums");
  visit("batch_tokens", t.batch_tokens, Change::never, "target tokens of a batch");
  visit("accumulate", loop.accumulate, Change::never, "batches of an update");
  visit("epochs", loop.epochs, Change::free, "passes over the corpus at most");
  visit("max_steps", loop.max_steps, Change::free, "updates at most; 0: no limit");
  visit("max_minutes", loop.max_minutes, Change::free, "minutes at most, of this run; 0: no limit");
  visit("learning_rate", t.learning_rate, Change::free, "learning rate at the end of the warm-up, its peak");
  visit("warmup", t.warmup, Change::free, "updates of linear warm-up");
  visit("schedule", t.schedule, Change::free,
        "then: inverse-sqrt (or noam, its other name), cosine or constant");
  visit("weight_decay", t.weight_decay, Change::free,
        "decoupled weight decay (AdamW), but of norms and biases");
  visit("clip", loop.clip_norm, Change::free, "norm of the gradients at most; 0: no limit");
  visit("label_smoothing", t.label_smoothing, Change::free, "label smoothing");
  visit("validate_every", loop.validate_every, Change::free,
        "updates between validations; 0: after each epoch");
  visit("patience", loop.patience, Change::free,
        "end after so many validations without a better one; 0: never");
  visit("average_last", loop.average_last, Change::free,
        "average the weights of the last so many validations at the end");
  visit("seed", loop.seed, Change::never, "seed of weights, batches and dropout");
}

void TrainSettings::fields(auto& self, auto&& visit) {
  visit_train_options(self, [&](const char* name, auto& field, Change, const char* help) {
    visit(ef::OptionField{name, help}, field);
  });
}

/// Adds all options to a command; what is given there goes into `settings`.
void add_options(CLI::App& command, TrainSettings& settings);

/// Settings as an options.json holds them. Version 0.1.0 wrote the schedule "noam" with the paper's factor as
/// the learning rate: it becomes the same curve by its peak.
TrainSettings saved_settings(nlohmann::json saved);

/// The settings of a training that goes on: those it was started with, `saved`, and on top what the command
/// line says. Throws ValueError for what cannot change.
TrainSettings resumed_settings(const CLI::App& command, const TrainSettings& given,
                               const nlohmann::json& saved);

}  // namespace translator
