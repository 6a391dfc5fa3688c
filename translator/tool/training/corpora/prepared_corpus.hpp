#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "eigenformer/io/models/translation_model.hpp"
#include "terminal/output_checks.hpp"
#include "terminal/terminal_progress.hpp"
#include "translator/preparing/prepared_corpus.hpp"

namespace translator {

namespace ef = eigenformer;

/// Loads a prepared corpus. Throws ValueError if its tokenizers differ from those of the model that training
/// starts from, or if it is in the model's own folder.
inline ef::PreparedCorpus open_prepared(const std::string& data,
                                        const std::optional<ef::TranslationModel<float>>& start,
                                        const std::filesystem::path& folder, TerminalProgress& progress) {
  if (is_same_path(data, folder)) {
    throw ef::ValueError(
        "train",
        {"'", data, "' is both the model folder and the prepared corpus; give another folder as --model"});
  }
  ef::PreparedCorpus prepared = ef::load_prepared_corpus(data);
  const std::string source_text = start ? start->description.text.source_text : "";
  if (start && ef::detail::tokenizer_fingerprint(start->tokenizers) != prepared.pairs->tokenizers()) {
    throw ef::ValueError("train", {"the corpus in '", data,
                                   "' was prepared with other tokenizers than the model's; prepare it "
                                   "again with --init-from and that model"});
  }
  if (source_text != prepared.description.source_text) {
    throw ef::ValueError("train",
                         {"the corpus in '", data, "' was prepared with '", prepared.description.source_text,
                          "' before each source sentence, but the model has '", source_text, "'"});
  }
  progress.say(format("training on: %s, %lld source and %lld target tokens, as prepared in '%s'",
                      counted(prepared.pairs->size(), "pair").c_str(),
                      static_cast<long long>(prepared.pairs->source_tokens()),
                      static_cast<long long>(prepared.pairs->target_tokens()), data.c_str()));
  return prepared;
}

/// Throws ValueError if a model has too few positions for a prepared corpus.
inline void require_room_for(const ef::PreparedCorpus& prepared, const std::string& data, ef::index_t most) {
  if (prepared.description.max_length <= most) return;
  throw ef::ValueError("train", {"the corpus in '", data, "' was prepared with sentences of up to ",
                                 prepared.description.max_length, " tokens, but the model has room for ",
                                 most, "; prepare it again with --max-length ", most});
}

}  // namespace translator
