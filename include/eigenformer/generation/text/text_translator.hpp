#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/generation/search/generate.hpp"
#include "eigenformer/generation/search/sampling.hpp"
#include "eigenformer/generation/text/conventions.hpp"

namespace eigenformer {

/// A line of text that a model has made of another.
struct Translation {
  std::string text;                                     ///< empty for a line without a word
  double score = 0;                                     ///< Hypothesis::score
  double log_probability = 0;                           ///< Hypothesis::log_probability
  std::shared_ptr<const AttentionMaps> attention = {};  ///< where search.attention asks for it
  bool cut = false;  ///< whether the line had more tokens than the model can read, and lost its end
};

/// How a TextTranslator works.
struct TextTranslatorOptions {
  GenerationOptions search{};
  std::optional<SamplingOptions> sampling{};  ///< draw in place of searching for the best
  BatchGenerationOptions batching{};
};

/// What a model's conventions say: the options to start from.
template <class Options>
TextTranslatorOptions text_translator_options(const FolderDescription<Options>& description) {
  return {.search = generation_options(description)};
}

/// Text in, text out: tokenizes lines, searches or samples, and puts tokens together again. For models whose
/// Input is a list of token ids: encoder-decoders translate a line, decoder-only ones go on from it.
///
///     auto loaded = ef::load_model_folder("en-de");
///     ef::TextTranslator translator(loaded);
///     ef::Translation t = translator.translate("I am reading a book.");
///
/// The model must outlive it.
template <class M>
class TextTranslator {
 public:
  using T = detail::ValueOf<M>;
  using Description = FolderDescription<std::remove_cvref_t<decltype(M::options)>>;
  static_assert(std::is_same_v<typename M::Input, std::vector<std::int32_t>>,
                "a model of texts needs `using Input = std::vector<std::int32_t>;`, the ids of a line");

  /// Throws ValueError for impossible options and without tokenizers.
  TextTranslator(const M& model, TokenizerPair tokenizers, Description description,
                 TextTranslatorOptions options, const Context<T>& ctx = Context<T>::inference())
      : model_(model),
        tokenizers_(std::move(tokenizers)),
        description_(std::move(description)),
        options_(std::move(options)),
        ctx_(ctx) {
    if (tokenizers_.source == nullptr || tokenizers_.target == nullptr)
      throw ValueError("text_translator", "the model has no tokenizers, must have one for either side");
    const auto limit = [&](auto& o) {
      o.max_length = max_target_tokens(description_, o.max_length);
      o.validate();
    };
    limit(options_.search);
    if (options_.sampling) limit(*options_.sampling);
    options_.batching.validate();
  }
  /// Of what a model folder or an import gave.
  explicit TextTranslator(const LoadedModel<M>& loaded, const Context<T>& ctx = Context<T>::inference())
      : TextTranslator(loaded, text_translator_options(loaded.description), ctx) {}
  TextTranslator(const LoadedModel<M>& loaded, TextTranslatorOptions options,
                 const Context<T>& ctx = Context<T>::inference())
      : TextTranslator(loaded.model, loaded.tokenizers, loaded.description, std::move(options), ctx) {}

  /// A translation for each line. first: the number of the first line, which decides with the seed what is
  /// drawn, so that a text drawn for a line does not depend on how lines are grouped. Throws ValueError where
  /// a tokenizer does, and as generate() and sample() do.
  std::vector<Translation> translate(std::span<const std::string> lines, std::size_t first = 0) const {
    std::vector<Translation> translations(lines.size());
    std::vector<std::vector<std::int32_t>> sources;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      auto ids = source_ids(description_.text, *tokenizers_.source, lines[i], max_source_tokens(description_),
                            &translations[i].cut);
      if (ids.empty()) continue;
      sources.push_back(std::move(ids));
      places.push_back(i);
    }
    const std::vector<Hypothesis> found = options_.sampling ? draw(sources, places, first) : search(sources);
    for (std::size_t k = 0; k < found.size(); ++k) {
      Translation& translation = translations[places[k]];
      translation.text = tokenizers_.target->decode(found[k].ids);
      translation.score = found[k].score;
      translation.log_probability = found[k].log_probability;
      translation.attention = found[k].attention;
    }
    return translations;
  }
  Translation translate(const std::string& line) const {
    return std::move(translate(std::span(&line, 1)).front());
  }

  /// How it works, with max_length as far as the model has room.
  const TextTranslatorOptions& options() const noexcept { return options_; }

 private:
  std::vector<Hypothesis> search(const std::vector<std::vector<std::int32_t>>& sources) const {
    std::vector<Hypothesis> best;
    for (auto& hypotheses : generate(model_, ctx_, sources, options_.search, options_.batching))
      best.push_back(std::move(hypotheses.front()));
    return best;
  }

  std::vector<Hypothesis> draw(const std::vector<std::vector<std::int32_t>>& sources,
                               const std::vector<std::size_t>& places, std::size_t first) const {
    std::vector<Hypothesis> drawn;
    const auto most = static_cast<std::size_t>(options_.batching.batch_size);
    for (std::size_t begin = 0; begin < sources.size(); begin += most) {
      const std::size_t count = std::min(most, sources.size() - begin);
      SamplingOptions options = *options_.sampling;
      options.numbers.clear();
      for (std::size_t k = begin; k < begin + count; ++k) options.numbers.push_back(first + places[k]);
      for (auto& text : sample(model_, ctx_, std::span(sources).subspan(begin, count), options))
        drawn.push_back(std::move(text));
    }
    return drawn;
  }

  const M& model_;
  TokenizerPair tokenizers_;
  Description description_;
  TextTranslatorOptions options_;
  Context<T> ctx_;
};

}  // namespace eigenformer
