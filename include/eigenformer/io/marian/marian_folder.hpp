#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/marian/marian_file.hpp"
#include "eigenformer/io/shared/foreign_tokenizers.hpp"
#include "eigenformer/io/shared/import_tools.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer::detail {

/// Settings in the subset of YAML that Marian writes: keys with a word, a number, or a list of these. Nested
/// keys are skipped.
class MarianSettings {
 public:
  MarianSettings() = default;
  /// where: the name of the text in messages. Throws IoError for a line that is not a setting.
  MarianSettings(std::string where, std::string_view text);

  const std::string& where() const noexcept { return where_; }
  bool has(const std::string& key) const { return values_.count(key) > 0; }

  /// The values of a key: none, one, or those of a list.
  std::vector<std::string> list(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::vector<std::string>() : found->second;
  }
  /// The single value of a key, or `missing`. Throws IoError for a list of several.
  std::string word(const std::string& key, const std::string& missing = {}) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.empty()) return missing;
    if (found->second.size() > 1) throw refuse_value(key, "a list", "one value");
    return found->second[0];
  }
  /// The value of a key as a number, or `missing`. Throws IoError for another value.
  double number(const std::string& key, double missing) const {
    const std::string text = word(key);
    return text.empty() ? missing : parse(key, text);
  }
  /// The i-th value of a key as a whole number. Throws IoError when there is none or it is not one.
  long whole(const std::string& key, std::size_t i = 0) const;
  bool flag(const std::string& key) const {
    const std::string text = word(key, "false");
    if (text != "true" && text != "false") throw refuse_value(key, text, "true or false");
    return text == "true";
  }

  IoError refuse_value(const std::string& key, const std::string& value, const std::string& expected) const {
    return IoError("marian", "'" + where_ + "' has " + key + " " + (value.empty() ? "\"\"" : value) +
                                 ", expected " + expected);
  }

 private:
  static std::string_view strip(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const std::size_t first = text.find_first_not_of(blank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blank) - first + 1);
  }
  static std::string unquoted(std::string_view text) {
    text = strip(text);
    if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  }
  double parse(const std::string& key, const std::string& text) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      throw refuse_value(key, text, "a number");
    return value;
  }
  IoError refuse(int line, std::string_view text) const {
    return IoError("marian", "'" + where_ + "', line " + std::to_string(line) +
                                 ": expected 'key: value', got '" + std::string(text.substr(0, 60)) + "'");
  }

  std::string where_;
  std::map<std::string, std::vector<std::string>> values_;
};

/// The names and options of a Marian Transformer.
struct MarianTransformer {
  Seq2SeqOptions options;
  std::string source_embedding, target_embedding;

  /// Size of the target vocabulary in the file; ours has one more id, the begin symbol.
  index_t target_words() const noexcept { return options.target_vocab_size - 1; }
  /// Whether one matrix is the embedding of both languages.
  bool joint() const noexcept { return options.tying == Tying::all; }
};

/// Throws IoError for a file whose settings describe a model that is not supported.
EIGENFORMER_IO_FUNCTION MarianTransformer describe_marian(const MarianFile& file);

/// Whether a file begins as a Marian model in .bin format; CTranslate2's model.bin does not. False for a
/// missing file.
EIGENFORMER_IO_FUNCTION bool is_marian_file(const std::filesystem::path& path);

/// The paths of the Marian models (.bin) in a folder, sorted by name; none when it cannot be read.
EIGENFORMER_IO_FUNCTION std::vector<std::filesystem::path> marian_files(const std::filesystem::path& folder);

/// The files of a Marian model: the model, the configuration of its decoder, and its vocabularies.
struct MarianFiles {
  std::filesystem::path model, source_vocabulary, target_vocabulary;
  MarianSettings decoder;  ///< empty when there is no decoder.yml or config.yml
};

/// Finds these files. from: the model, or a folder with one. Throws IoError that says what is missing.
EIGENFORMER_IO_FUNCTION MarianFiles find_marian_files(const std::filesystem::path& from);

/// Makes the tokenizers, and sets the conventions and tokenizer of the description. Throws IoError unless the
/// vocabularies are SentencePiece models with the special ids that Marian assumes.
EIGENFORMER_IO_FUNCTION TokenizerPair marian_tokenizers(const MarianFiles& files,
                                                        const MarianTransformer& model,
                                                        const ImportOptions& options,
                                                        ModelDescription& description);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION MarianSettings::MarianSettings(std::string where, std::string_view text)
    : where_(std::move(where)) {
  std::string key;
  int number = 0;
  for (const std::string_view line : parts_between(text, "\n")) {
    ++number;
    const std::string_view stripped = strip(line);
    if (stripped.empty() || stripped[0] == '#' || stripped == "---" || stripped == "...") continue;
    if (stripped[0] == '-' && (stripped.size() == 1 || stripped[1] == ' ')) {
      if (key.empty()) throw refuse(number, line);
      values_[key].push_back(unquoted(stripped.substr(1)));
      continue;
    }
    if (line[0] == ' ' || line[0] == '\t') continue;  // nested deeper
    const std::size_t colon = stripped.find(':');
    if (colon == std::string_view::npos || colon == 0) throw refuse(number, line);
    key = std::string(stripped.substr(0, colon));
    std::string_view value = strip(stripped.substr(colon + 1));
    std::vector<std::string>& list = values_[key];
    list.clear();
    if (value.size() >= 2 && value.front() == '[' && value.back() == ']') {
      value = strip(value.substr(1, value.size() - 2));
      for (const std::string_view item : parts_between(value, ",")) list.push_back(unquoted(item));
    } else if (!value.empty()) {
      list.push_back(unquoted(value));
    }
  }
}

EIGENFORMER_IO_FUNCTION long MarianSettings::whole(const std::string& key, std::size_t i) const {
  const auto values = list(key);
  if (i >= values.size()) throw IoError("marian", {"'", where_, "' has no '", key, "', expected a number"});
  const double value = parse(key, values[i]);
  if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int>::max())
    throw refuse_value(key, values[i], "a whole number");
  return static_cast<long>(value);
}

// Requires the values that are supported of settings that change the model.
EIGENFORMER_IO_FUNCTION void expect_supported(const MarianSettings& settings) {
  static constexpr struct {
    const char* key;
    const char* value;
    bool required = false;
  } supported[] = {
      {"type", "transformer", true},
      {"transformer-decoder-autoreg", "rnn", true},
      {"dec-cell", "ssru", true},
      {"transformer-preprocess", "", true},
      {"transformer-postprocess", "dan", true},
      {"transformer-ffn-depth", "2", true},
      {"dec-cell-base-depth", "2"},
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
      {"ulr", "false"},
  };
  for (const auto& [key, value, required] : supported) {
    if (!required && !settings.has(key)) continue;
    const std::string found = settings.word(key), expected = value;
    if (found == expected) continue;
    throw settings.refuse_value(key, found,
                                (expected.empty() ? "\"\"" : expected) +
                                    ": the import is for post-norm Transformers with an SSRU in the decoder, "
                                    "as browsers have them");
  }
  for (const char* key : {"transformer-tied-layers", "input-types"}) {
    const auto list = settings.list(key);
    if (!list.empty() && !(list.size() == 1 && list[0].empty()))
      throw settings.refuse_value(key, "'" + list[0] + "' ...", "none, as in browser models");
  }
}

EIGENFORMER_IO_FUNCTION MarianTransformer describe_marian(const MarianFile& file) {
  const char* const yaml = "special:model.yml";
  if (!file.contains(yaml))
    throw file.refuse({"has no item '", yaml, "', expected the settings of a Marian model"});
  const MarianSettings settings(file.path().string() + ", " + yaml, file.text(yaml));
  expect_supported(settings);
  MarianTransformer described;
  Seq2SeqOptions& o = described.options;
  const bool all = settings.flag("tied-embeddings-all");
  const bool target = settings.flag("tied-embeddings");
  const bool one_table = all || settings.flag("tied-embeddings-src");
  described.source_embedding = one_table ? "Wemb" : "encoder_Wemb";
  described.target_embedding = one_table ? "Wemb" : "decoder_Wemb";
  const Shape source = require_matrix(file, described.source_embedding),
              decoder = require_matrix(file, described.target_embedding);
  const auto expect_size = [&](const char* key, std::size_t i, index_t found) {
    if (const long said = settings.whole(key, i); found != said)
      throw file.refuse({"has embeddings of ", found, ", but its ", key, " says ", said});
  };
  expect_size("dim-vocabs", 0, source[0]);
  expect_size("dim-vocabs", 1, decoder[0]);
  expect_size("dim-emb", 0, source[1]);
  // Tying: which embeddings share their matrix with the projection.
  if (!all && !target) {
    throw settings.refuse_value("tied-embeddings", "false",
                                "true, or tied-embeddings-all: models whose output has a matrix of its own "
                                "are not supported");
  }
  if (!all && one_table) {
    throw settings.refuse_value("tied-embeddings-src", "true",
                                "false or tied-embeddings-all, as models in use have it");
  }
  o.tying = all ? Tying::all : Tying::target;
  // The last row is for the begin symbol, which Marian does not have: its embedding is zero.
  o.source_vocab_size = source[0] + (all ? 1 : 0);
  o.target_vocab_size = decoder[0] + 1;
  o.padding_index = all ? source[0] : -1;
  o.projection_bias = true;
  o.scale_embedding = true;
  o.positions = SinusoidalPositions{
      .order = SinusoidOrder::concatenated, .exponent = SinusoidExponent::tensor2tensor, .first_position = 0};
  const auto layers = [&](const char* key) {
    const long n = settings.whole(key);
    // A layer has more than ten items.
    if (n >= 1 && n <= static_cast<long>(file.names().size())) return n;
    throw settings.refuse_value(key, std::to_string(n), "the number of layers in the file");
  };
  o.encoder.num_layers = layers("enc-depth");
  o.decoder.num_layers = layers("dec-depth");
  LayerOptions& layer = o.layer;
  layer.d_model = source[1];
  layer.num_heads = settings.whole("transformer-heads");
  layer.dim_feedforward = settings.whole("transformer-dim-ffn");
  layer.dropout = {0};
  const std::string activation = settings.word("transformer-ffn-activation", "swish");
  if (activation != "relu" && activation != "swish" && activation != "gelu")
    throw settings.refuse_value("transformer-ffn-activation", activation, "relu, swish or gelu");
  layer.activation = activation == "relu"    ? Activation::relu
                     : activation == "swish" ? Activation::silu
                                             : Activation::gelu;
  layer.norm.eps = 1e-6;
  layer.norm_first = false;
  o.final_norm = false;
  o.decoder.layer = layer;
  o.decoder.layer->self_mixing = SelfMixing::ssru;
  o.embedding_dropout = 0;
  require_valid(file, o);
  return described;
}

EIGENFORMER_IO_FUNCTION bool is_marian_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t head[2] = {};  // version, number of items
  file.read(reinterpret_cast<char*>(head), sizeof head);
  return file && head[0] == 1 && head[1] > 0;
}

// The files of a folder with this extension, sorted by name; none when it cannot be read.
EIGENFORMER_IO_FUNCTION std::vector<std::filesystem::path> files_with(const std::filesystem::path& folder,
                                                                      const char* extension) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

EIGENFORMER_IO_FUNCTION std::vector<std::filesystem::path> marian_files(const std::filesystem::path& folder) {
  auto found = files_with(folder, ".bin");
  std::erase_if(found, [](const std::filesystem::path& path) { return !is_marian_file(path); });
  return found;
}

EIGENFORMER_IO_FUNCTION MarianFiles find_marian_files(const std::filesystem::path& from) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  MarianFiles files;
  files.model = from;
  fs::path folder = from.parent_path().empty() ? fs::path(".") : from.parent_path();
  if (fs::is_directory(from, ignored)) {
    folder = from;
    const auto models = marian_files(from);
    if (models.empty()) throw IoError("import", {"'", from.string(), "' has no Marian model, a .bin file"});
    if (models.size() > 1) {
      std::string names;
      for (const auto& path : models) names += (names.empty() ? "" : ", ") + path.filename().string();
      throw IoError("import", {"'", from.string(), "' has several Marian models: ", names,
                               "; expected one, or the path of one of them"});
    }
    files.model = models.front();
  }
  for (const char* name : {"decoder.yml", "config.yml"}) {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path, ignored) || !files.decoder.where().empty()) continue;
    files.decoder = MarianSettings(path.string(), read_text_file(path));
  }
  std::vector<fs::path> vocabularies;
  for (const std::string& name : files.decoder.list("vocabs")) vocabularies.push_back(folder / name);
  if (vocabularies.empty()) {
    // Browsers' models with two vocabularies call them srcvocab and trgvocab, which sort in this order.
    vocabularies = files_with(folder, ".spm");
    const std::size_t count = vocabularies.size();
    const auto begins = [&](std::size_t i, const char* word) {
      return vocabularies[i].filename().string().starts_with(word);
    };
    if (count > 2 || (count == 2 && !(begins(0, "src") && begins(1, "trg")))) {
      throw IoError("import", {"'", folder.string(), "' has ", count,
                               " vocabularies (.spm), expected one, srcvocab and trgvocab, or a "
                               "decoder.yml whose vocabs names the source's and the target's"});
    }
    if (count == 1 && (begins(0, "srcvocab") || begins(0, "trgvocab"))) {
      throw IoError("import",
                    {"'", folder.string(), "' has '", vocabularies[0].filename().string(),
                     "' and not the vocabulary of the other language, expected srcvocab and trgvocab"});
    }
  }
  if (vocabularies.empty() || vocabularies.size() > 2) {
    throw IoError("import", {"'", folder.string(), "' has ", vocabularies.size(),
                             " vocabularies beside its model, expected SentencePiece models, .spm: one for "
                             "both languages or two"});
  }
  files.source_vocabulary = vocabularies.front();
  files.target_vocabulary = vocabularies.back();
  return files;
}

EIGENFORMER_IO_FUNCTION TokenizerPair marian_tokenizers(const MarianFiles& files,
                                                        const MarianTransformer& model,
                                                        const ImportOptions& options,
                                                        ModelDescription& description) {
  const auto make = [&](const std::filesystem::path& path, index_t words, index_t ids, const char* side) {
    std::vector<std::string> tokens = sentencepiece_pieces(path);
    if (tokens.size() < 2 || tokens[0] != "</s>" || tokens[1] != "<unk>") {
      throw IoError("import", {"'", path.string(), "' begins with '", (tokens.empty() ? "" : tokens[0]),
                               "' and '", (tokens.size() < 2 ? "" : tokens[1]),
                               "', expected </s> and <unk>, as a vocabulary of Marian has them"});
    }
    fit_vocabulary(path, tokens, words, side);
    tokens.resize(static_cast<std::size_t>(ids));
    ForeignVocabulary vocabulary{std::move(tokens), 1, {0}};
    if (ids > words) vocabulary.special_ids.push_back(static_cast<std::int32_t>(words));
    return sentencepiece_tokenizer(path, std::move(vocabulary), false);
  };
  const index_t words = model.target_words();
  TokenizerPair pair;
  if (model.joint()) {
    std::error_code ignored;
    if (files.source_vocabulary != files.target_vocabulary &&
        !std::filesystem::equivalent(files.source_vocabulary, files.target_vocabulary, ignored)) {
      throw IoError("import",
                    {"'", files.model.string(),
                     "' has one embedding for both languages, but two "
                     "vocabularies: '",
                     files.source_vocabulary.string(), "' and '", files.target_vocabulary.string(), "'"});
    }
    pair.source = pair.target = make(files.source_vocabulary, words, words + 1, "only");
  } else {
    const index_t source = model.options.source_vocab_size;
    pair.source = make(files.source_vocabulary, source, source, "source");
    pair.target = make(files.target_vocabulary, words, words + 1, "target");
  }
  ModelConventions& text = description.text;
  text.source_text = options.source_text;
  text.source_suffix = {0};
  text.begin_id = static_cast<std::int32_t>(words);
  text.end_id = 0;
  text.forbidden_ids = {1, text.begin_id};
  const double factor = files.decoder.number("max-length-factor", 3);
  text.search = {{"rule", "marian"},
                 {"length_penalty", files.decoder.number("normalize", 1)},
                 {"word_penalty", files.decoder.number("word-penalty", 0)},
                 {"max_length_factor", factor}};
  const double beam_size = files.decoder.number("beam-size", 0);
  if (!(beam_size >= 0 && beam_size <= 1000)) {
    throw files.decoder.refuse_value("beam-size", files.decoder.word("beam-size"), "1 to 1000");
  }
  if (beam_size >= 1) text.search["beam_size"] = static_cast<index_t>(beam_size);
  if (!(factor > 0)) {
    throw files.decoder.refuse_value("max-length-factor", files.decoder.word("max-length-factor"),
                                     "a number above 0");
  }
  description.tokenizer = pair.source->kind();
  description.joint = pair.joint();
  return pair;
}

}  // namespace eigenformer::detail

#endif
