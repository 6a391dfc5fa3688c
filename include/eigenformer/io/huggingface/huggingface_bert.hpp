#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/huggingface/huggingface_tokenizers.hpp"
#include "eigenformer/io/huggingface/huggingface_weights.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"

namespace eigenformer {

/// A text encoder with its tokenizer, which computes vectors of texts.
template <class T = float>
struct TextEncoderModel {
  TextEncoder<T> model;                        ///< the encoder with its weights
  std::shared_ptr<const Tokenizer> tokenizer;  ///< never null after import_bert()
  std::int32_t begin_id = 0;                   ///< put before each text: [CLS]
  std::int32_t end_id = 0;                     ///< put after each text: [SEP]

  /// Encodes a UTF-8 text, with begin_id and end_id; longer texts are truncated to the encoder's max_length.
  std::vector<std::int32_t> ids(const std::string& text) const {
    std::vector<std::int32_t> found = tokenizer->encode(text);
    const auto most = static_cast<std::size_t>(std::max<index_t>(2, model.options.max_length)) - 2;
    if (found.size() > most) found.resize(most);
    found.insert(found.begin(), begin_id);
    found.push_back(end_id);
    return found;
  }

  /// Computes a vector of D = d_model numbers for each of N UTF-8 texts: (N, D). It is the mean of the
  /// vectors of a text's tokens unless the model's options select another pooling.
  Tensor<T> vectors(const std::vector<std::string>& texts,
                    const Context<T>& ctx = Context<T>::inference()) const {
    std::vector<std::int32_t> all;
    std::vector<index_t> lengths;
    for (const std::string& text : texts) {
      const std::vector<std::int32_t> one = ids(text);
      all.insert(all.end(), one.begin(), one.end());
      lengths.push_back(static_cast<index_t>(one.size()));
    }
    if (texts.empty()) return Tensor<T>(Shape{0, model.options.layer.d_model});
    return model
        .vectors(ctx, Tensor<std::int32_t>::from(Shape{static_cast<index_t>(all.size())}, all),
                 SequenceLayout::packed(lengths))
        .value();
  }
};

namespace detail {

EIGENFORMER_IO_FUNCTION TextEncoderOptions bert_options(const JsonFile& config,
                                                        const HuggingFaceWeights& weights);

template <class T>
TextEncoder<T> bert_model(const TextEncoderOptions& o, const HuggingFaceWeights& weights) {
  const index_t d = o.layer.d_model, ff = o.layer.dim_feedforward;
  WeightImport<T, HuggingFaceWeights> import(weights);
  // In a model with a head for some task, names of the encoder have a prefix.
  const std::string root = weights.contains("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  const std::string embeddings = root + "embeddings.";
  import.take("embedding.weight", {embeddings + "word_embeddings.weight"}, {o.vocab_size, d});
  import.take("positions.weight", {embeddings + "position_embeddings.weight"}, {o.max_length, d});
  import.take("token_types.weight", {embeddings + "token_type_embeddings.weight"}, {o.num_token_types, d});
  import.take_with_bias("embedding_norm.", {embeddings + "LayerNorm"}, {d});
  for (index_t i = 0; i < o.num_layers; ++i) {
    const std::string to = "encoder.layers." + std::to_string(i) + ".";
    const std::string from = root + "encoder.layer." + std::to_string(i) + ".";
    const std::string self = from + "attention.self.";
    import.take_with_bias(to + "self_attn.in_proj_", {self + "query", self + "key", self + "value"},
                          {3 * d, d});
    import.take_with_bias(to + "self_attn.out_proj.", {from + "attention.output.dense"}, {d, d});
    import.take_with_bias(to + "norm1.", {from + "attention.output.LayerNorm"}, {d});
    import.take_with_bias(to + "linear1.", {from + "intermediate.dense"}, {ff, d});
    import.take_with_bias(to + "linear2.", {from + "output.dense"}, {d, ff});
    import.take_with_bias(to + "norm2.", {from + "output.LayerNorm"}, {d});
  }
  for (const std::string& name : weights.names()) {
    const bool head = name.starts_with(root + "pooler.") || name.starts_with("cls.") ||
                      name.starts_with("classifier.") || name.ends_with("embeddings.position_ids");
    if (head) import.used(name);
  }
  return import.template model<TextEncoder<T>>(o);
}

/// The tokenizer of a folder for an embedding of `rows` tokens; stores the ids of [CLS] and [SEP].
EIGENFORMER_IO_FUNCTION std::shared_ptr<const Tokenizer> bert_tokenizer(const std::filesystem::path& folder,
                                                                        index_t rows, std::int32_t& begin,
                                                                        std::int32_t& end);

}  // namespace detail

/// Imports a BERT model (Devlin et al. 2019) saved by Hugging Face's transformers: config.json,
/// model.safetensors, and vocab.txt or tokenizer.json. The head for a task is left out.
///
///     auto bert = ef::import_bert("all-MiniLM-L6-v2");
///     auto vectors = bert.vectors({"A small dog.", "A little dog."});  // (2, D)
///
/// Throws IoError that names the file and what is wrong, ValueError in a program built without ICU.
template <class T = float>
TextEncoderModel<T> import_bert(const std::filesystem::path& folder) {
  const detail::JsonFile config = detail::JsonFile::open(folder / "config.json");
  if (const auto type = config.require<std::string>("model_type"); type != "bert")
    throw config.refuse({"holds a model of type '", type, "', expected bert"});
  const auto weights = detail::HuggingFaceWeights::open(folder, "AutoModel");
  try {
    const TextEncoderOptions options = detail::bert_options(config, weights);
    TextEncoderModel<T> bert{detail::bert_model<T>(options, weights), nullptr};
    bert.tokenizer = detail::bert_tokenizer(folder, options.vocab_size, bert.begin_id, bert.end_id);
    return bert;
  } catch (const ShapeError& error) {
    throw config.refuse({"describes a model that is too large for memory: ", error.what()});
  }
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION TextEncoderOptions bert_options(const JsonFile& config,
                                                        const HuggingFaceWeights& weights) {
  TextEncoderOptions o;
  o.vocab_size = require_size(config, "vocab_size");
  o.layer.d_model = require_size(config, "hidden_size");
  o.num_layers = config.require<index_t>("num_hidden_layers");
  o.layer.num_heads = config.require<index_t>("num_attention_heads");
  o.layer.dim_feedforward = require_size(config, "intermediate_size");
  o.max_length = require_size(config, "max_position_embeddings");
  o.num_token_types = require_size(config, "type_vocab_size", config.get<index_t>("type_vocab_size", 2));
  if (o.max_length < 2)  // for [CLS] and [SEP]
    throw config.refuse({"has max_position_embeddings ", o.max_length, ", expected at least 2"});
  if (const auto kind = config.get<std::string>("position_embedding_type", "absolute"); kind != "absolute")
    throw config.refuse({"has the position_embedding_type '", kind, "', expected absolute"});
  o.layer.dropout = {0};
  o.layer.activation = huggingface_activation(config, "hidden_act", "gelu");
  o.layer.norm.eps = config.get("layer_norm_eps", 1e-12);
  o.positions = LearnedPositions{};
  o.final_norm = false;
  o.embedding_norm = true;
  o.scale_embedding = false;
  o.padding_index = config.get<index_t>("pad_token_id", 0);
  require_valid(config, o);
  require_layers(config, weights, {o.num_layers});
  return o;
}

EIGENFORMER_IO_FUNCTION std::shared_ptr<const Tokenizer> bert_tokenizer(const std::filesystem::path& folder,
                                                                        index_t rows, std::int32_t& begin,
                                                                        std::int32_t& end) {
  HuggingFaceVocabulary vocabulary(folder, rows);
  std::optional<TokenizerJson> json;  // only when there is no vocab.txt
  const std::filesystem::path path = folder / "vocab.txt";
  if (!file_exists(path) && file_exists(folder / "tokenizer.json")) {
    json = TokenizerJson::open(folder / "tokenizer.json");
    vocabulary.read(*json);
  } else {
    vocabulary.read_lines_of("vocab.txt");
  }
  vocabulary.read_added();
  vocabulary.read_class_tokens({{"unk_token", "[UNK]"},
                                {"sep_token", "[SEP]"},
                                {"pad_token", "[PAD]"},
                                {"cls_token", "[CLS]"},
                                {"mask_token", "[MASK]"}});
  begin = vocabulary.require("[CLS]");
  end = vocabulary.require("[SEP]");
  ForeignVocabulary v = vocabulary.finish("[UNK]", {begin, end});
  if (json) return json->tokenizer(std::move(v));
  const JsonFile config = JsonFile::open_if_exists(folder / "tokenizer_config.json");
  const bool lower = config.get("do_lower_case", true);
  for (const auto& [name, supported] : std::initializer_list<std::pair<const char*, bool>>{
           {"strip_accents", lower}, {"tokenize_chinese_chars", true}, {"do_basic_tokenize", true}}) {
    if (config.get(name, supported) == supported) continue;
    throw config.refuse({"sets ", name, " to ", config.json().at(name).dump(),
                         ", which is not supported; expected ", (supported ? "true" : "false")});
  }
  const IcuFunctions& icu = require_icu("import", "'" + path.string() + "'");
  return made_of_file(path, [&] { return icu.make_wordpiece(std::move(v), lower, vocabulary.matched()); });
}

}  // namespace eigenformer::detail

#endif
