#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/alignment/token_spans.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/search/beams/target_scores.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "eigenformer/search/model.hpp"
#include "eigenformer/search/text/confidence.hpp"
#include "eigenformer/search/text/conventions.hpp"
#include "eigenformer/search/text/split_lines.hpp"
#include "eigenformer/search/text/translation.hpp"

namespace eigenformer {

/// A function that scores each of n texts against each as the reference: n x n utilities, row-major,
/// hypotheses as rows; higher is better. pairwise_chrf() and pairwise_bleu() in metrics/ are such functions.
using PairwiseUtility = std::function<std::vector<double>(std::span<const std::string> texts)>;

namespace detail {

/// The expected utility of each candidate with all candidates as weighted references (Eikema & Aziz 2020, eq.
/// 6); the candidate with the highest has minimum Bayes risk.
///
/// weights: one per candidate, not negative, not all 0; empty: equal weights, which is right for samples.
/// Repeated texts add their weights. Throws ValueError for invalid weights, for a wrong number of weights or
/// utilities, and what the utility throws.
EIGENFORMER_IO_FUNCTION std::vector<double> expected_utilities(std::span<const std::string> candidates,
                                                               std::span<const double> weights,
                                                               const PairwiseUtility& utility);

}  // namespace detail

/// Options of a TextTranslator.
struct TextTranslatorOptions {
  SearchOptions search{};         ///< options of the search or of sampling
  BatchSearchOptions batching{};  ///< size of batches; does not change results
  /// Minimum Bayes risk decoding (Eikema & Aziz 2020): orders translations by their expected utility over the
  /// sampled texts, or over the texts found by the search, weighted by their probabilities. Empty: off.
  PairwiseUtility utility{};
  ConfidenceScale confidence{};  ///< scale of word confidences
  /// If set, translations have alignments, which take another pass of the model; an ensemble uses its first
  /// model.
  std::optional<AlignmentOptions> alignment{};
  /// Terms that a translation must contain if its line does; the search enforces them as constraints. Terms
  /// that the vocabulary cannot write, or that do not fit into max_length, are not honoured. Null: none.
  std::shared_ptr<const Glossary> glossary{};
  /// How a line is split into the sentences that are translated one by one. Not set: by line_splitting() of
  /// the model's conventions, and lines of decoder-only models are not split. `{.layout =
  /// DocumentLayout::flow}`: only into parts that the model can read.
  std::optional<DocumentOptions> splitting{};
  /// What becomes of unknown tokens in a translation; empty: as the model's conventions say.
  std::optional<UnknownTokens> unknown{};
};

namespace detail {

/// Whether prepared lines with these options may share a batch: all fields but batching and splitting are
/// equal. Always false with a utility: functions cannot be compared.
inline bool translate_alike(const TextTranslatorOptions& a, const TextTranslatorOptions& b) {
  return a.search == b.search && a.confidence == b.confidence && a.alignment == b.alignment &&
         a.glossary == b.glossary && a.unknown == b.unknown && !a.utility && !b.utility;
}

}  // namespace detail

/// The options of a model's conventions; a start for others.
template <class Options>
TextTranslatorOptions text_translator_options(const FolderDescription<Options>& description) {
  return {.search = search_options(description.text)};
}

/// Translates text: tokenizes lines, searches or samples, and detokenizes the results. For models whose Input
/// is a list of token ids: encoder-decoders translate a line, decoder-only models continue it.
///
/// A line of several sentences is translated sentence by sentence if the model's lines are sentences, and a
/// sentence with more tokens than max_source_tokens() in parts; see TextTranslatorOptions::splitting. One
/// line has one result: the texts are joined with the white space of the line; see joined_translation().
///
///     auto loaded = ef::load_model_folder("en-de");
///     ef::TextTranslator translator(loaded);
///     ef::Translation t = translator.translate("I am reading a book.");
///
/// The model must outlive it. All functions are thread-safe; copies are cheap.
template <class M>
class TextTranslator {
 public:
  using T = detail::ValueOf<M>;  ///< the model's scalar type
  /// The description of a folder with such a model.
  using Description = FolderDescription<std::remove_cvref_t<decltype(M::options)>>;
  static_assert(std::is_same_v<typename M::Input, std::vector<std::int32_t>>,
                "a model of texts needs `using Input = std::vector<std::int32_t>;`, the ids of a line");

  /// ctx: an inference context, for example with packed weights. Reduces max_length to what the model has
  /// room for. Throws ValueError for invalid options and without tokenizers.
  TextTranslator(const M& model, TokenizerPair tokenizers, Description description,
                 TextTranslatorOptions options, const Context<T>& ctx = Context<T>::inference());
  /// Moves are copies: nothing can be used that was moved from.
  TextTranslator(const TextTranslator&) = default;
  /// Uses a loaded model with the options of its conventions; `loaded` must outlive it.
  explicit TextTranslator(const LoadedModel<M>& loaded, const Context<T>& ctx = Context<T>::inference())
      : TextTranslator(loaded, text_translator_options(loaded.description), ctx) {}
  /// The same with other options.
  TextTranslator(const LoadedModel<M>& loaded, TextTranslatorOptions options,
                 const Context<T>& ctx = Context<T>::inference())
      : TextTranslator(loaded.model, loaded.tokenizers, loaded.description, std::move(options), ctx) {}

  /// Translates lines. Returns for each line up to search.num_hypotheses translations, the best
  /// first; a blank line has one empty translation.
  ///
  /// - first: the number of the first line, which determines with the seed what is sampled, so that results
  /// do not depend on how lines are grouped into calls.
  /// - prefixes: the text that each line's translation must begin with, one per line; empty: none. The prefix
  /// of a line in parts is that of its first part.
  /// - weights: whether the alignment of a line in parts has its attention weights, whose number grows with
  /// the square of its length.
  ///
  /// Throws ValueError for a wrong number of prefixes, for a prefix that is too long for the model, when a
  /// tokenizer does, and as generate().
  std::vector<std::vector<Translation>> alternatives(std::span<const std::string> lines,
                                                     std::size_t first = 0,
                                                     std::span<const std::string> prefixes = {},
                                                     bool weights = true) const;

  /// Tokenizes a line for alternatives() without splitting it; PreparedLine::cut tells whether it is too long
  /// for the model. number: of the line; prefix: as there; prefix_name: names it in messages. Throws
  /// ValueError when a tokenizer does and for a prefix that is too long for the model.
  PreparedLine prepare(const std::string& line, std::uint64_t number = 0, const std::string& prefix = {},
                       const std::string& prefix_name = "the prefix") const;

  /// Translates prepared lines; a result does not depend on the other lines. observer: replaces the options'
  /// observer; SearchProgress::input is the index in `lines`. Throws ValueError for a prefix that is too long
  /// for the model, and as generate().
  std::vector<std::vector<Translation>> alternatives(
      std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer = nullptr) const;

  /// Returns the best translation of each line, the first of alternatives(). Throws as alternatives().
  std::vector<Translation> translate(std::span<const std::string> lines, std::size_t first = 0,
                                     std::span<const std::string> prefixes = {}) const;
  /// Returns the best translation of one line. Throws as alternatives().
  Translation translate(const std::string& line) const {
    return std::move(translate(std::span(&line, 1)).front());
  }

  /// Scores given translations (forced decoding). Returns for each pair of lines the target text as
  /// tokenized, score, log_probability, the tokens with the end symbol, words and confidence, and with
  /// options.alignment the alignment of the two given lines. A pair with a blank side has no tokens. Both
  /// sides are cut (Translation::cut) to what the model can read, max_source_tokens() and
  /// max_scored_tokens(): a pair has one score. Throws ValueError for unequal numbers of lines and when a
  /// tokenizer does, and as score_targets().
  std::vector<Translation> score(std::span<const std::string> lines,
                                 std::span<const std::string> targets) const;

  /// Detokenizes a line's prefix followed by `ids`: a translation or its beginning.
  std::string text_of(const PreparedLine& line, std::span<const std::int32_t> ids) const {
    return tokenizers_.target->decode(joined(line.prefix, ids));
  }

  /// The options, with max_length reduced to what the model has room for.
  const TextTranslatorOptions& options() const noexcept { return options_; }

  /// Returns a translator of the same model and context with other options. Throws ValueError for invalid
  /// options.
  TextTranslator with_options(TextTranslatorOptions options) const;
  /// Returns a translator of the same model and options with these adapters (see read_adapter()) in place of
  /// those attached to the model. For an Ensemble set adapters in its members' contexts instead.
  TextTranslator with_adapters(std::shared_ptr<const AdapterSet<T>> adapters) const requires Module<M>;

 private:
  using Ids = std::vector<std::int32_t>;

  // Lines translated together.
  struct Work {
    std::vector<const PreparedLine*> lines;
    std::vector<Ids> sources;
    std::vector<std::vector<GlossaryTerm>> terms;
    std::vector<std::size_t> places;  // indices into the caller's lines
  };

  void set(TextTranslatorOptions options);

  // The tokens that the model has room for after the forced ones and a prefix, if fewer than max_length has.
  std::optional<index_t> room_after(const Ids& prefix, const std::string& prefix_name) const;

  // A translation to align.
  struct Alignable {
    Translation* translation;
    const std::string* line;
    const std::string* text;  // the translation's text, or the given one
    const Ids* source;        // the ids that the model read
    Ids target;               // without begin and end symbol and the conventions' prefix
    bool ended;
  };

  void align(const std::vector<Alignable>& parts) const;

  // weights: of one layer, with rows for the conventions' prefix before the text's own.
  TextAlignment alignment_of(const Alignable& part, const Tensor<float>& weights) const;

  void run(const Work& work, std::optional<index_t> room,
           const std::shared_ptr<const SearchObserver>& observer,
           std::vector<std::vector<Translation>>& translations) const;

  std::vector<std::vector<Hypothesis>> search(const Work& work, std::optional<index_t> room,
                                              const std::shared_ptr<const SearchObserver>& observer) const;

  static Ids joined(const Ids& prefix, std::span<const std::int32_t> ids);

  // Sets what a hypothesis says of a translation. prefix: forced tokens before those of the hypothesis.
  void fill(Translation& translation, const Hypothesis& h, const Ids& prefix) const;

  // Sampled texts represent the model's distribution by their frequencies, texts of a search by their
  // probabilities.
  void order_by_utility(std::vector<Translation>& translations) const;

  const M& model_;
  TokenizerPair tokenizers_;  // the target's as options_.unknown has it
  std::shared_ptr<const Tokenizer> target_;
  std::shared_ptr<const Description> description_;
  TextTranslatorOptions options_;
  std::optional<DocumentOptions> splitting_{};  // by the conventions, once it was needed
  Context<T> ctx_;
  detail::TermForms term_forms_;
};

namespace detail {

template <class M>
std::vector<std::string> best_texts(const TextTranslator<M>& translator,
                                    const std::vector<std::string>& lines) {
  std::vector<std::string> texts;
  for (Translation& translation : translator.translate(lines)) texts.push_back(std::move(translation.text));
  return texts;
}

}  // namespace detail

/// Translates lines of text with a TextTranslator. Returns one translation per line, empty for a blank line.
/// Lines of several sentences, and lines that are too long for the model, are translated in parts, as
/// TextTranslator does.
///
///     auto model = ef::load_model_folder("en-de");
///     auto lines = ef::translate(model, {"I am reading a book."});
///
/// Throws ValueError for invalid options and as TextTranslator::alternatives().
template <class M>
std::vector<std::string> translate(
    const LoadedModel<M>& model, const std::vector<std::string>& lines, SearchOptions options,
    const BatchSearchOptions& batching = {},
    const Context<detail::ValueOf<M>>& ctx = Context<detail::ValueOf<M>>::inference()) {
  const TextTranslator<M> translator(model, {.search = std::move(options), .batching = batching}, ctx);
  return detail::best_texts(translator, lines);
}
/// The same with the options of the model's conventions.
template <class M>
std::vector<std::string> translate(const LoadedModel<M>& model, const std::vector<std::string>& lines) {
  return translate(model, lines, search_options(model.description.text));
}
/// The same for a model and tokenizers that are not in one LoadedModel, with the default conventions (see
/// SpecialIds): one trained in this program, for example. Throws ValueError without tokenizers, too.
///
///     auto lines = ef::translate(model, tokenizers, {"I am reading a book."});
template <GenerativeModel M>
std::vector<std::string> translate(
    const M& model, const TokenizerPair& tokenizers, const std::vector<std::string>& lines,
    SearchOptions options = {}, const BatchSearchOptions& batching = {},
    const Context<detail::ValueOf<M>>& ctx = Context<detail::ValueOf<M>>::inference()) {
  const TextTranslator<M> translator(model, tokenizers, {.model = model.options},
                                     {.search = std::move(options), .batching = batching}, ctx);
  return detail::best_texts(translator, lines);
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::vector<double> expected_utilities(std::span<const std::string> candidates,
                                                               std::span<const double> weights,
                                                               const PairwiseUtility& utility) {
  if (!weights.empty() && weights.size() != candidates.size()) {
    throw ValueError("minimum_bayes_risk", {"there are ", weights.size(), " weights, must be ",
                                            candidates.size(), ", one for each candidate, or none"});
  }
  // Repeated texts are compared once.
  std::vector<std::string> texts;
  std::vector<double> mass;
  std::vector<std::size_t> text_of;
  double total = 0;
  // A power of two, which does not round, so that the sum of the largest weights does not overflow.
  const bool large = std::any_of(weights.begin(), weights.end(), [](double w) { return w > 1e280; });
  const double unit = large ? 0x1p-64 : 1;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    if (!(weight >= 0) || !std::isfinite(weight)) {
      throw ValueError("minimum_bayes_risk",
                       {"weight ", i, " is ", weight, ", must be finite and not negative"});
    }
    const auto at =
        static_cast<std::size_t>(std::find(texts.begin(), texts.end(), candidates[i]) - texts.begin());
    if (at == texts.size()) {
      texts.push_back(candidates[i]);
      mass.push_back(0);
    }
    mass[at] += weight * unit;
    total += weight * unit;
    text_of.push_back(at);
  }
  if (candidates.empty()) return {};
  if (!(total > 0))
    throw ValueError("minimum_bayes_risk", "all weights are 0, at least one must be positive");
  const std::vector<double> values = utility(texts);
  const std::size_t n = texts.size();
  if (values.size() != n * n) {
    throw ValueError("minimum_bayes_risk",
                     {"the utility returned ", values.size(), " numbers for ", n, " texts, must be ", n * n});
  }
  std::vector<double> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) expected[i] += mass[j] / total * values[i * n + j];
  }
  std::vector<double> of_candidates;
  for (const std::size_t t : text_of) of_candidates.push_back(expected[t]);
  return of_candidates;
}

}  // namespace eigenformer::detail

#endif

#include "eigenformer/search/text/text_translator-inl.hpp"
