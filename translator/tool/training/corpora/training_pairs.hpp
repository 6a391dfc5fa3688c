#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/sampling/mixture.hpp"
#include "eigenformer/data/sampling/sampled_corpus.hpp"
#include "eigenformer/train/validation/validation.hpp"
#include "options/train_settings.hpp"
#include "training/corpora/training_corpora.hpp"

namespace translator {

/// The conventions of a training whose corpora may have target languages and tags: those of the model it
/// starts from, with these languages. Throws ValueError for a tag that is not in the vocabulary.
inline ef::ModelConventions conventions_of(const std::vector<TextCorpus>& corpora,
                                           const ef::TokenizerPair& tokenizers, ef::ModelConventions text) {
  for (const std::string& tag : all_tags(corpora)) {
    const auto id = ef::find_token(*tokenizers.source, tag);
    if (!id) {
      throw ef::ValueError(
          "train",
          {"the vocabulary has no token '", tag,
           "', which a corpus needs; train a new vocabulary from text, or prepare the corpus again with "
           "--tags"});
    }
    if (tokenizers.joint() &&
        std::find(text.forbidden_ids.begin(), text.forbidden_ids.end(), *id) == text.forbidden_ids.end())
      text.forbidden_ids.push_back(*id);
    for (const TextCorpus& corpus : corpora) {
      const CorpusEntry& entry = corpus.entry;
      if (entry.target_language.empty() || entry.tags()[0] != tag) continue;
      const auto known = [&](const ef::TargetLanguage& k) { return k.name == entry.target_language; };
      if (std::none_of(text.target_languages.begin(), text.target_languages.end(), known))
        text.target_languages.push_back({entry.target_language, *id});
    }
  }
  return text;
}

/// The pairs of a training or a validation: one corpus, or a mixture of several with each one's tokens around
/// its sentences.
class TrainingPairs {
 public:
  /// sides: &TextCorpus::train or &TextCorpus::validation; corpora without pairs are skipped. description:
  /// its text is that of conventions_of(). room: maximum tokens of a side, besides the limits of the model.
  /// The text of training corpora is moved into them if segmentations are sampled.
  TrainingPairs(std::vector<TextCorpus>& corpora, ef::ParallelCorpus TextCorpus::*side,
                const TrainSettings& s, const ef::TokenizerPair& tokenizers,
                const ef::ModelDescription& description, ef::index_t room, TerminalProgress& progress) {
    const ef::ModelConventions& text = description.text;
    const bool trains = side == &TextCorpus::train;
    std::vector<ef::MixturePart> parts;
    std::vector<std::string> names;
    for (TextCorpus& corpus : corpora) {
      ef::ParallelCorpus& pairs = corpus.*side;
      const ef::PreparedCorpus* prepared = trains ? corpus.prepared.get() : nullptr;
      if (prepared == nullptr && pairs.size() == 0) continue;
      ef::ModelConventions own = text_of(corpus.entry, tokenizers, text);
      ef::ModelDescription with_own = description;
      with_own.text = own;
      const ef::index_t most = std::min(room, most_tokens(s.corpus, with_own));
      const auto number = static_cast<std::uint64_t>(parts.size());
      if (prepared != nullptr) {
        if (ef::detail::tokenizer_fingerprint(tokenizers) != prepared->pairs->tokenizers()) {
          throw ef::ValueError("train", {"the corpus in ", corpus.entry.name(),
                                         " was prepared with other tokenizers than those of the model"});
        }
        if (prepared->description.max_length > most) {
          throw ef::ValueError(
              "train", {"the corpus in '", corpus.entry.data, "' was prepared with sentences of up to ",
                        prepared->description.max_length, " tokens, but the model has room for ", most,
                        "; prepare it again with --max-length ", most});
        }
        prepared_.push_back(corpus.prepared);
      } else if (trains && s.corpus.sampling.on()) {
        auto drawn = std::make_unique<ef::SampledCorpus>(std::move(pairs), tokenizers, s.corpus.sampling,
                                                         s.training.loop.seed + (number << 32), most, own);
        say(drawn->plain(), trains, progress);
        sources_.push_back(std::move(drawn));
      } else {
        auto plain = std::make_unique<ef::EncodedCorpus>(ef::encode_corpus(pairs, tokenizers, own, most));
        say(*plain, trains, progress);
        single_ = plain.get();
        sources_.push_back(std::move(plain));
      }
      names.push_back(corpus.entry.name());
      if (!trains) texts_.push_back({pairs, own});
      const ef::PairSource* source = prepared ? prepared->pairs.get() : sources_.back().get();
      parts.push_back({source, trains ? corpus.entry.weight : 0, std::move(own)});
    }
    if (parts.empty()) return;
    pairs_ = parts[0].source;
    if (parts.size() == 1 && *parts[0].text == text) return;
    if (trains && parts.size() == 1) parts[0].weight = 0;
    mixture_.emplace(parts, ef::MixtureOptions{.temperature = trains ? s.corpus.corpus_temperature : 1,
                                               .shuffle = trains,
                                               .seed = s.training.loop.seed});
    pairs_ = &*mixture_;
    single_ = nullptr;
    if (!trains || parts.size() == 1) return;
    std::string shares;
    for (std::size_t k = 0; k < names.size(); ++k)
      shares += (k == 0 ? "" : ", ") + std::to_string(mixture_->pairs_of(k)) + " of " + names[k];
    progress.say("an epoch has " + counted(mixture_->size(), "pair") + ": " + shares);
  }
  TrainingPairs(const TrainingPairs&) = delete;
  TrainingPairs& operator=(const TrainingPairs&) = delete;

  /// Null without pairs.
  const ef::PairSource* pairs() const { return pairs_; }
  /// The text of validation pairs, including their prefixes.
  const std::vector<ef::ValidationText>& texts() const { return texts_; }
  /// The corpus itself if there is only one, without additions; else null.
  ef::EncodedCorpus* single() const { return single_; }

 private:
  static ef::ModelConventions in_language(const ef::ModelConventions& text, const CorpusEntry& entry) {
    try {
      return ef::with_target_language(text, entry.target_language);
    } catch (const ef::ValueError& error) {
      throw ef::ValueError("train", {ef::detail::message_of(error),
                                     "; give the corpus its target_language in a list of --corpora"});
    }
  }
  static ef::ModelConventions text_of(const CorpusEntry& entry, const ef::TokenizerPair& tokenizers,
                                      const ef::ModelConventions& text) {
    ef::ModelConventions own = in_language(text, entry);
    if (!entry.tag.empty()) own.source_prefix.push_back(*ef::find_token(*tokenizers.source, entry.tag));
    return own;
  }
  static void say(const ef::EncodedCorpus& encoded, bool trains, TerminalProgress& progress) {
    progress.say(
        format("%s: %s, %lld source and %lld target tokens", trains ? "training on" : "validating on",
               counted(encoded.size(), "pair").c_str(), static_cast<long long>(encoded.source.tokens()),
               static_cast<long long>(encoded.target.tokens())) +
        (encoded.report.over_long > 0 ? ", " + std::to_string(encoded.report.over_long) + " over-long dropped"
                                      : ""));
  }

  std::vector<std::shared_ptr<const ef::PreparedCorpus>> prepared_;
  std::vector<std::unique_ptr<ef::PairSource>> sources_;
  std::optional<ef::Mixture> mixture_;
  std::vector<ef::ValidationText> texts_;
  const ef::PairSource* pairs_ = nullptr;
  ef::EncodedCorpus* single_ = nullptr;
};

}  // namespace translator
