#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/translate.hpp"

namespace translator {

namespace ef = eigenformer;

/// How sentences are translated.
struct DecodingOptions {
  std::optional<ef::index_t> beam{};  ///< this and what follows: else the model's
  std::optional<ef::index_t> max_length{};
  std::optional<ef::index_t> no_repeat_ngram{};
  std::optional<double> length_penalty{};
  ef::index_t batch_size = 32;
};

/// Translates text with a model: tokenize, search, put together again.
class SentenceTranslator {
 public:
  SentenceTranslator(const ef::Seq2SeqTransformer<float>& model, const ef::TokenizerPair& tokenizers,
                     const ef::ModelDescription& description, const DecodingOptions& options,
                     const ef::Context<float>& ctx = ef::Context<float>::inference())
      : model_(model),
        tokenizers_(tokenizers),
        description_(description),
        ctx_(ctx),
        search_(ef::generation_options(description)) {
    search_.beam_size = options.beam.value_or(search_.beam_size);
    search_.max_length = ef::max_target_tokens(description, options.max_length.value_or(search_.max_length));
    search_.no_repeat_ngram_size = options.no_repeat_ngram.value_or(search_.no_repeat_ngram_size);
    if (options.length_penalty) search_.length_penalty = *options.length_penalty;
    search_.validate();
    if (options.batch_size < 1) {
      throw ef::ValueError("generation", "batch_size is " + std::to_string(options.batch_size) + ", must be at least 1");
    }
    batching_.batch_size = options.batch_size;
  }

  /// One translation for each line, empty for a line without a word. The numbers of lines that were cut because they have
  /// too many tokens are added to `cut`, if given; `attention` receives the attention weights of each line, nullptr for an
  /// empty one.
  std::vector<std::string> operator()(
      std::span<const std::string> lines, std::vector<std::size_t>* cut = nullptr,
      std::vector<std::shared_ptr<const ef::AttentionMaps>>* attention = nullptr) const {
    std::vector<std::vector<std::int32_t>> sources;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      bool was_cut = false;
      std::vector<std::int32_t> ids =
          ef::source_ids(description_, *tokenizers_.source, lines[i], ef::max_source_tokens(description_), &was_cut);
      if (ids.empty()) continue;
      if (was_cut && cut != nullptr) cut->push_back(i);
      sources.push_back(std::move(ids));
      places.push_back(i);
    }
    ef::GenerationOptions search = search_;
    search.attention = attention != nullptr;
    const auto found =
        ef::generate(model_, ctx_, std::span<const std::vector<std::int32_t>>(sources), search, batching_);
    std::vector<std::string> translations(lines.size());
    if (attention != nullptr) attention->assign(lines.size(), nullptr);
    for (std::size_t k = 0; k < found.size(); ++k) {
      translations[places[k]] = tokenizers_.target->decode(found[k].front().ids);
      if (attention != nullptr) (*attention)[places[k]] = found[k].front().attention;
    }
    return translations;
  }

  /// How it searches.
  const ef::GenerationOptions& search() const noexcept { return search_; }

 private:
  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::ModelDescription& description_;
  ef::Context<float> ctx_;
  ef::GenerationOptions search_;
  ef::BatchGenerationOptions batching_;
};

}  // namespace translator
