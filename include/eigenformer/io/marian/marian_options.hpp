#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/ctranslate2/import_tools.hpp"
#include "eigenformer/io/marian/marian_file.hpp"
#include "eigenformer/io/marian/marian_settings.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer::detail {

/// The names and options of a Marian Transformer.
class MarianTransformer {
 public:
  /// Throws IoError for a file whose settings describe a model that is not supported.
  explicit MarianTransformer(const MarianFile& file)
      : file_(file), settings_(file.path().string() + ", special:model.yml", yaml(file)) {
    expect_all();
    Seq2SeqOptions& o = options_;
    const bool all = settings_.flag("tied-embeddings-all");
    const bool target = settings_.flag("tied-embeddings");
    const bool one_table = all || settings_.flag("tied-embeddings-src");
    source_embedding_ = one_table ? "Wemb" : "encoder_Wemb";
    target_embedding_ = one_table ? "Wemb" : "decoder_Wemb";
    const Shape source = matrix(source_embedding_), decoder = matrix(target_embedding_);
    expect_size("dim-vocabs", source[0], settings_.whole("dim-vocabs", 0));
    expect_size("dim-vocabs", decoder[0], settings_.whole("dim-vocabs", 1));
    expect_size("dim-emb", source[1], settings_.whole("dim-emb"));
    // Tying: which embeddings share their matrix with the projection.
    if (!all && !target) {
      throw settings_.refuse_value(
          "tied-embeddings", "false",
          "true, or tied-embeddings-all: models whose output has a matrix of its own "
          "are not supported");
    }
    if (!all && one_table) {
      throw settings_.refuse_value("tied-embeddings-src", "true",
                                   "false or tied-embeddings-all, as models in use have it");
    }
    o.tying = all ? Tying::all : Tying::target;
    // The last row is for the begin symbol, which Marian does not have: its embedding is zero.
    o.source_vocab_size = source[0] + (all ? 1 : 0);
    o.target_vocab_size = decoder[0] + 1;
    o.padding_index = all ? source[0] : -1;
    o.projection_bias = true;
    o.scale_embedding = true;
    o.positions = SinusoidalPositions{.order = SinusoidOrder::concatenated,
                                      .exponent = SinusoidExponent::tensor2tensor,
                                      .first_position = 0};
    o.encoder.num_layers = layers("enc-depth");
    o.decoder.num_layers = layers("dec-depth");
    LayerOptions& layer = o.layer;
    layer.d_model = source[1];
    layer.num_heads = settings_.whole("transformer-heads");
    layer.dim_feedforward = settings_.whole("transformer-dim-ffn");
    layer.dropout = {0};
    layer.activation = activation(settings_.word("transformer-ffn-activation", "swish"));
    layer.norm.eps = 1e-6;
    layer.norm_first = false;
    o.final_norm = false;
    o.decoder.layer = layer;
    o.decoder.layer->self_mixing = SelfMixing::ssru;
    o.embedding_dropout = 0;
    require_valid(file, o);
  }

  const MarianFile& file() const noexcept { return file_; }
  const Seq2SeqOptions& options() const noexcept { return options_; }
  const std::string& source_embedding() const noexcept { return source_embedding_; }
  const std::string& target_embedding() const noexcept { return target_embedding_; }
  /// Size of the target vocabulary in the file; ours has one more id, the begin symbol.
  index_t target_words() const noexcept { return options_.target_vocab_size - 1; }
  bool joint() const noexcept { return options_.tying == Tying::all; }

 private:
  static std::string yaml(const MarianFile& file) {
    if (!file.contains("special:model.yml"))
      throw file.refuse("has no item 'special:model.yml', expected the settings of a Marian model");
    return file.text("special:model.yml");
  }

  // Settings that change the model, with the values that are supported.
  void expect_all() const {
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, const char*>>{{"type", "transformer"},
                                                          {"transformer-decoder-autoreg", "rnn"},
                                                          {"dec-cell", "ssru"},
                                                          {"transformer-preprocess", ""},
                                                          {"transformer-postprocess", "dan"},
                                                          {"transformer-ffn-depth", "2"}}) {
      expect(key, value);
    }
    // The same for optional settings.
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, const char*>>{{"dec-cell-base-depth", "2"},
                                                          {"dec-cell-high-depth", "1"},
                                                          {"transformer-postprocess-top", ""},
                                                          {"transformer-decoder-dim-ffn", "0"},
                                                          {"transformer-decoder-ffn-depth", "0"},
                                                          {"transformer-no-projection", "false"},
                                                          {"transformer-no-affine", "false"},
                                                          {"transformer-no-bias", "false"},
                                                          {"transformer-rnn-projection", "false"},
                                                          {"transformer-pool", "false"},
                                                          {"transformer-train-position-embeddings", "false"},
                                                          {"factors-combine", "sum"},
                                                          {"factors-dim-emb", "0"},
                                                          {"lemma-dependency", ""},
                                                          {"lemma-dim-emb", "0"},
                                                          {"layer-normalization", "false"},
                                                          {"output-omit-bias", "false"},
                                                          {"right-left", "false"},
                                                          {"skip", "false"},
                                                          {"ulr", "false"}}) {
      if (settings_.has(key)) expect(key, value);
    }
    for (const char* key : {"transformer-tied-layers", "input-types"}) {
      const auto list = settings_.list(key);
      if (!list.empty() && !(list.size() == 1 && list[0].empty()))
        throw settings_.refuse_value(key, "'" + list[0] + "' ...", "none, as in browser models");
    }
  }
  void expect(const char* key, const std::string& value) const {
    const std::string found = settings_.word(key);
    if (found == value) return;
    throw settings_.refuse_value(
        key, found,
        (value.empty() ? "\"\"" : value) +
            ": the import is for post-norm Transformers with an SSRU in the decoder, "
            "as browsers have them");
  }
  void expect_size(const char* key, index_t found, long said) const {
    if (found == said) return;
    throw file_.refuse("has embeddings of " + std::to_string(found) + ", but its " + key + " says " +
                       std::to_string(said));
  }

  Shape matrix(const std::string& name) const {
    const Shape& shape = file_.shape(name);
    if (shape.rank() == 2) return shape;
    throw file_.refuse("has a '" + name + "' of shape " + shape.str() + ", expected a matrix");
  }
  index_t layers(const char* key) const {
    const long n = settings_.whole(key);
    // A layer has more than ten items.
    if (n >= 1 && n <= static_cast<long>(file_.names().size())) return n;
    throw settings_.refuse_value(key, std::to_string(n), "the number of layers in the file");
  }
  Activation activation(const std::string& word) const {
    if (word == "relu") return Activation::relu;
    if (word == "swish") return Activation::silu;
    if (word == "gelu") return Activation::gelu;
    throw settings_.refuse_value("transformer-ffn-activation", word, "relu, swish or gelu");
  }

  const MarianFile& file_;
  MarianSettings settings_;
  Seq2SeqOptions options_;
  std::string source_embedding_, target_embedding_;
};

}  // namespace eigenformer::detail
