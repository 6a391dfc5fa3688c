#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "corpus_options.hpp"
#include "default_model.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/train/options/options.hpp"
#include "eigenformer/train/plan.hpp"
#include "option_flags.hpp"

namespace translator {

/// The options of one training.
struct TrainSettings {
  CorpusOptions corpus{};
  ef::Seq2SeqOptions model = default_model();  ///< with vocab_size for both vocabularies, if it is given
  ef::TrainingOptions training{};

  /// Throws ValueError that names an invalid combination.
  void validate() const;

  /// The form in which the model folder stores it beside the model's options.
  nlohmann::json to_json() const;
};

/// The flags of `translator train`: the fields of CorpusOptions, Seq2SeqOptions and TrainingOptions, and the
/// short flags --layers and --bf16.
class TrainFlags {
 public:
  explicit TrainFlags(CLI::App& command);
  TrainFlags(const TrainFlags&) = delete;
  TrainFlags& operator=(const TrainFlags&) = delete;

  /// The settings of a new training.
  TrainSettings settings() const;

  /// The settings of a training that starts from a model's weights: the model's options, except dropout
  /// rates, and its vocabulary. Throws ValueError for options that conflict with the model.
  TrainSettings started_from(const ef::ModelDescription& start) const;

  /// The settings of a new model with the vocabulary of its teacher. Throws ValueError for options of a new
  /// vocabulary.
  TrainSettings taught_by(const ef::ModelDescription& teacher) const;

  /// Plans a new training for its pairs and the given limits: sets all options that are not given. model: the
  /// model's options with the sizes of its vocabularies. seconds: the time that is left of --minutes; 0: no
  /// limit. memory: the bytes that the process may use; 0: no limit. validates: whether there are validation
  /// pairs.
  ef::TrainingPlan plan(TrainSettings& settings, const ef::Seq2SeqOptions& model, const ef::PairSource& pairs,
                        double seconds, std::size_t memory, bool validates) const;

  /// The settings of a resumed training: the saved ones, overridden by the command line. Throws ValueError
  /// for options that cannot change.
  TrainSettings resumed(const ef::Seq2SeqOptions& model, const nlohmann::json& saved) const;

 private:
  void require_what_options_need(const TrainSettings& settings) const;
  void take_vocabulary(TrainSettings& settings, const ef::ModelDescription& model, const char* whose) const;
  nlohmann::json given_model() const;
  nlohmann::json given_training() const;

  OptionFlags<CorpusOptions> corpus_;
  OptionFlags<ef::Seq2SeqOptions> model_;
  OptionFlags<ef::TrainingOptions> training_;
  CLI::Option* layers_;
  CLI::Option* bf16_;
  CLI::Option* tying_;
  bool automatic_tying_ = true;
};

/// The settings of a model folder: the model's options, and the rest as written by to_json().
TrainSettings saved_settings(const ef::Seq2SeqOptions& model, const nlohmann::json& saved);

}  // namespace translator
