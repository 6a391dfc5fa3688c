#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_line/checks.hpp"
#include "eigenformer/data/corpus/shortlist.hpp"
#include "model/decoding_model.hpp"
#include "option_flags.hpp"
#include "terminal/threads.hpp"

namespace translator {

/// Gives an option one value at a time. several: whether it may be repeated.
inline CLI::Option* one_at_a_time(CLI::Option* option, bool several = true) {
  return option->expected(1)->allow_extra_args(false)->multi_option_policy(
      several ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
}

/// Adds --model and --adapter. several: whether --model may be repeated.
inline void add_models(CLI::App& app, std::vector<std::string>& folders, std::string& adapter, bool several) {
  const char* const help =
      several ? "model folder; repeat for an ensemble, which averages the probabilities of its models"
              : "model folder";
  one_at_a_time(app.add_option("--model", folders, help), several)->required();
  app.add_option("--adapter", adapter,
                 "folder of a LoRA adapter for the model, written by translator train or PEFT; it is merged "
                 "into the weights in memory");
}

/// Adds --target-language.
inline void add_target_language(CLI::App& app, std::string& language) {
  app.add_option("--target-language", language,
                 "target language, such as de, of a model that was trained with several");
}

/// Adds --threads.
inline void add_threads(CLI::App& app, ef::index_t& threads) {
  app.add_option("--threads", threads, "number of threads; 0: one per core")
      ->capture_default_str()
      ->group("Batches");
}

/// The flags that say how lines are split into sentences.
class SplittingFlags {
 public:
  /// Adds --split-sentences and --no-split-sentences, and --language for commands whose models have no names
  /// of languages.
  void add_to(CLI::App& app, bool with_language = true) {
    constexpr const char* group = "Paragraphs";
    CLI::Option* const split =
        app.add_flag(
               "--split-sentences", splits_,
               "treat lines as paragraphs, whatever the model was trained on: translate their sentences "
               "one by one and keep all white space around them")
            ->group(group);
    CLI::Option* const whole =
        app.add_flag("--no-split-sentences", keeps_,
                     "translate lines whole; not given: lines of several sentences are split if the model "
                     "was trained on single sentences")
            ->group(group)
            ->excludes(split);
    if (!with_language) return;
    app.add_option("--language", language_,
                   "language of the input, such as en or deu_Latn, for the rules and abbreviations that "
                   "decide where sentences end; not given: the model's source language, if it names one, or "
                   "else rules for any language")
        ->group(group)
        ->excludes(whole);
  }

  /// How lines are split for a model. language: instead of --language. Throws ValueError for an unknown
  /// language, for --split-sentences without ICU, and for --language if lines are not split.
  ef::DocumentOptions splitting(ef::TextConventions text, const ef::Tokenizer& tokenizer,
                                const std::string& language = {}) const {
    // Throws: this program was built without ICU.
    if ((splits_ || !language_.empty()) && !ef::SentenceSplitter::available())
      (void)ef::SentenceSplitter(ef::SentenceOptions{});
    if (splits_ || keeps_) text.lines_are_sentences = splits_;
    ef::DocumentOptions options =
        ef::line_splitting(text, tokenizer, language_.empty() ? language : language_);
    if (splits_) options.layout = ef::DocumentLayout::paragraphs;
    if (!language_.empty() && options.splitter == nullptr) {
      throw ef::ValueError("translate",
                           "--language has no effect: the model was trained on lines of several sentences, "
                           "so lines are not split; give --split-sentences to split them");
    }
    return options;
  }

 private:
  bool splits_ = false, keeps_ = false;
  std::string language_;
};

/// The default of how attention gives an alignment: the layer and head that guided alignment trained, if any.
inline ef::AlignmentOptions guided_alignment_options(const DecodingModels& models) {
  ef::AlignmentOptions options;
  const nlohmann::json& training = models.first().loaded.description.training;
  if (!training.is_object() || training.value("guided_alignment", "").empty()) return options;
  options.layer = training.value("guided_alignment_layer", options.layer);
  options.head = training.value("guided_alignment_head", options.head);
  return options;
}

/// Accepts the rows of SearchOptions that are flags. n_best: whether more than the best translation is of
/// use.
inline auto search_rows(bool n_best) {
  return [n_best](const OptionRow& row) {
    return !is_among(row.name, decoding_fields_without_flag) && (n_best || row.name != "num_hypotheses");
  };
}

/// The options shared by all commands that translate: model, search and batches.
class DecodingCommand {
 public:
  std::vector<std::string> folders;
  std::string adapter, target_language;

  /// more_models: whether ensembles are supported. n_best: whether the command can use more than the best
  /// translation.
  void add_to(CLI::App& app, bool more_models = true, bool n_best = false) {
    add_models(app, folders, adapter, more_models);
    add_target_language(app, target_language);
    search_.emplace(app, ef::SearchOptions{}, "Search; imported models bring their own defaults",
                    search_rows(n_best));
    app.add_option(
           "--shortlist", shortlist_,
           "lexical shortlist (Marian's lex.s2t.bin, or from translator shortlist): score only likely words")
        ->group("Search; imported models bring their own defaults");
    app.add_option(
           "--unknown", unknown_,
           "unknown tokens in a translation: keep (each reads U+2047) or drop; not given: keep, or drop "
           "for a model of transformers, as it does")
        ->check(one_of({"keep", "drop"}))
        ->group("Search; imported models bring their own defaults");
    batching_.emplace(app, ef::BatchSearchOptions{}, "Batches");
    splitting_.add_to(app);
    add_threads(app, threads_);
  }

  /// Adds --sample and the fields of sampling.
  void add_sampling_to(CLI::App& app, CLI::Option* attention) {
    constexpr const char* group = "Sampling";
    sample_ = app.add_flag("--sample", samples_, "sample translations instead of beam search")->group(group);
    for (const char* name :
         {"--beam", "--length-penalty", "--rule", "--early-stopping", "--force-end", "--coverage-penalty",
          "--beam-groups", "--diversity-penalty", "--word-penalty", "--patience", "--shortlist"})
      sample_->excludes(app.get_option(name));
    sample_->excludes(attention);
    sampling_.emplace(app, ef::Sampling{}, group);
    for (CLI::Option* option : app.get_options()) {
      if (option->get_group() == group && option != sample_) option->needs(sample_);
    }
  }

  /// The library's options for a model. Throws ValueError for a beam that would take too much memory.
  ef::TextTranslatorOptions for_models(const DecodingModels& models) const {
    ef::TextTranslatorOptions options = ef::text_translator_options(models.description());
    options.confidence = models.confidence();
    options.search = search_->applied("search", options.search);
    options.batching = batching_->applied("search");
    options.splitting = splitting_.splitting(models.description().text, *models.tokenizers().source);
    if (!unknown_.empty()) ef::detail::option_from_json("unknown", unknown_, options.unknown.emplace());
    // Each hypothesis takes memory, and the first step has at most one per vocabulary entry.
    const ef::index_t most = std::min<ef::index_t>(4096, models.tokenizers().target->vocabulary_size());
    const ef::index_t beam = options.search.beam_size;
    if (search_->given().contains("beam_size") && beam > most) {
      throw ef::ValueError("search", {"beam_size is ", beam, ", must be at most ", most,
                                      (most < 4096 ? ", the size of the vocabulary" : "")});
    }
    if (!shortlist_.empty()) options.search.shortlist = load_shortlist(models.tokenizers());
    if (samples_) options.search.sampling = sampling_->applied("sampling");
    return options;
  }

  void set_threads() const { translator::set_threads(threads_); }

  const std::string& shortlist_file() const { return shortlist_; }

 private:
  std::shared_ptr<const ef::Shortlist> load_shortlist(const ef::TokenizerPair& tokenizers) const {
    const ef::Shortlist read = ef::Shortlist::load(shortlist_);
    const ef::index_t size = tokenizers.source->vocabulary_size();
    if (read.source_size() > size) {
      throw ef::ValueError("shortlist", {"'", shortlist_, "' has lists for ", read.source_size(),
                                         " source ids, must have as many as the model, ", size});
    }
    return std::make_shared<const ef::Shortlist>(read.with_source_ids(tokenizers.joint()));
  }

  std::optional<OptionFlags<ef::SearchOptions>> search_;
  std::optional<OptionFlags<ef::BatchSearchOptions>> batching_;
  std::optional<OptionFlags<ef::Sampling>> sampling_;
  SplittingFlags splitting_;
  std::string shortlist_, unknown_;
  CLI::Option* sample_ = nullptr;
  bool samples_ = false;
  ef::index_t threads_ = 0;
};

}  // namespace translator
