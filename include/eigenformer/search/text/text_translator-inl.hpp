#pragma once

#include "eigenformer/search/text/text_translator.hpp"

// The member functions of TextTranslator.

namespace eigenformer {

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
  detail::require_one_each("text_translator", "prefixes", prefixes.size(), lines.size());
  detail::PreparedParts parts(
      lines, options_.splitting, first, prefixes,
      [this](const std::string& text, std::uint64_t number, const std::string& prefix, std::size_t line) {
        return prepare(text, number, prefix, "the prefix of line " + std::to_string(line + 1));
      });
  // Observers see lines, not parts.
  std::shared_ptr<const SearchObserver> observer;
  const auto& own = options_.search.observer;
  if (own != nullptr) {
    observer = std::make_shared<const SearchObserver>([&](SearchProgress progress) {
      progress.input = parts.line_of(progress.input);
      return (*own)(progress);
    });
  }
  return parts.join(alternatives(std::span<const PreparedLine>(parts.lines()), std::move(observer)), weights);
}

template <class M>
std::vector<std::vector<Translation>> TextTranslator<M>::alternatives(
    std::span<const PreparedLine> lines, std::shared_ptr<const SearchObserver> observer) const {
  std::vector<std::vector<Translation>> translations(lines.size());
  Work all;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ids.empty()) {
      translations[i].emplace_back().cut = lines[i].cut;
      continue;
    }
    // A prefix that leaves less room reduces the maximum length of its own line only.
    const auto room = room_after(lines[i].prefix, "the prefix of line " + std::to_string(i + 1));
    Work one;
    Work& work = room ? one : all;
    work.lines.push_back(&lines[i]);
    work.sources.push_back(lines[i].ids);
    work.terms.emplace_back();
    if (options_.glossary != nullptr) work.terms.back() = options_.glossary->find(lines[i].text);
    work.places.push_back(i);
    if (room) run(one, room, observer, translations);
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
    throw ValueError("text_translator",
                     {lines.size(), " lines and ", targets.size(), " targets, expected equal numbers"});
  }
  std::vector<Translation> translations(lines.size());
  std::vector<Ids> sources, given;
  std::vector<std::size_t> places;
  const index_t most = detail::max_scored_tokens(*description_);
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
  std::vector<Alignable> parts;
  for (std::size_t k = 0; k < scores.size(); ++k) {
    Translation& translation = translations[places[k]];
    Hypothesis h{.ids = given[k], .log_probability = scores[k].log_probability, .finished = true};
    h.score =
        detail::hypothesis_score(h.log_probability, static_cast<index_t>(h.ids.size()) + 1, options_.search);
    h.token_log_probabilities = scores[k].token_log_probabilities;
    fill(translation, h, {});
    parts.push_back({&translation, &lines[places[k]], &targets[places[k]], &sources[k], given[k], true});
  }
  align(parts);
  return translations;
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
  search.max_length = detail::max_target_tokens(*description_, search.max_length - forced) + forced;
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
  tokenizers_.target =
      detail::with_unknown_tokens(target_, options.unknown.value_or(description_->text.unknown));
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
  const index_t all = detail::max_target_tokens(*description_, std::numeric_limits<index_t>::max());
  const auto taken = static_cast<index_t>(prefix.size());
  if (taken >= all) {
    throw ValueError("text_translator", {prefix_name, " has ", taken, " tokens, must be fewer than ", all,
                                         ", the maximum length of the model"});
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
    detail::each_batch(lengths, options_.batching, [&](std::span<const std::size_t> places) {
      std::vector<Ids> sources, targets;
      for (const std::size_t place : places) {
        const Alignable& part = parts[place];
        sources.push_back(*part.source);
        Ids& target = targets.emplace_back(options.prefix_ids);
        target.insert(target.end(), part.target.begin(), part.target.end());
      }
      const auto weights =
          cross_attention_weights(model_, ctx_, std::span<const Ids>(sources), std::span<const Ids>(targets),
                                  options.begin_id, options.prefix_length, options_.alignment->layer);
      for (std::size_t k = 0; k < places.size(); ++k) {
        const Alignable& part = parts[places[k]];
        part.translation->alignment = std::make_shared<const TextAlignment>(alignment_of(part, weights[k]));
      }
    });
  }
}

template <class M>
TextAlignment TextTranslator<M>::alignment_of(const Alignable& part, const Tensor<float>& weights) const {
  TextAlignment alignment;
  const auto forced = static_cast<index_t>(options_.search.prefix_ids.size());
  alignment.attention = attention_of_head(weights, options_.alignment->head)
                            .rows(forced, static_cast<index_t>(part.target.size()) + (part.ended ? 1 : 0))
                            .clone();
  alignment.links = attention_links(alignment.attention, options_.alignment->threshold);
  alignment.source = detail::source_spans(description_->text, *tokenizers_.source, *part.source, *part.line);
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
    const PreparedLine& line = *work.lines[k];
    std::vector<Translation>& of_line = translations[work.places[k]];
    for (const Hypothesis& h : found[k]) {
      Translation& translation = of_line.emplace_back();
      fill(translation, h, line.prefix);
      translation.cut = line.cut;
      translation.terms = term_outcomes(work.terms[k], translation.text);
    }
    for (std::size_t i = 0; options_.alignment && i < found[k].size(); ++i) {
      parts.push_back({&of_line[i], &line.text, &of_line[i].text, &line.ids,
                       joined(line.prefix, found[k][i].ids), found[k][i].finished});
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
    options.observer = std::make_shared<const SearchObserver>([own, &work](SearchProgress progress) {
      progress.input = work.places[progress.input];
      return (*own)(progress);
    });
  }
  const bool prefixed = std::any_of(work.lines.begin(), work.lines.end(),
                                    [](const PreparedLine* line) { return !line->prefix.empty(); });
  const bool constrained =
      std::any_of(work.terms.begin(), work.terms.end(), [](const auto& terms) { return !terms.empty(); });
  if (prefixed) options.prefixes.clear();
  if (options.sampling) options.sampling->numbers.clear();
  for (std::size_t k = 0; k < work.lines.size(); ++k) {
    if (prefixed) options.prefixes.push_back(work.lines[k]->prefix);
    if (constrained) options.constraints.push_back(term_forms_.constraints(work.terms[k]));
    if (options.sampling) options.sampling->numbers.push_back(work.lines[k]->number);
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
void TextTranslator<M>::fill(Translation& translation, const Hypothesis& h, const Ids& prefix) const {
  const Ids ids = joined(prefix, h.ids);
  translation.text = tokenizers_.target->decode(ids);
  translation.score = h.score;
  translation.log_probability = h.log_probability;
  translation.attention = h.attention;
  const std::span<const double> scores(h.token_log_probabilities);
  if (scores.empty()) return;
  for (std::size_t t = 0; t < scores.size(); ++t) {
    const std::int32_t id = t < h.ids.size() ? h.ids[t] : options_.search.end_id;
    translation.tokens.push_back({tokenizers_.target->token(id), scores[t]});
  }
  translation.words =
      word_confidences(*tokenizers_.target, ids, scores.first(h.ids.size()), options_.confidence);
  translation.confidence = sentence_confidence(translation.words);
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
  const std::vector<double> expected = detail::expected_utilities(candidates, weights, options_.utility);
  for (std::size_t i = 0; i < expected.size(); ++i) translations[i].expected_utility = expected[i];
  std::stable_sort(translations.begin(), translations.end(), [](const Translation& a, const Translation& b) {
    return a.expected_utility > b.expected_utility;
  });
}

EIGENFORMER_IO_INSTANCE(class TextTranslator<Seq2SeqTransformer<float>>)
EIGENFORMER_IO_INSTANCE(std::vector<std::string> translate(const LoadedModel<Seq2SeqTransformer<float>>&,
                                                           const std::vector<std::string>&))

}  // namespace eigenformer
