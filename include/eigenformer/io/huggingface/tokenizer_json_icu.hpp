#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/base64.hpp"
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"
#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"
#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"
#include "eigenformer/io/huggingface/tokenizer_json.hpp"

namespace eigenformer::detail {

/// Makes the tokenizer that a tokenizer.json describes; needs ICU.
class TokenizerJsonBuilder {
 public:
  explicit TokenizerJsonBuilder(const TokenizerJson& json) : json_(json), file_(json.file()) {}

  /// Throws IoError for unsupported features, ValueError for a vocabulary that does not match.
  std::shared_ptr<const Tokenizer> make(ForeignVocabulary v) const {
    const std::string pre =
        file_.has("pre_tokenizer") ? json_.text(file_.object("pre_tokenizer"), "type") : "";
    if (json_.type_ == "WordPiece") return wordpiece(std::move(v));
    if (json_.type_ == "BPE" && pre == "ByteLevel") return byte_bpe(std::move(v));
    return metaspace(std::move(v));
  }

 private:
  std::vector<AddedToken> added() const {
    std::vector<AddedToken> tokens;
    if (!file_.has("added_tokens")) return tokens;
    for (const nlohmann::json& token : file_.json().at("added_tokens"))  // read_added() has checked them
      tokens.push_back(added_token(file_, token, file_.get_of<std::int32_t>(token, "id", -1)));
    return tokens;
  }

  void require_plain_bpe(const nlohmann::json& model) const {
    if (model.contains("dropout") && !model.at("dropout").is_null() && model.at("dropout") != 0.0) {
      json_.refuse("model's dropout", model.at("dropout").dump(), "null");
    }
    json_.require<std::string>("model", model, "continuing_subword_prefix", "", "");
    json_.require<std::string>("model", model, "end_of_word_suffix", "", "");
    json_.require("model", model, "byte_fallback", false, false);
    json_.require("model", model, "ignore_merges", false, false);
  }
  void require_decoder(const char* type) const {
    if (!file_.has("decoder")) return;
    const std::string found = json_.text(file_.object("decoder"), "type");
    if (found != type) json_.refuse("decoder", found, type);
  }

  std::shared_ptr<const Tokenizer> wordpiece(ForeignVocabulary v) const {
    const nlohmann::json& model = file_.object("model");
    json_.require<std::string>("model", model, "continuing_subword_prefix", "##", "##");
    json_.require<index_t>("model", model, "max_input_chars_per_word", 100, 100);
    const nlohmann::json& normalizer = file_.object("normalizer");
    if (const auto type = json_.text(normalizer, "type"); type != "BertNormalizer")
      json_.refuse("normalizer", type, "BertNormalizer");
    json_.require("normalizer", normalizer, "clean_text", true, true);
    json_.require("normalizer", normalizer, "handle_chinese_chars", true, true);
    const bool lower = file_.get_of(normalizer, "lowercase", true);
    json_.require("normalizer", normalizer, "strip_accents", lower, lower);
    if (const auto type = json_.text(file_.object("pre_tokenizer"), "type"); type != "BertPreTokenizer") {
      json_.refuse("pre_tokenizer", type, "BertPreTokenizer");
    }
    require_decoder("WordPiece");
    return std::make_shared<WordPieceTokenizer>(std::move(v), lower, added());
  }

  std::shared_ptr<const Tokenizer> byte_bpe(ForeignVocabulary v) const {
    const nlohmann::json &model = file_.object("model"), &pre = file_.object("pre_tokenizer");
    require_plain_bpe(model);
    if (file_.has("normalizer"))
      json_.refuse("normalizer", json_.text(file_.object("normalizer"), "type"), "null");
    json_.require("pre_tokenizer", pre, "add_prefix_space", false, true);
    json_.require("pre_tokenizer", pre, "use_regex", true, true);
    require_decoder("ByteLevel");
    const std::vector<std::string> tokens = json_.merges(model);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < tokens.size(); i += 2) lines.push_back(tokens[i] + ' ' + tokens[i + 1]);
    return std::make_shared<ByteBpeTokenizer>(std::move(v), std::move(lines), added());
  }

  std::shared_ptr<const Tokenizer> metaspace(ForeignVocabulary v) const {
    const nlohmann::json& model = file_.object("model");
    MetaspaceOptions options;
    if (file_.has("normalizer")) add_steps(options, file_.object("normalizer"));
    const nlohmann::json& pre = file_.object("pre_tokenizer");
    if (json_.text(pre, "type") == "Sequence" && pre.contains("pretokenizers") &&
        pre.at("pretokenizers").is_array() && pre.at("pretokenizers").size() == 2 &&
        json_.text(pre.at("pretokenizers")[0], "type") == "WhitespaceSplit") {
      options.split_white_space = true;
      read_metaspace(options, pre.at("pretokenizers")[1]);
    } else {
      read_metaspace(options, pre);
    }
    require_decoder("Metaspace");
    if (json_.type_ == "Unigram") {
      json_.require("model", model, "byte_fallback", false, false);
      return std::make_shared<MetaspaceTokenizer>(std::move(v), std::move(options), json_.scores_, added());
    }
    require_plain_bpe(model);
    if (!json_.unknown_.empty()) json_.require("model", model, "fuse_unk", true, false);
    return std::make_shared<MetaspaceTokenizer>(std::move(v), std::move(options), json_.merges(model),
                                                added());
  }

  void read_metaspace(MetaspaceOptions& options, const nlohmann::json& pre) const {
    if (const auto type = json_.text(pre, "type"); type != "Metaspace") {
      json_.refuse("pre_tokenizer", type,
                   "ByteLevel, BertPreTokenizer, Metaspace, or WhitespaceSplit and Metaspace");
    }
    json_.require<std::string>("pre_tokenizer", pre, "replacement", "\xE2\x96\x81", "\xE2\x96\x81");
    options.prepend = json_.text(pre, "prepend_scheme", "always");
    if (!file_.get_of(pre, "add_prefix_space", true)) options.prepend = "never";  // older files
    options.split = file_.get_of(pre, "split", true);
  }

  void add_steps(MetaspaceOptions& options, const nlohmann::json& step) const {
    const std::string type = json_.text(step, "type");
    if (type == "Sequence" && step.contains("normalizers") && step.at("normalizers").is_array()) {
      for (const nlohmann::json& inner : step.at("normalizers")) {
        if (json_.text(inner, "type") == "Sequence")
          json_.refuse("normalizer", "Sequence in a Sequence", "one list");
        add_steps(options, inner);
      }
    } else if (type == "Precompiled") {
      const auto bytes = decode_base64(json_.text(step, "precompiled_charsmap"));
      if (!bytes) throw file_.refuse({"has a precompiled_charsmap that is not base64"});
      options.normalizer.push_back({"charsmap", *bytes, ""});
    } else if (type == "Strip") {
      const bool left = file_.get_of(step, "strip_left", true),
                 right = file_.get_of(step, "strip_right", true);
      if (left || right)
        options.normalizer.push_back({"strip", left && right ? "both" : left ? "left" : "right", ""});
    } else if (type == "Replace") {
      const nlohmann::json none;
      const nlohmann::json& pattern = step.contains("pattern") ? step.at("pattern") : none;
      const std::string content = json_.text(step, "content");
      if (json_.text(pattern, "Regex") == " {2,}") {
        options.normalizer.push_back({"spaces", "", content});
      } else if (!json_.text(pattern, "String").empty()) {
        options.normalizer.push_back({"replace", json_.text(pattern, "String"), content});
      } else {
        json_.refuse("normalizer Replace of", pattern.dump(), "a String or the Regex \" {2,}\"");
      }
    } else {
      json_.refuse("normalizer", type, "Precompiled, Strip, Replace, or a Sequence of these");
    }
  }

  const TokenizerJson& json_;
  const JsonFile& file_;
};

inline std::shared_ptr<const Tokenizer> make_tokenizer_of_json(const TokenizerJson& json,
                                                               ForeignVocabulary vocabulary) {
  return TokenizerJsonBuilder(json).make(std::move(vocabulary));
}
inline constexpr TokenizerJsonFunctions tokenizer_json_functions{&make_tokenizer_of_json};
inline const bool tokenizer_json_is_linked = link(tokenizer_json_functions);

}  // namespace eigenformer::detail
