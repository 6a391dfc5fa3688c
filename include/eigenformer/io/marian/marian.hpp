#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/marian/marian_folder.hpp"
#include "eigenformer/io/models/int8_panels.hpp"
#include "eigenformer/io/models/translation_model.hpp"

namespace eigenformer {

namespace detail {

/// Where our weights are in a Marian file: for each of our names, theirs, one or several below each other.
using MarianNames = std::map<std::string, std::vector<std::string>>;

/// Gathers the weights of a Marian model.
template <class T>
class MarianImport {
 public:
  explicit MarianImport(const MarianTransformer& described)
      : described_(described), file_(described.file()), import_(file_) {
    const Seq2SeqOptions& o = described.options();
    const index_t d = o.layer.d_model, ff = o.layer.dim_feedforward;
    embeddings();
    for (const std::string stack : {"encoder", "decoder"}) {
      const bool decoder = stack == "decoder";
      const index_t layers = decoder ? o.decoder.num_layers : o.encoder.num_layers;
      for (index_t i = 0; i < layers; ++i) {
        const std::string ours = stack + ".layers." + std::to_string(i) + ".";
        const std::string theirs = stack + "_l" + std::to_string(i + 1) + "_";
        if (decoder) {
          linear(ours + "ssru.input.", theirs + "rnn", {"W"}, {}, {d}, d);
          linear(ours + "ssru.forget.", theirs + "rnn", {"Wf"}, {"bf"}, {d}, d);
          norm(ours + "norm1", theirs + "rnn_ffn");
          attention(ours + "multihead_attn.", theirs + "context", d);
          norm(ours + "norm2", theirs + "context_Wo");
        } else {
          attention(ours + "self_attn.", theirs + "self", d);
          norm(ours + "norm1", theirs + "self_Wo");
        }
        linear(ours + "linear1.", theirs + "ffn", {"W1"}, {"b1"}, {ff}, d);
        linear(ours + "linear2.", theirs + "ffn", {"W2"}, {"b2"}, {d}, ff);
        norm(ours + (decoder ? "norm3" : "norm2"), theirs + "ffn_ffn");
      }
    }
    for (const std::string& name : file_.names()) {
      if (name.ends_with("_QuantMultA") || name == "special:model.yml") import_.used(name);
    }
    import_.check();
  }

  /// The model with these weights.
  Seq2SeqTransformer<T> model() const {
    RandomGenerator rng = RandomGenerator::idle();
    Seq2SeqTransformer<T> model(described_.options(), rng);
    import_.load_into(model);
    return model;
  }
  const MarianNames& names() const noexcept { return names_; }

 private:
  void embeddings() {
    const Seq2SeqOptions& o = described_.options();
    const index_t d = o.layer.d_model;
    const Tensor<T> source = table(described_.source_embedding(), o.source_vocab_size, d);
    const Tensor<T> target =
        described_.joint() ? source : table(described_.target_embedding(), o.target_vocab_size, d);
    import_.add("source_embedding.weight", source);
    import_.add("target_embedding.weight", target);
    import_.add("projection.weight", target);
    names_["source_embedding.weight"] = {described_.source_embedding()};
    names_["target_embedding.weight"] = names_["projection.weight"] = {described_.target_embedding()};
    const std::string bias = "decoder_ff_logit_out_b";
    const Tensor<T> given = vector(bias, described_.target_words());
    Tensor<T> whole(Shape{o.target_vocab_size});
    std::copy_n(given.data(), given.numel(), whole.data());
    // The begin symbol is no word: its probability underflows to zero.
    whole.data()[given.numel()] = T(-1e4);
    import_.add("projection.bias", whole);
  }

  // An embedding with a row of zeros more, where the vocabulary has the begin symbol.
  Tensor<T> table(const std::string& theirs, index_t rows, index_t d) {
    import_.used(theirs);
    const Tensor<T> given = file_.tensor<T>(theirs);
    if (given.dim(0) == rows) return given;
    Tensor<T> whole = Tensor<T>::zeros(Shape{rows, d});
    std::copy_n(given.data(), given.numel(), whole.data());
    return whole;
  }
  Tensor<T> vector(const std::string& theirs, index_t size) {
    import_.used(theirs);
    if (file_.shape(theirs) != Shape{1, size} && file_.shape(theirs) != Shape{size}) {
      throw file_.refuse("has a '" + theirs + "' of shape " + file_.shape(theirs).str() + ", expected " +
                         Shape{1, size}.str());
    }
    return file_.tensor<T>(theirs).reshape(Shape{size});
  }

  // weights and biases: of parts with these numbers of outputs, below each other in ours.
  void linear(const std::string& ours, const std::string& theirs, const std::vector<std::string>& weights,
              const std::vector<std::string>& biases, const std::vector<index_t>& outputs, index_t in,
              const char* joint = "") {
    std::vector<std::string> names;
    index_t rows = 0;
    for (const std::string& weight : weights) names.push_back(theirs + "_" + weight);
    for (const index_t n : outputs) rows += n;
    import_.take(ours + joint + "weight", names, {rows, in});
    names_[ours + joint + "weight"] = names;
    if (biases.empty()) return;
    Tensor<T> bias(Shape{rows});
    T* out = bias.data();
    for (std::size_t i = 0; i < biases.size(); ++i)
      out = std::copy_n(vector(theirs + "_" + biases[i], outputs[i]).data(), outputs[i], out);
    import_.add(ours + joint + "bias", bias);
  }
  void attention(const std::string& ours, const std::string& theirs, index_t d) {
    linear(ours, theirs, {"Wq", "Wk", "Wv"}, {"bq", "bk", "bv"}, {d, d, d}, d, "in_proj_");
    linear(ours + "out_proj.", theirs, {"Wo"}, {"bo"}, {d}, d);
  }
  void norm(const std::string& ours, const std::string& theirs) {
    const index_t d = described_.options().layer.d_model;
    import_.add(ours + ".weight", vector(theirs + "_ln_scale", d));
    import_.add(ours + ".bias", vector(theirs + "_ln_bias", d));
  }

  const MarianTransformer& described_;
  const MarianFile& file_;
  WeightImport<T, MarianFile> import_;
  MarianNames names_;
};

/// The int8 matrices of a Marian file as ours: their bytes and scales are kept, and inputs are quantised as
/// the file says. A matrix that is float32 in the file is quantised here.
class MarianInt8 {
 public:
  MarianInt8(const MarianTransformer& described, const MarianNames& names, const ImportOptions& options)
      : described_(described), file_(described.file()), names_(names), options_(options) {}

  std::shared_ptr<const kernels::PackedWeights> pack(const Seq2SeqTransformer<float>& model) const {
    auto packed = std::make_shared<kernels::PackedWeights>();
    std::map<std::string, const Parameter<float>*> parameters;
    for_each_parameter(
        model, [&](const std::string& name, const Parameter<float>& p) { parameters.emplace(name, &p); });
    for (const auto& [ours, products] : int8_products(model)) {
      const Parameter<float>& weight = *parameters.at(ours);
      const index_t in = weight.shape()[1];
      const std::optional<Rows> rows = read(names_.at(ours), weight.shape());
      for (const Int8Rows& product : products) {
        if (!rows) {
          packed->add(weight.id(), product.first,
                      kernels::PackedMatrix::pack(weight.value().data() + product.first * in, product.count,
                                                  in, false, WeightFormat::int8));
          continue;
        }
        kernels::PackedMatrix matrix = kernels::PackedMatrix::pack_int8(
            rows->values.data() + product.first * in, rows->scale.data() + product.first, product.count, in);
        const float multiplier = input_multiplier(ours, *rows, product);
        if (multiplier > 0) matrix = matrix.with_input_step(1.0f / multiplier);
        packed->add(weight.id(), product.first, std::move(matrix));
      }
    }
    return packed;
  }

 private:
  // What a file says of a matrix of ours, row by row.
  struct Rows {
    std::vector<std::int8_t> values;
    std::vector<float> scale;
    std::vector<float> multiplier;  // of the inputs; 0: none
  };

  std::optional<Rows> read(const std::vector<std::string>& theirs, const Shape& shape) const {
    Rows rows;
    for (const std::string& name : theirs) {
      if (!file_.is_int8(name)) return std::nullopt;
      float scale = 0;
      const std::int8_t* values = file_.int8_values(name, &scale);
      const Shape& part = file_.shape(name);
      rows.values.insert(rows.values.end(), values, values + part.numel());
      const auto count = static_cast<std::size_t>(part[0]);
      rows.scale.insert(rows.scale.end(), count, scale);
      std::optional<float> multiplier = file_.input_multiplier(name);
      // Where the name of the embedding was lost, the output layer's number is under "none".
      if (!multiplier && name == described_.target_embedding()) multiplier = file_.input_multiplier("none");
      rows.multiplier.insert(rows.multiplier.end(), count, multiplier.value_or(0.0f));
    }
    // The begin symbol's row.
    rows.values.resize(static_cast<std::size_t>(shape.numel()));
    rows.scale.resize(static_cast<std::size_t>(shape[0]), rows.scale.back());
    rows.multiplier.resize(static_cast<std::size_t>(shape[0]), rows.multiplier.back());
    return rows;
  }

  // One number for all rows of a product: the least, which cuts nothing off.
  float input_multiplier(const std::string& ours, const Rows& rows, const Int8Rows& product) const {
    const auto begin = rows.multiplier.begin() + product.first;
    const auto [least, greatest] = std::minmax_element(begin, begin + product.count);
    if (*least != *greatest && options_.warn) {
      options_.warn("'" + file_.path().string() + "' quantises the inputs of '" + ours +
                    "' with multipliers from " + std::to_string(*least) + " to " + std::to_string(*greatest) +
                    "; the smallest is used for all");
    }
    return *least;
  }

  const MarianTransformer& described_;
  const MarianFile& file_;
  const MarianNames& names_;
  const ImportOptions& options_;
};

}  // namespace detail

/// Whether a Marian model, or that of a folder, has int8 weights. Throws as import_marian does for a file
/// that is missing or damaged.
inline bool is_marian_int8(const std::filesystem::path& from) {
  return MarianFile::open(detail::find_marian_files(from).model).has_int8();
}

/// Reads a Marian model as browsers ship them: a .bin file (float32 or intgemm8; intgemm8 weights as the real
/// numbers that they stand for), with its SentencePiece vocabularies and, where there is one, its decoder.yml
/// or config.yml beside it. `from` is the file, or a folder that holds one. Models are post-norm Transformers
/// with an SSRU in the decoder and tied embeddings. The vocabulary gets one id more, the begin symbol, whose
/// embedding is zero.
///
///     auto model = ef::import_marian("en-de");
///     ef::save_model_folder("en-de-model", model);
///
/// Throws IoError that names the file, the item and what is wrong: missing, truncated, of another
/// architecture, a vocabulary that does not fit the weights.
template <class T = float>
TranslationModel<T> import_marian(const std::filesystem::path& from, const ImportOptions& options = {}) {
  const detail::MarianFiles files = detail::find_marian_files(from);
  const MarianFile file = MarianFile::open(files.model);
  const detail::MarianTransformer transformer(file);
  ModelDescription description;
  description.model = transformer.options();
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  Seq2SeqTransformer<T> model = detail::MarianImport<T>(transformer).model();
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

/// The same for inference in int8: the bytes and scales of an intgemm8 file are kept, and where it says how
/// inputs are quantised ("alphas"), they are quantised so. Matrices of a float32 file are quantised as
/// pack_weights() does.
///
///     ef::save_packed_folder("en-de-model", ef::import_marian_int8("en-de"));
inline PackedModel<Seq2SeqTransformer<float>> import_marian_int8(const std::filesystem::path& from,
                                                                 const ImportOptions& options = {}) {
  const detail::MarianFiles files = detail::find_marian_files(from);
  const MarianFile file = MarianFile::open(files.model);
  const detail::MarianTransformer transformer(file);
  ModelDescription description;
  description.model = transformer.options();
  description.weights = WeightFormat::int8;
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  const detail::MarianImport<float> import(transformer);
  Seq2SeqTransformer<float> model = import.model();
  auto packed = detail::MarianInt8(transformer, import.names(), options).pack(model);
  release_packed_weights(model, *packed);
  return {{std::move(description), std::move(tokenizers), std::move(model)}, std::move(packed)};
}

}  // namespace eigenformer
