#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/io/huggingface/tokenizer_json.hpp"
#include "eigenformer/io/shared/foreign_tokenizers.hpp"

namespace eigenformer::detail {

/// Assembles the vocabulary of a Hugging Face folder from its files: tokens by id, at most as many as the
/// embedding has rows.
class HuggingFaceVocabulary {
 public:
  HuggingFaceVocabulary(std::filesystem::path folder, index_t rows)
      : folder_(std::move(folder)), tokens_(static_cast<std::size_t>(rows)) {}

  /// Reads {"token": id, ...}.
  void read_map(const std::string& name);

  /// Adds the tokens of a tokenizer.json's model.
  void read(const TokenizerJson& json);

  /// Reads a file with one token per line, by id.
  void read_lines_of(const std::string& name) {
    put(folder_ / name, read_lines(folder_ / name, most_vocabulary_bytes));
  }

  /// Adds tokens, whose ids count from 0, that were read from a file.
  void put(const std::filesystem::path& path, const std::vector<std::string>& tokens);

  /// Reads the tokens added to the vocabulary (languages, sentinels, masks) from all files that may list
  /// them, first those with ids; the last one has only an order.
  void read_added();

  /// Adds tokens that a tokenizer's class in transformers has without listing them, as special tokens after
  /// the ids in use, unless the embedding has no room for them or the vocabulary has the first one already.
  void imply(const std::vector<std::string>& tokens);
  /// Adds T5's <extra_id_0> and so on, `count` of them in falling order after the ids in use, as far as the
  /// embedding has room.
  void imply_sentinels(index_t count);

  /// The text of a special token that the folder's files name by its role, such as unk_token.
  std::string role(const char* field, const char* usual) const;

  /// A special token of a tokenizer's class in transformers.
  struct ClassToken {
    const char *field, *text;  ///< the field that may name another one, and its usual text
    bool strip_left = false;   ///< whether a match includes the white space before it
  };
  /// Adds the special tokens of a class to those of read_added(), which have priority. Names that the
  /// vocabulary does not have are left out.
  void read_class_tokens(std::initializer_list<ClassToken> tokens);
  /// The tokens to match in a text: those of read_added() and read_class_tokens(), and T5's.
  std::vector<AddedToken> matched() const;

  /// The tokens that can be languages: added and special ones, except those with another role, such as <pad>.
  std::vector<TargetLanguage> languages() const;

  const std::filesystem::path& folder() const noexcept { return folder_; }

  /// The id of a token. Throws IoError when the vocabulary does not have it.
  std::int32_t require(const std::string& token) const {
    if (const auto id = find_token(tokens_, token)) return *id;
    throw IoError("import", {"the vocabulary of '", folder_.string(), "' has no token '", token, "'"});
  }

  /// Returns the vocabulary, with `ids` as further special ids. Throws IoError for one without a token, which
  /// means that the vocabulary belongs to another model.
  ForeignVocabulary finish(const std::string& unknown, const std::vector<std::int32_t>& ids) const;

 private:
  void add(const JsonFile& file, const nlohmann::json& token, std::int64_t id) {
    place(file, token_text(file, token), id);
    const auto number = static_cast<std::int32_t>(id);
    if (!token.is_object() || token_flag(file, token, "special", true)) special_.push_back(number);
    match(file, token, number);
  }
  void match(const JsonFile& file, const nlohmann::json& token, std::int32_t id) {
    matched_.emplace(token_text(file, token), added_token(file, token, id));
  }
  void place(const JsonFile& file, const std::string& token, std::int64_t id);

  std::filesystem::path folder_;
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> special_;
  std::map<std::string, AddedToken> matched_;
  std::vector<AddedToken> sentinels_;  // implied ones; those of a file have priority
  index_t end_ = 0;                    // of the ids in use
};

/// The pieces of a SentencePiece file in the order of fairseq's ids: `<s>`, `<pad>`, `</s>`, `<unk>`, then
/// the model's own without its first three (XLM-R, mBART, NLLB).
inline std::vector<std::string> fairseq_pieces(const std::filesystem::path& path) {
  std::vector<std::string> pieces = {"<s>", "<pad>", "</s>", "<unk>"};
  const std::vector<std::string> own = sentencepiece_pieces(path);
  if (own.size() > 3) pieces.insert(pieces.end(), own.begin() + 3, own.end());
  return pieces;
}

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::read_map(const std::string& name) {
  const JsonFile file = JsonFile::open(folder_ / name);
  for (const auto& [token, id] : file.json().items()) {
    if (!id.is_number_integer())
      throw file.refuse({"has the id ", id.dump(), " for '", token, "', expected a number"});
    place(file, token, id.get<std::int64_t>());
  }
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::read(const TokenizerJson& json) {
  for (const auto& [token, id] : json.vocabulary()) place(json.file(), token, id);
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::put(const std::filesystem::path& path,
                                                        const std::vector<std::string>& tokens) {
  if (tokens.size() > tokens_.size()) {
    throw IoError("import", {"'", path.string(), "' does not fit the weights: it gives ids up to ",
                             tokens.size() - 1, ", the embedding has ", tokens_.size(), " rows"});
  }
  std::copy(tokens.begin(), tokens.end(), tokens_.begin());
  end_ = std::max(end_, static_cast<index_t>(tokens.size()));
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::read_added() {
  const JsonFile config = JsonFile::open_if_exists(folder_ / "tokenizer_config.json");
  if (config.has("added_tokens_decoder")) {
    if (!config.json().at("added_tokens_decoder").is_object())
      throw config.refuse({"has an added_tokens_decoder that is not an object of ids and tokens"});
    for (const auto& [id, token] : config.json().at("added_tokens_decoder").items()) {
      if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos)
        throw config.refuse({"has the id '", id, "' in added_tokens_decoder, expected a number"});
      add(config, token, std::stoll(id));
    }
  }
  const JsonFile tokenizer = JsonFile::open_if_exists(folder_ / "tokenizer.json");
  if (tokenizer.has("added_tokens")) {
    if (!tokenizer.json().at("added_tokens").is_array())
      throw tokenizer.refuse({"has added_tokens that are not a list"});
    for (const nlohmann::json& token : tokenizer.json().at("added_tokens")) {
      if (!token.is_object() || !token.contains("id") || !token.at("id").is_number_integer())
        throw tokenizer.refuse({"has the added token ", token.dump(), ", expected id and content"});
      add(tokenizer, token, token.at("id").get<std::int64_t>());
    }
  }
  if (file_exists(folder_ / "added_tokens.json")) {
    const JsonFile added = JsonFile::open(folder_ / "added_tokens.json");
    for (const auto& [token, id] : added.json().items()) {
      if (!id.is_number_integer()) throw added.refuse({"has the id ", id.dump(), " for '", token, "'"});
      add(added, {{"content", token}}, id.get<std::int64_t>());
    }
  }
  const JsonFile map = JsonFile::open_if_exists(folder_ / "special_tokens_map.json");
  for (const char* field : {"additional_special_tokens", "extra_special_tokens"}) {
    if (!map.has(field) || !map.json().at(field).is_array()) continue;
    std::unordered_map<std::string, std::int32_t> known;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!tokens_[i].empty()) known.emplace(tokens_[i], static_cast<std::int32_t>(i));
    }
    for (const nlohmann::json& token : map.json().at(field)) {
      const auto [at, is_new] = known.emplace(token_text(map, token), static_cast<std::int32_t>(end_));
      if (is_new) {
        add(map, token, end_);
      } else {
        special_.push_back(at->second);
        match(map, token, at->second);
      }
    }
  }
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::imply(const std::vector<std::string>& tokens) {
  if (tokens.empty() || find_token(tokens_, tokens.front()) ||
      end_ + static_cast<index_t>(tokens.size()) > static_cast<index_t>(tokens_.size()))
    return;
  for (const std::string& token : tokens) {
    special_.push_back(static_cast<std::int32_t>(end_));
    tokens_[static_cast<std::size_t>(end_++)] = token;
  }
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::imply_sentinels(index_t count) {
  const auto room = static_cast<index_t>(tokens_.size()) - end_;
  for (index_t i = 0; i < std::min(count, room); ++i) {
    const auto id = static_cast<std::int32_t>(end_ + i);
    std::string text = "<extra_id_" + std::to_string(count - 1 - i) + ">";
    special_.push_back(id);
    sentinels_.push_back({.text = text, .id = id, .strip_left = true, .strip_right = true});
    tokens_[static_cast<std::size_t>(id)] = std::move(text);
  }
  end_ += std::max<index_t>(0, std::min(count, room));
}

EIGENFORMER_IO_FUNCTION std::string HuggingFaceVocabulary::role(const char* field, const char* usual) const {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const JsonFile file = JsonFile::open_if_exists(folder_ / name);
    if (file.has(field)) return token_text(file, file.json().at(field));
  }
  return usual;
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::read_class_tokens(
    std::initializer_list<ClassToken> tokens) {
  const JsonFile map = JsonFile::open_if_exists(folder_ / "special_tokens_map.json"),
                 config = JsonFile::open_if_exists(folder_ / "tokenizer_config.json");
  for (const auto& [field, usual, strip_left] : tokens) {
    const JsonFile& file = config.has(field) ? config : map;
    const nlohmann::json token = file.has(field) ? file.json().at(field) : nlohmann::json(usual);
    const std::string text = token_text(file, token);
    const auto id = find_token(tokens_, text);
    if (!id) continue;
    AddedToken added =
        token.is_object() ? added_token(file, token, *id) : AddedToken{.text = text, .id = *id};
    if (!token.is_object()) added.strip_left = strip_left;
    matched_.emplace(text, std::move(added));
  }
}

EIGENFORMER_IO_FUNCTION std::vector<AddedToken> HuggingFaceVocabulary::matched() const {
  std::vector<AddedToken> found;
  for (const auto& entry : matched_) found.push_back(entry.second);
  for (const AddedToken& token : sentinels_) {
    if (matched_.count(token.text) == 0) found.push_back(token);
  }
  return found;
}

EIGENFORMER_IO_FUNCTION std::vector<TargetLanguage> HuggingFaceVocabulary::languages() const {
  std::set<std::string> others;
  for (const auto& [field, usual] :
       {std::pair{"bos_token", "<s>"}, std::pair{"eos_token", "</s>"}, std::pair{"unk_token", "<unk>"},
        std::pair{"sep_token", "</s>"}, std::pair{"pad_token", "<pad>"}, std::pair{"cls_token", "<s>"},
        std::pair{"mask_token", "<mask>"}}) {
    others.insert({usual, role(field, usual)});
  }
  std::set<std::int32_t> ids(special_.begin(), special_.end());
  for (const auto& entry : matched_) ids.insert(entry.second.id);
  std::vector<TargetLanguage> found;
  for (const std::int32_t id : ids) {
    const std::string& token = tokens_[static_cast<std::size_t>(id)];
    if (!token.empty() && others.count(token) == 0) found.push_back({token, id});
  }
  return found;
}

EIGENFORMER_IO_FUNCTION ForeignVocabulary
HuggingFaceVocabulary::finish(const std::string& unknown, const std::vector<std::int32_t>& ids) const {
  ForeignVocabulary v{tokens_, find_token(tokens_, unknown).value_or(-1), special_};
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size() ||
        tokens_[static_cast<std::size_t>(id)].empty()) {
      throw IoError("import", {"the vocabulary of '", folder_.string(), "' has no token with id ", id,
                               ", which config.json uses as a special token: they do not fit together"});
    }
    v.special_ids.push_back(id);
  }
  for (const char* name : {"<s>", "</s>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[MASK]"}) {
    if (const auto id = find_token(tokens_, name)) v.special_ids.push_back(*id);
  }
  if (v.unknown_id >= 0) std::erase(v.special_ids, v.unknown_id);
  return v;
}

EIGENFORMER_IO_FUNCTION void HuggingFaceVocabulary::place(const JsonFile& file, const std::string& token,
                                                          std::int64_t id) {
  if (id < 0 || id >= static_cast<std::int64_t>(tokens_.size())) {
    throw file.refuse({"does not fit the weights: it gives '", token, "' the id ", id, ", the embedding has ",
                       tokens_.size(), " rows"});
  }
  tokens_[static_cast<std::size_t>(id)] = token;
  end_ = std::max<index_t>(end_, id + 1);
}

// Makes a byte-level BPE tokenizer with the merges of merges.txt. added: tokens to match in a text. Throws
// IoError, ValueError in a program built without ICU.
EIGENFORMER_IO_FUNCTION std::shared_ptr<const Tokenizer> byte_bpe_tokenizer(
    const std::filesystem::path& folder, ForeignVocabulary v, std::vector<AddedToken> added) {
  const IcuFunctions& icu = require_icu("import", "'" + (folder / "merges.txt").string() + "'");
  std::vector<std::string> merges = read_lines(folder / "merges.txt", most_vocabulary_bytes);
  if (!merges.empty() && merges.front().starts_with("#version")) merges.erase(merges.begin());
  std::erase(merges, "");
  return made_of_file(folder / "merges.txt",
                      [&] { return icu.make_byte_bpe(std::move(v), std::move(merges), std::move(added)); });
}

}  // namespace eigenformer::detail

#endif
