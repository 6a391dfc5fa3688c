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
  bool sample = false;  ///< draw translations in place of searching for the best; the four below say how
  double temperature = 1;
  ef::index_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
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
        search_(ef::generation_options(description)),
        sampling_(ef::sampling_options(description)) {
    search_.beam_size = options.beam.value_or(search_.beam_size);
    search_.max_length = ef::max_target_tokens(description, options.max_length.value_or(search_.max_length));
    search_.no_repeat_ngram_size = options.no_repeat_ngram.value_or(search_.no_repeat_ngram_size);
    if (options.length_penalty) search_.length_penalty = *options.length_penalty;
    search_.validate();
    // A beam takes memory for each of its hypotheses, and there are no more tokens than this to begin with.
    const ef::index_t most = std::min<ef::index_t>(4096, tokenizers.target->vocabulary_size());
    if (options.beam && *options.beam > most) {
      throw ef::ValueError("generation", "beam_size is " + std::to_string(*options.beam) +
                                             ", must be at most " + std::to_string(most) +
                                             (most < 4096 ? ", the size of the vocabulary" : ""));
    }
    sampling_.temperature = options.temperature;
    sampling_.top_k = options.top_k;
    sampling_.top_p = options.top_p;
    sampling_.seed = options.seed;
    sampling_.max_length = search_.max_length;
    sampling_.validate();
    sample_ = options.sample;
    if (options.batch_size < 1) {
      throw ef::ValueError("generation",
                           "batch_size is " + std::to_string(options.batch_size) + ", must be at least 1");
    }
    batching_.batch_size = options.batch_size;
  }

  /// One translation for each line, empty for a line without a word. The numbers of lines that were cut
  /// because they have too many tokens are added to `cut`, if given; `attention` receives the attention
  /// weights of each line, nullptr for an empty one or where translations are drawn. first: the number of the
  /// first line, for drawing.
  std::vector<std::string> operator()(
      std::span<const std::string> lines, std::vector<std::size_t>* cut = nullptr,
      std::vector<std::shared_ptr<const ef::AttentionMaps>>* attention = nullptr,
      std::size_t first = 0) const {
    std::vector<std::vector<std::int32_t>> sources;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      bool was_cut = false;
      std::vector<std::int32_t> ids = ef::source_ids(description_, *tokenizers_.source, lines[i],
                                                     ef::max_source_tokens(description_), &was_cut);
      if (ids.empty()) continue;
      if (was_cut && cut != nullptr) cut->push_back(i);
      sources.push_back(std::move(ids));
      places.push_back(i);
    }
    std::vector<std::string> translations(lines.size());
    if (attention != nullptr) attention->assign(lines.size(), nullptr);
    if (sample_) {
      draw(sources, places, first, translations);
      return translations;
    }
    ef::GenerationOptions search = search_;
    search.attention = attention != nullptr;
    const auto found =
        ef::generate(model_, ctx_, std::span<const std::vector<std::int32_t>>(sources), search, batching_);
    for (std::size_t k = 0; k < found.size(); ++k) {
      translations[places[k]] = tokenizers_.target->decode(found[k].front().ids);
      if (attention != nullptr) (*attention)[places[k]] = found[k].front().attention;
    }
    return translations;
  }

  /// How it searches.
  const ef::GenerationOptions& search() const noexcept { return search_; }

 private:
  // What is drawn for a line depends on its number, and not on the lines beside it.
  void draw(const std::vector<std::vector<std::int32_t>>& sources, const std::vector<std::size_t>& places,
            std::size_t first, std::vector<std::string>& translations) const {
    const auto most = static_cast<std::size_t>(batching_.batch_size);
    for (std::size_t begin = 0; begin < sources.size(); begin += most) {
      const std::size_t count = std::min(most, sources.size() - begin);
      ef::SamplingOptions options = sampling_;
      for (std::size_t k = begin; k < begin + count; ++k) options.numbers.push_back(first + places[k]);
      const auto drawn = ef::sample(
          model_, ctx_, std::span<const std::vector<std::int32_t>>(sources).subspan(begin, count), options);
      for (std::size_t k = 0; k < count; ++k)
        translations[places[begin + k]] = tokenizers_.target->decode(drawn[k].ids);
    }
  }

  const ef::Seq2SeqTransformer<float>& model_;
  const ef::TokenizerPair& tokenizers_;
  const ef::ModelDescription& description_;
  ef::Context<float> ctx_;
  ef::GenerationOptions search_;
  ef::SamplingOptions sampling_;
  bool sample_ = false;
  ef::BatchGenerationOptions batching_;
};

}  // namespace translator
