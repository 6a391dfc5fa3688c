#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/tokenizers/unknown_tokens.hpp"
#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/alignment/token_spans.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/search/beams/target_scores.hpp"
#include "eigenformer/search/constraints/term_forms.hpp"
#include "eigenformer/search/model.hpp"
#include "eigenformer/search/text/confidence.hpp"
#include "eigenformer/search/text/conventions.hpp"
#include "eigenformer/search/text/split_lines.hpp"
#include "eigenformer/search/text/translation.hpp"

namespace eigenformer {

/// A function that scores each of n texts against each as the reference: n x n utilities, row-major,
/// hypotheses as rows; higher is better. pairwise_chrf() and pairwise_bleu() in metrics/ are such functions.
using PairwiseUtility = std::function<std::vector<double>(std::span<const std::string> texts)>;

/// The expected utility of each candidate with all candidates as weighted references (Eikema & Aziz 2020, eq.
/// 6); the candidate with the highest has minimum Bayes risk.
///
/// weights: one per candidate, not negative, not all 0; empty: equal weights, which is right for samples.
/// Repeated texts add their weights. Throws ValueError for invalid weights, for a wrong number of weights or
/// utilities, and what the utility throws.
EIGENFORMER_IO_FUNCTION std::vector<double> expected_utilities(std::span<const std::string> candidates,
                                                               std::span<const double> weights,
                                                               const PairwiseUtility& utility);

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

/// Whether prepared lines with these options may share a batch: all fields but batching and splitting are
/// equal. Always false with a utility: functions cannot be compared.
inline bool translate_alike(const TextTranslatorOptions& a, const TextTranslatorOptions& b) {
  return a.search == b.search && a.confidence == b.confidence && a.alignment == b.alignment &&
         a.glossary == b.glossary && a.unknown == b.unknown && !a.utility && !b.utility;
}

/// The options of a model's conventions; a start for others.
template <class Options>
TextTranslatorOptions text_translator_options(const FolderDescription<Options>& description) {
  return {.search = search_options(description)};
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
  /// for the model. number: of the line; prefix: as there. Throws ValueError when a tokenizer does and for a
  /// prefix that is too long for the model.
  PreparedLine prepare(const std::string& line, std::uint64_t number = 0,
                       const std::string& prefix = {}) const;

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

  /// Whether the model can read a line without cutting it. Throws ValueError when the tokenizer does.
  bool fits(const std::string& line) const;

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
    std::vector<Ids> sources, prefixes;
    std::vector<std::uint64_t> numbers;
    std::vector<std::vector<GlossaryTerm>> terms;
    std::vector<std::size_t> places;  // indices into the caller's lines
    bool prefixed = false, constrained = false;

    void add(const PreparedLine& line, std::vector<GlossaryTerm> found, std::size_t place) {
      prefixed = prefixed || !line.prefix.empty();
      constrained = constrained || !found.empty();
      terms.push_back(std::move(found));
      lines.push_back(&line);
      sources.push_back(line.ids);
      prefixes.push_back(line.prefix);
      numbers.push_back(line.number);
      places.push_back(place);
    }
  };

  void set(TextTranslatorOptions options);

  std::vector<GlossaryTerm> terms_of(const PreparedLine& line) const {
    return options_.glossary != nullptr ? options_.glossary->find(line.text) : std::vector<GlossaryTerm>();
  }

  // prefix_name: names the prefix in messages.
  PreparedLine prepare(const std::string& line, std::uint64_t number, const std::string& prefix,
                       const std::string& prefix_name) const;

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

  // weights: of one layer, with rows for `forced` tokens before the text's own.
  TextAlignment alignment_of(const Alignable& part, const Tensor<float>& weights, std::size_t forced) const;

  void run(const Work& work, std::optional<index_t> room,
           const std::shared_ptr<const SearchObserver>& observer,
           std::vector<std::vector<Translation>>& translations) const;

  std::vector<std::vector<Hypothesis>> search(const Work& work, std::optional<index_t> room,
                                              const std::shared_ptr<const SearchObserver>& observer) const;

  static Ids joined(const Ids& prefix, std::span<const std::int32_t> ids);

  // prefix: forced tokens before those of the hypothesis.
  Translation translation_of(const Hypothesis& h, const Ids& prefix) const;

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
  TermForms term_forms_;
};

template <class M>

TextTranslator<M>::TextTranslator(const M& model, TokenizerPair tokenizers, Description description,
                                  TextTranslatorOptions options, const Context<T>& ctx)
    : model_(model),
      tokenizers_(std::move(tokenizers)),
      target_(tokenizers_.target),
      description_(std::make_shared<const Description>(std::move(description))),
      ctx_(ctx),
      term_forms_(tokenizers_.target) {
  if (tokenizers_.source == nullptr || tokenizers_.target == nullptr)
    throw ValueError("text_translator", "the model has no tokenizers, must have one for each side");
  set(std::move(options));
}

template <class M>

std::vector<std::vector<Translation>> TextTranslator<M>::alternatives(std::span<const std::string> lines,
                                                                      std::size_t first,
                                                                      std::span<const std::string> prefixes,
                                                                      bool weights) const {
  detail::require_one_prefix_each("text_translator", prefixes.size(), lines.size());
  const PreparedParts parts(
      lines, options_.splitting, first, prefixes,
      [this](const std::string& text, std::uint64_t number, const std::string& prefix, std::size_t line) {
        return prepare(text, number, prefix, "the prefix of line " + std::to_string(line + 1));
      });
  // Observers see lines, not parts.
  std::shared_ptr<const SearchObserver> observer;
  const auto& own = options_.search.observer;
  if (own != nullptr) {
    observer = search_observer([&](SearchProgress progress) {
      progress.input = parts.line_of(progress.input);
      return (*own)(progress);
    });
  }
  return parts.join(alternatives(std::span<const PreparedLine>(parts.lines()), std::move(observer)), weights);
}

template <class M>

PreparedLine TextTranslator<M>::prepare(const std::string& line, std::uint64_t number,
                                        const std::string& prefix) const {
  return prepare(line, number, prefix, "the prefix");
}

template <class M>

std::vector<std::vector<Translation>> TextTranslator<M>::alternatives(
    std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer) const {
  std::vector<std::vector<Translation>> translations(lines.size());
  Work all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    translations[i].emplace_back().cut = lines[i].cut;
    if (lines[i].ids.empty()) continue;
    if (const auto room = room_after(lines[i].prefix, "the prefix of line " + std::to_string(i + 1))) {
      // The prefix reduces the maximum length of this line only.
      Work one;
      one.add(lines[i], terms_of(lines[i]), i);
      run(one, *room, observer, translations);
    } else {
      all.add(lines[i], terms_of(lines[i]), i);
    }
  }
  run(all, std::nullopt, observer, translations);
  return translations;
}

template <class M>

std::vector<Translation> TextTranslator<M>::translate(std::span<const std::string> lines, std::size_t first,
                                                      std::span<const std::string> prefixes) const {
  std::vector<Translation> best;
  for (auto& translations : alternatives(lines, first, prefixes))
    best.push_back(std::move(translations.front()));
  return best;
}

template <class M>

std::vector<Translation> TextTranslator<M>::score(std::span<const std::string> lines,
                                                  std::span<const std::string> targets) const {
  if (lines.size() != targets.size()) {
    throw ValueError("text_translator", std::to_string(lines.size()) + " lines and " +
                                            std::to_string(targets.size()) +
                                            " targets, expected equal numbers");
  }
  std::vector<Translation> translations(lines.size());
  std::vector<Ids> sources, given;
  std::vector<std::size_t> places;
  const index_t most = max_scored_tokens(*description_);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Translation& translation = translations[i];
    Ids source = source_ids(description_->text, *tokenizers_.source, lines[i],
                            max_source_tokens(*description_), &translation.cut);
    Ids target = tokenizers_.target->encode(targets[i]);
    if (source.empty() || target.empty()) continue;
    if (static_cast<index_t>(target.size()) >= most) {
      target.resize(static_cast<std::size_t>(most) - 1);
      translation.cut = true;
    }
    sources.push_back(std::move(source));
    given.push_back(std::move(target));
    places.push_back(i);
  }
  const auto scores = score_targets(model_, ctx_, std::span<const Ids>(sources), std::span<const Ids>(given),
                                    options_.search, options_.batching);
  for (std::size_t k = 0; k < scores.size(); ++k) {
    Hypothesis h{.ids = given[k], .log_probability = scores[k].log_probability, .finished = true};
    h.score = hypothesis_score(h.log_probability, static_cast<index_t>(h.ids.size()) + 1, options_.search);
    h.token_log_probabilities = scores[k].token_log_probabilities;
    const bool cut = translations[places[k]].cut;
    translations[places[k]] = translation_of(h, {});
    translations[places[k]].cut = cut;
  }
  std::vector<Alignable> parts;
  for (std::size_t k = 0; k < scores.size(); ++k)
    parts.push_back(
        {&translations[places[k]], &lines[places[k]], &targets[places[k]], &sources[k], given[k], true});
  align(parts);
  return translations;
}

template <class M>

bool TextTranslator<M>::fits(const std::string& line) const {
  bool cut = false;
  (void)source_ids(description_->text, *tokenizers_.source, line, max_source_tokens(*description_), &cut);
  return !cut;
}

template <class M>

TextTranslator<M> TextTranslator<M>::with_options(TextTranslatorOptions options) const {
  TextTranslator other = *this;
  other.set(std::move(options));
  return other;
}

template <class M>

TextTranslator<M> TextTranslator<M>::with_adapters(
    std::shared_ptr<const AdapterSet<T>> adapters) const requires Module<M> {
  TextTranslator other = *this;
  other.ctx_ = ctx_.with_adapters(std::move(adapters));
  return other;
}

template <class M>

void TextTranslator<M>::set(TextTranslatorOptions options) {
  SearchOptions& search = options.search;
  const auto forced = static_cast<index_t>(search.prefix_ids.size());
  search.max_length = max_target_tokens(*description_, search.max_length - forced) + forced;
  search.validate();
  options.batching.validate();
  if (options.alignment) options.alignment->validate();
  if (options.alignment && !detail::HasCrossAttention<M>) {
    throw ValueError("text_translator",
                     "an alignment is requested, but this model has no function "
                     "cross_attention_weights(model, ctx, inputs, targets, begin_id, prefix, layer)");
  }
  if constexpr (!detail::HasPrompt<M>) {
    if (!options.splitting) {
      if (!splitting_) splitting_ = line_splitting(description_->text, *tokenizers_.source);
      options.splitting = splitting_;
    }
  }
  if (options.glossary != nullptr && search.sampling) {
    throw ValueError(
        "text_translator",
        "a glossary is given together with sampling, which does not support constraints; use beam search");
  }
  tokenizers_.target = with_unknown_tokens(target_, options.unknown.value_or(description_->text.unknown));
  options_ = std::move(options);
}

template <class M>

PreparedLine TextTranslator<M>::prepare(const std::string& line, std::uint64_t number,
                                        const std::string& prefix, const std::string& prefix_name) const {
  PreparedLine prepared{.text = line, .number = number};
  prepared.ids = source_ids(description_->text, *tokenizers_.source, line, max_source_tokens(*description_),
                            &prepared.cut);
  if (prepared.ids.empty()) return prepared;
  if (!prefix.empty()) prepared.prefix = tokenizers_.target->encode(prefix);
  (void)room_after(prepared.prefix, prefix_name);
  return prepared;
}

template <class M>

std::optional<index_t> TextTranslator<M>::room_after(const Ids& prefix,
                                                     const std::string& prefix_name) const {
  const index_t all = max_target_tokens(*description_, std::numeric_limits<index_t>::max());
  const auto taken = static_cast<index_t>(prefix.size());
  if (taken >= all) {
    throw ValueError("text_translator", prefix_name + " has " + std::to_string(taken) +
                                            " tokens, must be fewer than " + std::to_string(all) +
                                            ", the maximum length of the model");
  }
  return all - taken < detail::max_steps(options_.search) ? std::optional(all - taken) : std::nullopt;
}

template <class M>

void TextTranslator<M>::align(const std::vector<Alignable>& parts) const {
  if constexpr (detail::HasCrossAttention<M>) {
    if (!options_.alignment) return;
    const SearchOptions& options = options_.search;
    std::vector<index_t> lengths;
    for (const Alignable& part : parts)
      lengths.push_back(static_cast<index_t>(part.source->size() + part.target.size()));
    std::vector<std::size_t> order;
    const auto batches = detail::length_batches(lengths, options_.batching, order);
    detail::each_batch(batches, [&](const std::pair<std::size_t, std::size_t>& range) {
      std::vector<Ids> sources, targets;
      for (std::size_t k = range.first; k < range.second; ++k) {
        const Alignable& part = parts[order[k]];
        sources.push_back(*part.source);
        Ids& target = targets.emplace_back(options.prefix_ids);
        target.insert(target.end(), part.target.begin(), part.target.end());
      }
      const auto weights =
          cross_attention_weights(model_, ctx_, std::span<const Ids>(sources), std::span<const Ids>(targets),
                                  options.begin_id, options.prefix_length, options_.alignment->layer);
      for (std::size_t k = range.first; k < range.second; ++k) {
        const Alignable& part = parts[order[k]];
        part.translation->alignment = std::make_shared<const TextAlignment>(
            alignment_of(part, weights[k - range.first], options.prefix_ids.size()));
      }
    });
  }
}

template <class M>

TextAlignment TextTranslator<M>::alignment_of(const Alignable& part, const Tensor<float>& weights,
                                              std::size_t forced) const {
  TextAlignment alignment;
  alignment.attention =
      attention_of_head(weights, options_.alignment->head)
          .rows(static_cast<index_t>(forced), static_cast<index_t>(part.target.size()) + (part.ended ? 1 : 0))
          .clone();
  alignment.links = attention_links(alignment.attention, options_.alignment->threshold);
  alignment.source = source_spans(description_->text, *tokenizers_.source, *part.source, *part.line);
  const std::string& text = *part.text;
  alignment.target = token_spans(*tokenizers_.target, part.target, text);
  if (part.ended) alignment.target.push_back({text.size(), text.size()});
  return alignment;
}

template <class M>

void TextTranslator<M>::run(const Work& work, std::optional<index_t> room,
                            const std::shared_ptr<const SearchObserver>& observer,
                            std::vector<std::vector<Translation>>& translations) const {
  const auto found = search(work, room, observer);
  std::vector<Alignable> parts;
  for (std::size_t k = 0; k < found.size(); ++k) {
    std::vector<Translation>& of_line = translations[work.places[k]];
    const bool cut = of_line.front().cut;
    of_line.clear();
    for (const Hypothesis& h : found[k]) {
      of_line.push_back(translation_of(h, work.prefixes[k]));
      of_line.back().cut = cut;
      of_line.back().terms = term_outcomes(work.terms[k], of_line.back().text);
    }
    for (std::size_t i = 0; options_.alignment && i < found[k].size(); ++i) {
      parts.push_back({&of_line[i], &work.lines[k]->text, &of_line[i].text, &work.sources[k],
                       joined(work.prefixes[k], found[k][i].ids), found[k][i].finished});
    }
  }
  align(parts);
  if (!options_.utility) return;
  for (const std::size_t place : work.places) order_by_utility(translations[place]);
}

template <class M>

std::vector<std::vector<Hypothesis>> TextTranslator<M>::search(
    const Work& work, std::optional<index_t> room,
    const std::shared_ptr<const SearchObserver>& observer) const {
  SearchOptions options = options_.search;
  if (room) {
    options.max_length = *room + static_cast<index_t>(options.prefix_ids.size());
    options.min_length = std::min(options.min_length, *room);
  }
  if (const auto own = observer != nullptr ? observer : options.observer; own != nullptr) {
    // Observers see the caller's indices.
    options.observer = search_observer([own, &work](SearchProgress progress) {
      progress.input = work.places[progress.input];
      return (*own)(progress);
    });
  }
  if (options.sampling) options.sampling->numbers = work.numbers;
  if (work.prefixed) options.prefixes = work.prefixes;
  if (work.constrained) {
    for (const auto& terms : work.terms) options.constraints.push_back(term_forms_.constraints(terms));
  }
  return generate(model_, ctx_, std::span<const Ids>(work.sources), options, options_.batching);
}

template <class M>

auto TextTranslator<M>::joined(const Ids& prefix, std::span<const std::int32_t> ids) -> Ids {
  Ids all = prefix;
  all.insert(all.end(), ids.begin(), ids.end());
  return all;
}

template <class M>

Translation TextTranslator<M>::translation_of(const Hypothesis& h, const Ids& prefix) const {
  Translation translation;
  const Ids ids = joined(prefix, h.ids);
  translation.text = tokenizers_.target->decode(ids);
  translation.score = h.score;
  translation.log_probability = h.log_probability;
  translation.attention = h.attention;
  const std::span<const double> scores(h.token_log_probabilities);
  if (scores.empty()) return translation;
  for (std::size_t t = 0; t < scores.size(); ++t) {
    const std::int32_t id = t < h.ids.size() ? h.ids[t] : options_.search.end_id;
    translation.tokens.push_back({tokenizers_.target->token(id), scores[t]});
  }
  translation.words =
      word_confidences(*tokenizers_.target, ids, scores.first(h.ids.size()), options_.confidence);
  translation.confidence = sentence_confidence(translation.words);
  return translation;
}

template <class M>

void TextTranslator<M>::order_by_utility(std::vector<Translation>& translations) const {
  std::vector<std::string> candidates;
  std::vector<double> weights;
  double most = translations.front().log_probability;
  for (const Translation& t : translations) most = std::max(most, t.log_probability);
  for (const Translation& t : translations) {
    candidates.push_back(t.text);
    if (!options_.search.sampling) weights.push_back(std::exp(t.log_probability - most));
  }
  const std::vector<double> expected = expected_utilities(candidates, weights, options_.utility);
  for (std::size_t i = 0; i < expected.size(); ++i) translations[i].expected_utility = expected[i];
  std::stable_sort(translations.begin(), translations.end(), [](const Translation& a, const Translation& b) {
    return a.expected_utility > b.expected_utility;
  });
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION std::vector<double> expected_utilities(std::span<const std::string> candidates,
                                                               std::span<const double> weights,
                                                               const PairwiseUtility& utility) {
  if (!weights.empty() && weights.size() != candidates.size()) {
    throw ValueError("minimum_bayes_risk", "there are " + std::to_string(weights.size()) +
                                               " weights, must be " + std::to_string(candidates.size()) +
                                               ", one for each candidate, or none");
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
      throw ValueError("minimum_bayes_risk", "weight " + std::to_string(i) + " is " + std::to_string(weight) +
                                                 ", must be finite and not negative");
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
    throw ValueError("minimum_bayes_risk", "the utility returned " + std::to_string(values.size()) +
                                               " numbers for " + std::to_string(n) + " texts, must be " +
                                               std::to_string(n * n));
  }
  std::vector<double> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) expected[i] += mass[j] / total * values[i * n + j];
  }
  std::vector<double> of_candidates;
  for (const std::size_t t : text_of) of_candidates.push_back(expected[t]);
  return of_candidates;
}

}  // namespace eigenformer

#endif
