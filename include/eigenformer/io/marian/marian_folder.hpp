#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/marian/marian_options.hpp"
#include "eigenformer/io/shared/foreign_tokenizers.hpp"

namespace eigenformer {

/// Whether a file begins as a Marian model in .bin format; CTranslate2's model.bin does not. False for a
/// missing file.
inline bool is_marian_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t head[2] = {};
  char bytes[sizeof head];
  if (!file.read(bytes, sizeof bytes)) return false;
  std::memcpy(head, bytes, sizeof head);
  return head[0] == 1 && head[1] > 0;
}

/// The paths of the Marian models (.bin) in a folder, sorted by name; none when it cannot be read.
inline std::vector<std::filesystem::path> marian_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".bin" && is_marian_file(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace detail {

/// The files of a Marian model: the model, the configuration of its decoder, and its vocabularies.
struct MarianFiles {
  std::filesystem::path model, source_vocabulary, target_vocabulary;
  MarianSettings decoder;  ///< empty when there is no decoder.yml or config.yml
};

/// Finds these files. from: the model, or a folder with one. Throws IoError that says what is missing.
inline MarianFiles find_marian_files(const std::filesystem::path& from) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  MarianFiles files;
  files.model = from;
  fs::path folder = from.parent_path().empty() ? fs::path(".") : from.parent_path();
  if (fs::is_directory(from, ignored)) {
    folder = from;
    const auto models = marian_files(from);
    if (models.empty()) throw IoError("import", "'" + from.string() + "' has no Marian model, a .bin file");
    if (models.size() > 1) {
      std::string names;
      for (const auto& path : models) names += (names.empty() ? "" : ", ") + path.filename().string();
      throw IoError("import", "'" + from.string() + "' has several Marian models: " + names +
                                  "; expected one, or the path of one of them");
    }
    files.model = models.front();
  }
  for (const char* name : {"decoder.yml", "config.yml"}) {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path, ignored) || !files.decoder.where().empty()) continue;
    files.decoder = MarianSettings(path.string(), read_text_file(path));
  }
  const std::vector<std::string> named = files.decoder.list("vocabs");
  std::vector<fs::path> vocabularies;
  for (const std::string& name : named) vocabularies.push_back(folder / name);
  if (vocabularies.empty()) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".spm") vocabularies.push_back(entry.path());
    }
    // Browsers' models with two vocabularies call them srcvocab and trgvocab, which sort in this order.
    std::sort(vocabularies.begin(), vocabularies.end());
    const auto begins = [&](std::size_t i, const char* word) {
      return vocabularies[i].filename().string().starts_with(word);
    };
    if (vocabularies.size() > 2 || (vocabularies.size() == 2 && !(begins(0, "src") && begins(1, "trg")))) {
      throw IoError("import", "'" + folder.string() + "' has " + std::to_string(vocabularies.size()) +
                                  " vocabularies (.spm), expected one, srcvocab and trgvocab, or a "
                                  "decoder.yml whose vocabs names the source's and the target's");
    }
  }
  if (vocabularies.empty() || vocabularies.size() > 2) {
    throw IoError("import",
                  "'" + folder.string() + "' has " + std::to_string(vocabularies.size()) +
                      " vocabularies beside its model, expected SentencePiece models, .spm: one for "
                      "both languages or two");
  }
  files.source_vocabulary = vocabularies.front();
  files.target_vocabulary = vocabularies.back();
  return files;
}

/// Reads the tokens of a vocabulary for an embedding of `words` rows. Throws IoError unless it is a
/// SentencePiece model with the special ids that Marian assumes.
inline std::vector<std::string> marian_vocabulary(const std::filesystem::path& path, index_t words,
                                                  const char* side) {
  std::vector<std::string> tokens = sentencepiece_pieces(path);
  if (tokens.size() < 2 || tokens[0] != "</s>" || tokens[1] != "<unk>") {
    throw IoError("import", "'" + path.string() + "' begins with '" + (tokens.empty() ? "" : tokens[0]) +
                                "' and '" + (tokens.size() < 2 ? "" : tokens[1]) +
                                "', expected </s> and <unk>, as a vocabulary of Marian has them");
  }
  fit_vocabulary(path, tokens, words, side);
  return tokens;
}

/// Makes the tokenizers, and sets the conventions and tokenizer of the description.
inline TokenizerPair marian_tokenizers(const MarianFiles& files, const MarianTransformer& model,
                                       const ImportOptions& options, ModelDescription& description) {
  const auto make = [&](const std::filesystem::path& path, index_t words, index_t ids, const char* side) {
    std::vector<std::string> tokens = marian_vocabulary(path, words, side);
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
      throw IoError("import", "'" + files.model.string() +
                                  "' has one embedding for both languages, but two "
                                  "vocabularies: '" +
                                  files.source_vocabulary.string() + "' and '" +
                                  files.target_vocabulary.string() + "'");
    }
    pair.source = pair.target = make(files.source_vocabulary, words, words + 1, "only");
  } else {
    const index_t source = model.options().source_vocab_size;
    pair.source = make(files.source_vocabulary, source, source, "source");
    pair.target = make(files.target_vocabulary, words, words + 1, "target");
  }
  TextConventions& text = description.text;
  text.source_text = options.source_text;
  text.source_suffix = {0};
  text.begin_id = static_cast<std::int32_t>(words);
  text.end_id = 0;
  text.forbidden_ids = {1, text.begin_id};
  text.search_rule = SearchRule::marian;
  text.length_penalty = files.decoder.number("normalize", 1);
  const double beam_size = files.decoder.number("beam-size", 0);
  if (!(beam_size >= 0 && beam_size <= 1000)) {
    throw files.decoder.refuse_value("beam-size", files.decoder.word("beam-size"), "1 to 1000");
  }
  text.beam_size = static_cast<index_t>(beam_size);
  text.word_penalty = files.decoder.number("word-penalty", 0);
  text.max_length_factor = files.decoder.number("max-length-factor", 3);
  if (!(text.max_length_factor > 0)) {
    throw files.decoder.refuse_value("max-length-factor", files.decoder.word("max-length-factor"),
                                     "a number above 0");
  }
  description.tokenizer = pair.source->kind();
  description.joint = pair.joint();
  return pair;
}

}  // namespace detail

}  // namespace eigenformer
