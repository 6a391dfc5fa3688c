#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "eigenformer/search/text/document_parts.hpp"
#include "translator/server/models/backend.hpp"
#include "translator/serving/translator.hpp"

namespace eigenformer {

/// A model served by a Translator: texts are split into paragraphs and sentences, and sentences of all
/// clients are translated in common batches.
class TranslatorBackend final : public TranslationBackend {
 public:
  /// owner: keeps the model alive. documents: how texts are split into sentences; without a splitter, as the
  /// translator splits its lines. adapters: by name, the translators for tasks that name one of them, such as
  /// TextTranslator::with_adapters(). Alignments follow the options of the translator, and are only computed
  /// for tasks that need them. Throws as Translator does.
  template <class M>
  TranslatorBackend(TextTranslator<M> translator, std::shared_ptr<const void> owner,
                    DocumentOptions documents = {}, const TranslatorOptions& options = {},
                    const std::map<std::string, TextTranslator<M>>& adapters = {})
      : TranslatorBackend(line_translator(translator, owner), detail::HasCrossAttention<M>,
                          std::move(documents), options, line_translators(adapters, owner)) {}
  /// lines: translates lines; a sentence whose PreparedLine is cut is split into parts. aligns: whether it
  /// can compute alignments. adapters: by name, what translates the lines of tasks that name one of them.
  /// Throws as Translator does.
  TranslatorBackend(std::shared_ptr<const LineTranslator> lines, bool aligns, DocumentOptions documents = {},
                    const TranslatorOptions& options = {},
                    std::map<std::string, std::shared_ptr<const LineTranslator>> adapters = {});

  std::function<void()> start(TranslationTask task, TaskEvents events) override;

 private:
  template <class M>
  static std::map<std::string, std::shared_ptr<const LineTranslator>> line_translators(
      const std::map<std::string, TextTranslator<M>>& translators, const std::shared_ptr<const void>& owner) {
    std::map<std::string, std::shared_ptr<const LineTranslator>> lines;
    for (const auto& [name, translator] : translators) lines[name] = line_translator(translator, owner);
    return lines;
  }

  const DocumentOptions documents_;
  const bool aligns_;
  Translator translator_;  // last: its threads end first
};

}  // namespace eigenformer
