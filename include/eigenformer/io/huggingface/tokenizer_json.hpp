#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/io/shared/import_tools.hpp"

namespace eigenformer::detail {

/// The text of a token that a file of a tokenizer names: a text, or an object with its content. Throws
/// IoError.
EIGENFORMER_IO_FUNCTION std::string token_text(const JsonFile& file, const nlohmann::json& token);
/// A true or false of such a token; `missing` when it is a text or says nothing. Throws IoError.
EIGENFORMER_IO_FUNCTION bool token_flag(const JsonFile& file, const nlohmann::json& token, const char* name,
                                        bool missing);
/// How such a token is matched in a text.
EIGENFORMER_IO_FUNCTION AddedToken added_token(const JsonFile& file, const nlohmann::json& token,
                                               std::int32_t id);

class TokenizerJson;

/// The functions that need ICU.
struct TokenizerJsonFunctions {
  std::shared_ptr<const Tokenizer> (*make)(const TokenizerJson& json, ForeignVocabulary vocabulary);
};

/// A tokenizer.json of Hugging Face's tokenizers package, of the supported kinds: byte-level BPE (BART),
/// WordPiece (BERT), unigram models and BPE with U+2581 for spaces (T5, mBART, NLLB, and conversions of
/// SentencePiece models). Other features are errors that name them.
class TokenizerJson {
 public:
  /// The ids that are put before and after a text.
  struct Template {
    std::vector<std::int32_t> before{}, after{};
  };

  /// Throws IoError for a file that is missing or does not hold a supported tokenizer.
  static TokenizerJson open(const std::filesystem::path& path) { return TokenizerJson(JsonFile::open(path)); }
  /// Throws IoError for a file that does not hold a supported tokenizer.
  explicit TokenizerJson(JsonFile file);

  const JsonFile& file() const noexcept { return file_; }

  /// The model's own tokens and their ids, without added tokens.
  const std::vector<std::pair<std::string, std::int64_t>>& vocabulary() const noexcept { return vocabulary_; }

  /// The token for unknown pieces; empty when there is none.
  const std::string& unknown() const noexcept { return unknown_; }

  /// The ids put around a text, if the file defines them. Throws IoError for an unsupported post-processor.
  std::optional<Template> text_template() const;

  /// Makes the tokenizer. v: vocabulary() with added tokens. Throws IoError for unsupported features,
  /// ValueError in a program built without ICU.
  std::shared_ptr<const Tokenizer> tokenizer(ForeignVocabulary v) const;

 private:
  friend class TokenizerJsonBuilder;

  [[noreturn]] void refuse(const std::string& what, const std::string& found,
                           const std::string& expected) const {
    throw file_.refuse({"has the ", what, " '", found, "', which is not supported; expected ", expected});
  }

  std::string text(const nlohmann::json& object, const char* name, const std::string& missing = {}) const {
    return file_.get_of(object, name, missing);
  }
  /// Throws IoError unless an option has the supported value.
  template <class X>
  void require(const std::string& what, const nlohmann::json& object, const char* name, X wanted,
               X missing) const {
    const X found = file_.get_of(object, name, missing);
    if (found == wanted) return;
    refuse(what + "'s " + name, nlohmann::json(found).dump(), nlohmann::json(wanted).dump());
  }

  // Older files do not have the type.
  static std::string guessed_type(const nlohmann::json& model) {
    if (model.contains("merges")) return "BPE";
    if (model.contains("continuing_subword_prefix")) return "WordPiece";
    return model.contains("unk_id") ? "Unigram" : "";
  }

  void read_vocabulary(const nlohmann::json& model);

  std::vector<std::string> merges(const nlohmann::json& model) const;

  std::int32_t pair_id(const nlohmann::json& post, const char* name) const;
  std::vector<std::int32_t> special_ids(const nlohmann::json& post, const nlohmann::json& item) const;

  JsonFile file_;
  std::string type_, unknown_;
  std::vector<std::pair<std::string, std::int64_t>> vocabulary_;
  std::vector<double> scores_;
};

}  // namespace eigenformer::detail

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/io/huggingface/tokenizer_json_icu.hpp"
#endif

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::string token_text(const JsonFile& file, const nlohmann::json& token) {
  const nlohmann::json& text = token.is_object() && token.contains("content") ? token.at("content") : token;
  if (text.is_string()) return text.get<std::string>();
  throw file.refuse({"has the added token ", token.dump(), ", expected its content"});
}

EIGENFORMER_IO_FUNCTION bool token_flag(const JsonFile& file, const nlohmann::json& token, const char* name,
                                        bool missing) {
  if (!token.is_object() || !token.contains(name) || token.at(name).is_null()) return missing;
  if (token.at(name).is_boolean()) return token.at(name).get<bool>();
  throw file.refuse(
      {"has the added token ", token.dump(), ", expected its '", name, "' to be true or false"});
}

EIGENFORMER_IO_FUNCTION AddedToken added_token(const JsonFile& file, const nlohmann::json& token,
                                               std::int32_t id) {
  return {token_text(file, token),
          id,
          token_flag(file, token, "lstrip", false),
          token_flag(file, token, "rstrip", false),
          token_flag(file, token, "single_word", false),
          token_flag(file, token, "normalized", !token_flag(file, token, "special", true))};
}

EIGENFORMER_IO_FUNCTION TokenizerJson::TokenizerJson(JsonFile file) : file_(std::move(file)) {
  const nlohmann::json& model = file_.object("model");
  type_ = text(model, "type", guessed_type(model));
  if (type_ != "BPE" && type_ != "WordPiece" && type_ != "Unigram")
    throw file_.refuse({"has a model of type '", type_, "', expected BPE, WordPiece or Unigram"});
  read_vocabulary(model);
}

EIGENFORMER_IO_FUNCTION std::optional<TokenizerJson::Template> TokenizerJson::text_template() const {
  if (!file_.has("post_processor")) return std::nullopt;
  const nlohmann::json& post = file_.object("post_processor");
  const std::string type = text(post, "type");
  Template found;
  if (type == "ByteLevel") return std::nullopt;  // changes only offsets
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    found.before = {pair_id(post, "cls")};
    found.after = {pair_id(post, "sep")};
    return found;
  }
  if (type != "TemplateProcessing")
    refuse("post_processor", type, "TemplateProcessing, RobertaProcessing or null");
  bool behind = false;
  if (!post.contains("single") || !post.at("single").is_array())
    throw file_.refuse({"has a template without 'single'"});
  for (const nlohmann::json& item : post.at("single")) {
    if (item.is_object() && item.contains("Sequence")) {
      if (behind) throw file_.refuse({"has a template with the text twice"});
      behind = true;
      continue;
    }
    const std::vector<std::int32_t> ids = special_ids(post, item);
    std::vector<std::int32_t>& side = behind ? found.after : found.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!behind) throw file_.refuse({"has a template without the text"});
  return found;
}

EIGENFORMER_IO_FUNCTION std::shared_ptr<const Tokenizer> TokenizerJson::tokenizer(ForeignVocabulary v) const {
  for (const char* field : {"truncation", "padding"}) {
    if (file_.has(field)) throw file_.refuse({"has a '", field, "', which is not supported; expected null"});
  }
  const auto* icu = find_linked<TokenizerJsonFunctions>();
  if (icu == nullptr) {
    throw ValueError("import",
                     {"'", file_.path().string(), "' needs ICU, which this program was built without"});
  }
  try {
    return icu->make(*this, std::move(v));
  } catch (const ValueError& error) {
    throw file_.refuse({"is damaged or not supported: ", error.what()});
  }
}

EIGENFORMER_IO_FUNCTION void TokenizerJson::read_vocabulary(const nlohmann::json& model) {
  if (!model.contains("vocab")) throw file_.refuse({"has no vocabulary in its model"});
  const nlohmann::json& vocab = model.at("vocab");
  std::set<std::string> seen;
  if (type_ == "Unigram") {
    if (!vocab.is_array()) throw file_.refuse({"has a vocabulary that is not a list of pieces and scores"});
    for (const nlohmann::json& piece : vocab) {
      if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number())
        throw file_.refuse({"has the piece ", piece.dump(), ", expected a text and a score"});
      if (!seen.insert(piece[0].get<std::string>()).second)
        throw file_.refuse({"has the piece ", piece.dump(), " twice"});
      vocabulary_.emplace_back(piece[0].get<std::string>(), static_cast<std::int64_t>(vocabulary_.size()));
      scores_.push_back(piece[1].get<double>());
    }
    const auto unknown = file_.get_of<std::int64_t>(model, "unk_id", -1);
    if (unknown < 0 || unknown >= static_cast<std::int64_t>(vocabulary_.size())) {
      throw file_.refuse(
          {"has the unk_id ", unknown, ", expected one of its ", vocabulary_.size(), " pieces"});
    }
    unknown_ = vocabulary_[static_cast<std::size_t>(unknown)].first;
    return;
  }
  if (!vocab.is_object()) throw file_.refuse({"has a vocabulary that is not an object of tokens and ids"});
  std::set<std::int64_t> ids;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer())
      throw file_.refuse({"has the id ", id.dump(), " for '", token, "', expected a number"});
    if (!ids.insert(id.get<std::int64_t>()).second) throw file_.refuse({"has the id ", id.dump(), " twice"});
    vocabulary_.emplace_back(token, id.get<std::int64_t>());
  }
  unknown_ = text(model, "unk_token");
  if (!unknown_.empty() && !vocab.contains(unknown_))
    throw file_.refuse({"has the unk_token '", unknown_, "', which is not in its vocabulary"});
}

EIGENFORMER_IO_FUNCTION std::vector<std::string> TokenizerJson::merges(const nlohmann::json& model) const {
  std::vector<std::string> found;
  if (!model.contains("merges") || !model.at("merges").is_array())
    throw file_.refuse({"has no list of merges"});
  for (const nlohmann::json& merge : model.at("merges")) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      found.push_back(merge[0].get<std::string>());
      found.push_back(merge[1].get<std::string>());
      continue;
    }
    const std::string pair = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = pair.find(' ');
    if (space == std::string::npos || pair.find(' ', space + 1) != std::string::npos)
      throw file_.refuse({"has the merge ", merge.dump(), ", expected two tokens"});
    found.push_back(pair.substr(0, space));
    found.push_back(pair.substr(space + 1));
  }
  return found;
}

EIGENFORMER_IO_FUNCTION std::int32_t TokenizerJson::pair_id(const nlohmann::json& post,
                                                            const char* name) const {
  if (post.contains(name) && post.at(name).is_array() && post.at(name).size() == 2 &&
      is_id(post.at(name)[1])) {
    return post.at(name)[1].get<std::int32_t>();
  }
  throw file_.refuse({"has a post_processor without '", name, "', expected a token and its id"});
}

EIGENFORMER_IO_FUNCTION std::vector<std::int32_t> TokenizerJson::special_ids(
    const nlohmann::json& post, const nlohmann::json& item) const {
  const nlohmann::json none;
  const nlohmann::json& token =
      item.is_object() && item.contains("SpecialToken") ? item.at("SpecialToken") : none;
  const std::string name = text(token, "id");
  std::vector<std::int32_t> found;
  if (post.contains("special_tokens") && post.at("special_tokens").is_object() &&
      post.at("special_tokens").contains(name)) {
    const nlohmann::json& special = post.at("special_tokens").at(name);
    if (special.is_object() && special.contains("ids") && special.at("ids").is_array()) {
      for (const nlohmann::json& id : special.at("ids")) {
        if (!is_id(id)) throw file_.refuse({"has the id ", id.dump(), " in its template, expected a number"});
        found.push_back(id.get<std::int32_t>());
      }
    }
  }
  if (found.empty()) throw file_.refuse({"has ", item.dump(), " in its template, which has no ids"});
  return found;
}

}  // namespace eigenformer::detail

#endif
