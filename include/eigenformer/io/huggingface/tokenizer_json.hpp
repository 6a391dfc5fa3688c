#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/data/text/base64.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/io/ctranslate2/import_tools.hpp"

namespace eigenformer::detail {

/// A tokenizer.json, as Hugging Face's tokenizers package writes it, of the families that are read:
/// byte-level BPE (BART), WordPiece (BERT), unigram models and BPE over U+2581 (T5, mBART, NLLB, and what
/// others make of SentencePiece models). What it holds beyond that is refused by name.
class TokenizerJson {
 public:
  /// What stands around a text: ids before it and behind it.
  struct Template {
    std::vector<std::int32_t> before{}, after{};
  };

  /// Throws IoError for a file that is missing or holds no tokenizer.
  static TokenizerJson open(const std::filesystem::path& path) {
    TokenizerJson json{JsonFile::open(path)};
    const nlohmann::json& model = json.section("model");
    json.type_ = json.text(model, "type", json.guessed_type(model));
    if (json.type_ != "BPE" && json.type_ != "WordPiece" && json.type_ != "Unigram") {
      throw json.file_.refuse("has a model of type '" + json.type_ + "', expected BPE, WordPiece or Unigram");
    }
    json.read_vocabulary(model);
    return json;
  }
  /// Whether a folder has a tokenizer.json with a model in it, and not just added tokens.
  static bool is_in(const std::filesystem::path& folder) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / "tokenizer.json", ignored)) return false;
    return JsonFile::open(folder / "tokenizer.json").has("model");
  }

  const std::string& type() const noexcept { return type_; }

  /// The model's own tokens and their ids; those that were added are not among them.
  const std::vector<std::pair<std::string, std::int64_t>>& vocabulary() const noexcept { return vocabulary_; }

  /// The text of unknown pieces; "" where there is none.
  const std::string& unknown() const noexcept { return unknown_; }

  /// What is put around a text, where the file says so. Throws IoError.
  std::optional<Template> text_template() const {
    if (!file_.has("post_processor")) return std::nullopt;
    const nlohmann::json& post = section("post_processor");
    const std::string type = text(post, "type", "");
    Template found;
    if (type == "ByteLevel") return std::nullopt;  // moves offsets alone
    if (type == "RobertaProcessing" || type == "BertProcessing") {
      found.before = {pair_id(post, "cls")};
      found.after = {pair_id(post, "sep")};
      return found;
    }
    if (type != "TemplateProcessing")
      refuse("post_processor", type, "TemplateProcessing, RobertaProcessing or null");
    bool behind = false;
    if (!post.contains("single") || !post.at("single").is_array())
      throw file_.refuse("has a template without 'single'");
    for (const nlohmann::json& item : post.at("single")) {
      if (item.is_object() && item.contains("Sequence")) {
        if (behind) throw file_.refuse("has a template with the text twice");
        behind = true;
        continue;
      }
      const std::vector<std::int32_t> ids = special_ids(post, item);
      std::vector<std::int32_t>& side = behind ? found.after : found.before;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    if (!behind) throw file_.refuse("has a template without the text");
    return found;
  }

  /// The tokenizer, whose vocabulary is vocabulary() and what was added. Throws IoError, ValueError in a
  /// program without ICU.
  std::shared_ptr<const Tokenizer> tokenizer(ForeignVocabulary v) const {
    for (const char* field : {"truncation", "padding"}) {
      if (file_.has(field))
        throw file_.refuse("has a '" + std::string(field) + "', which is not supported; expected null");
    }
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
    try {
      const std::string pre = file_.has("pre_tokenizer") ? text(section("pre_tokenizer"), "type", "") : "";
      if (type_ == "WordPiece") return wordpiece(std::move(v));
      if (type_ == "BPE" && pre == "ByteLevel") return byte_bpe(std::move(v));
      return metaspace(std::move(v));
    } catch (const ValueError& error) {
      throw file_.refuse(std::string("is damaged or not supported: ") + error.what());
    }
#else
    (void)v;
    throw ValueError("import",
                     "'" + file_.path().string() + "' needs ICU, which this program was built without");
#endif
  }

 private:
  explicit TokenizerJson(JsonFile file) : file_(std::move(file)) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& found,
                           const std::string& expected) const {
    throw file_.refuse("has the " + what + " '" + found + "', which is not supported; expected " + expected);
  }

  const nlohmann::json& section(const char* name) const {
    if (!file_.has(name) || !file_.json().at(name).is_object()) {
      throw file_.refuse("has no '" + std::string(name) + "', expected an object");
    }
    return file_.json().at(name);
  }
  template <class X>
  X value(const nlohmann::json& object, const char* name, X missing) const {
    if (!object.is_object() || !object.contains(name) || object.at(name).is_null()) return missing;
    try {
      option_from_json(name, object.at(name), missing);
    } catch (const ValueError& error) {
      throw file_.refuse(std::string("is damaged: ") + error.what());
    }
    return missing;
  }
  std::string text(const nlohmann::json& object, const char* name, const std::string& missing) const {
    return value<std::string>(object, name, missing);
  }
  /// Refuses an option that is not what its family has.
  template <class X>
  void require(const std::string& what, const nlohmann::json& object, const char* name, X wanted,
               X missing) const {
    const X found = value<X>(object, name, missing);
    if (found == wanted) return;
    refuse(what + "'s " + name, nlohmann::json(found).dump(), nlohmann::json(wanted).dump());
  }

  // Files of old say no type.
  static std::string guessed_type(const nlohmann::json& model) {
    if (model.contains("merges")) return "BPE";
    if (model.contains("continuing_subword_prefix")) return "WordPiece";
    return model.contains("unk_id") ? "Unigram" : "";
  }

  void read_vocabulary(const nlohmann::json& model) {
    if (!model.contains("vocab")) throw file_.refuse("has no vocabulary in its model");
    const nlohmann::json& vocab = model.at("vocab");
    std::set<std::string> seen;
    if (type_ == "Unigram") {
      if (!vocab.is_array()) throw file_.refuse("has a vocabulary that is not a list of pieces and scores");
      for (const nlohmann::json& piece : vocab) {
        if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number()) {
          throw file_.refuse("has the piece " + piece.dump() + ", expected a text and a score");
        }
        if (!seen.insert(piece[0].get<std::string>()).second)
          throw file_.refuse("has the piece " + piece.dump() + " twice");
        vocabulary_.emplace_back(piece[0].get<std::string>(), static_cast<std::int64_t>(vocabulary_.size()));
        scores_.push_back(piece[1].get<double>());
      }
      const auto unknown = value<std::int64_t>(model, "unk_id", -1);
      if (unknown < 0 || unknown >= static_cast<std::int64_t>(vocabulary_.size())) {
        throw file_.refuse("has the unk_id " + std::to_string(unknown) + ", expected one of its " +
                           std::to_string(vocabulary_.size()) + " pieces");
      }
      unknown_ = vocabulary_[static_cast<std::size_t>(unknown)].first;
      return;
    }
    if (!vocab.is_object()) throw file_.refuse("has a vocabulary that is not an object of tokens and ids");
    std::set<std::int64_t> ids;
    for (const auto& [token, id] : vocab.items()) {
      if (!id.is_number_integer())
        throw file_.refuse("has the id " + id.dump() + " for '" + token + "', expected a number");
      if (!ids.insert(id.get<std::int64_t>()).second)
        throw file_.refuse("has the id " + id.dump() + " twice");
      vocabulary_.emplace_back(token, id.get<std::int64_t>());
    }
    unknown_ = text(model, "unk_token", "");
    if (!unknown_.empty() && !vocab.contains(unknown_)) {
      throw file_.refuse("has the unk_token '" + unknown_ + "', which is not in its vocabulary");
    }
  }

  std::vector<std::string> merges(const nlohmann::json& model) const {
    std::vector<std::string> found;
    if (!model.contains("merges") || !model.at("merges").is_array())
      throw file_.refuse("has no list of merges");
    for (const nlohmann::json& merge : model.at("merges")) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        found.push_back(merge[0].get<std::string>());
        found.push_back(merge[1].get<std::string>());
        continue;
      }
      const std::string pair = merge.is_string() ? merge.get<std::string>() : "";
      const std::size_t space = pair.find(' ');
      if (space == std::string::npos || pair.find(' ', space + 1) != std::string::npos) {
        throw file_.refuse("has the merge " + merge.dump() + ", expected two tokens");
      }
      found.push_back(pair.substr(0, space));
      found.push_back(pair.substr(space + 1));
    }
    return found;
  }

  std::int32_t pair_id(const nlohmann::json& post, const char* name) const {
    if (post.contains(name) && post.at(name).is_array() && post.at(name).size() == 2 &&
        post.at(name)[1].is_number_integer()) {
      return post.at(name)[1].get<std::int32_t>();
    }
    throw file_.refuse("has a post_processor without '" + std::string(name) +
                       "', expected a token and its id");
  }
  std::vector<std::int32_t> special_ids(const nlohmann::json& post, const nlohmann::json& item) const {
    const nlohmann::json none;
    const nlohmann::json& token =
        item.is_object() && item.contains("SpecialToken") ? item.at("SpecialToken") : none;
    const std::string name = text(token, "id", "");
    std::vector<std::int32_t> found;
    if (post.contains("special_tokens") && post.at("special_tokens").is_object() &&
        post.at("special_tokens").contains(name)) {
      const nlohmann::json& special = post.at("special_tokens").at(name);
      if (special.is_object() && special.contains("ids") && special.at("ids").is_array()) {
        for (const nlohmann::json& id : special.at("ids")) {
          if (id.is_number_integer()) found.push_back(id.get<std::int32_t>());
        }
      }
    }
    if (found.empty()) throw file_.refuse("has " + item.dump() + " in its template, which has no ids");
    return found;
  }

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  AddedTokens added() const {
    std::vector<AddedToken> tokens;
    if (!file_.has("added_tokens")) return {};
    for (const nlohmann::json& token :
         file_.json().at("added_tokens")) {  // read_added() looked at ids and texts
      tokens.push_back({text(token, "content", ""), value<std::int32_t>(token, "id", -1),
                        value(token, "lstrip", false), value(token, "rstrip", false),
                        value(token, "single_word", false),
                        value(token, "normalized", !value(token, "special", false))});
    }
    return AddedTokens(std::move(tokens));
  }

  void require_plain_bpe(const nlohmann::json& model) const {
    if (model.contains("dropout") && !model.at("dropout").is_null() && model.at("dropout") != 0.0) {
      refuse("model's dropout", model.at("dropout").dump(), "null");
    }
    require<std::string>("model", model, "continuing_subword_prefix", "", "");
    require<std::string>("model", model, "end_of_word_suffix", "", "");
    require("model", model, "byte_fallback", false, false);
    require("model", model, "ignore_merges", false, false);
  }
  void require_decoder(const char* type) const {
    if (!file_.has("decoder")) return;
    const std::string found = text(section("decoder"), "type", "");
    if (found != type) refuse("decoder", found, type);
  }

  std::shared_ptr<const Tokenizer> wordpiece(ForeignVocabulary v) const {
    const nlohmann::json& model = section("model");
    require<std::string>("model", model, "continuing_subword_prefix", "##", "##");
    require<index_t>("model", model, "max_input_chars_per_word", 100, 100);
    const nlohmann::json& normalizer = section("normalizer");
    if (const auto type = text(normalizer, "type", ""); type != "BertNormalizer")
      refuse("normalizer", type, "BertNormalizer");
    require("normalizer", normalizer, "clean_text", true, true);
    require("normalizer", normalizer, "handle_chinese_chars", true, true);
    const bool lower = value(normalizer, "lowercase", true);
    require("normalizer", normalizer, "strip_accents", lower, lower);
    if (const auto type = text(section("pre_tokenizer"), "type", ""); type != "BertPreTokenizer") {
      refuse("pre_tokenizer", type, "BertPreTokenizer");
    }
    require_decoder("WordPiece");
    return std::make_shared<WordPieceTokenizer>(std::move(v), lower, added());
  }

  std::shared_ptr<const Tokenizer> byte_bpe(ForeignVocabulary v) const {
    const nlohmann::json &model = section("model"), &pre = section("pre_tokenizer");
    require_plain_bpe(model);
    if (file_.has("normalizer")) refuse("normalizer", text(section("normalizer"), "type", ""), "null");
    require("pre_tokenizer", pre, "add_prefix_space", false, true);
    require("pre_tokenizer", pre, "use_regex", true, true);
    require_decoder("ByteLevel");
    const std::vector<std::string> tokens = merges(model);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < tokens.size(); i += 2) lines.push_back(tokens[i] + ' ' + tokens[i + 1]);
    return std::make_shared<ByteBpeTokenizer>(std::move(v), std::move(lines), added());
  }

  std::shared_ptr<const Tokenizer> metaspace(ForeignVocabulary v) const {
    const nlohmann::json& model = section("model");
    MetaspaceOptions options;
    if (file_.has("normalizer")) add_steps(options, section("normalizer"));
    const nlohmann::json& pre = section("pre_tokenizer");
    if (text(pre, "type", "") == "Sequence" && pre.contains("pretokenizers") &&
        pre.at("pretokenizers").is_array() && pre.at("pretokenizers").size() == 2 &&
        text(pre.at("pretokenizers")[0], "type", "") == "WhitespaceSplit") {
      options.split_white_space = true;
      read_metaspace(options, pre.at("pretokenizers")[1]);
    } else {
      read_metaspace(options, pre);
    }
    require_decoder("Metaspace");
    if (type_ == "Unigram") {
      require("model", model, "byte_fallback", false, false);
      return std::make_shared<MetaspaceTokenizer>(std::move(v), std::move(options), scores_, added());
    }
    require_plain_bpe(model);
    if (!unknown_.empty()) require("model", model, "fuse_unk", true, false);
    return std::make_shared<MetaspaceTokenizer>(std::move(v), std::move(options), merges(model), added());
  }

  void read_metaspace(MetaspaceOptions& options, const nlohmann::json& pre) const {
    if (const auto type = text(pre, "type", ""); type != "Metaspace") {
      refuse("pre_tokenizer", type,
             "ByteLevel, BertPreTokenizer, Metaspace, or WhitespaceSplit and Metaspace");
    }
    require<std::string>("pre_tokenizer", pre, "replacement", "\xE2\x96\x81", "\xE2\x96\x81");
    options.prepend = text(pre, "prepend_scheme", "always");
    if (!value(pre, "add_prefix_space", true)) options.prepend = "never";  // of old
    options.split = value(pre, "split", true);
  }

  void add_steps(MetaspaceOptions& options, const nlohmann::json& step) const {
    const std::string type = text(step, "type", "");
    if (type == "Sequence" && step.contains("normalizers") && step.at("normalizers").is_array()) {
      for (const nlohmann::json& inner : step.at("normalizers")) {
        if (text(inner, "type", "") == "Sequence") refuse("normalizer", "Sequence in a Sequence", "one list");
        add_steps(options, inner);
      }
    } else if (type == "Precompiled") {
      const auto bytes = decode_base64(text(step, "precompiled_charsmap", ""));
      if (!bytes) throw file_.refuse("has a precompiled_charsmap that is not base64");
      options.normalizer.push_back({"charsmap", *bytes, ""});
    } else if (type == "Strip") {
      const bool left = value(step, "strip_left", true), right = value(step, "strip_right", true);
      if (left || right)
        options.normalizer.push_back({"strip", left && right ? "both" : left ? "left" : "right", ""});
    } else if (type == "Replace") {
      const nlohmann::json none;
      const nlohmann::json& pattern = step.contains("pattern") ? step.at("pattern") : none;
      const std::string content = text(step, "content", "");
      if (text(pattern, "Regex", "") == " {2,}") {
        options.normalizer.push_back({"spaces", "", content});
      } else if (!text(pattern, "String", "").empty()) {
        options.normalizer.push_back({"replace", text(pattern, "String", ""), content});
      } else {
        refuse("normalizer Replace of", pattern.dump(), "a String or the Regex \" {2,}\"");
      }
    } else {
      refuse("normalizer", type, "Precompiled, Strip, Replace, or a Sequence of these");
    }
  }
#endif

  JsonFile file_;
  std::string type_, unknown_;
  std::vector<std::pair<std::string, std::int64_t>> vocabulary_;
  std::vector<double> scores_;
};

}  // namespace eigenformer::detail
