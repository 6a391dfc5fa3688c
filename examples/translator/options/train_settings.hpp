#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "corpus_options.hpp"
#include "default_model.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/train/options.hpp"
#include "option_flags.hpp"

namespace translator {

/// The options of one training.
struct TrainSettings {
  CorpusOptions corpus{};
  ef::Seq2SeqOptions model = default_model();  ///< with vocab_size for both vocabularies
  ef::TrainingOptions training{};

  /// Throws ValueError that names what is impossible.
  void validate() const;

  /// As the folder of the model keeps them beside the model's options.
  nlohmann::json to_json() const;
};

/// The flags of `translator train`: those of the fields of CorpusOptions, Seq2SeqOptions and TrainingOptions,
/// and the short ones --layers and --bf16.
class TrainFlags {
 public:
  explicit TrainFlags(CLI::App& command);
  TrainFlags(const TrainFlags&) = delete;
  TrainFlags& operator=(const TrainFlags&) = delete;

  /// The settings of a new training.
  TrainSettings settings() const;

  /// Those of a new training whose weights begin as those of a model: its options, but for dropout rates,
  /// and its vocabulary. Throws ValueError for what does not fit it.
  TrainSettings started_from(const ef::ModelDescription& start) const;

  /// Those of a new training whose model has the vocabulary of another one, its teacher. Throws ValueError
  /// for options of a new vocabulary.
  TrainSettings taught_by(const ef::ModelDescription& teacher) const;

  /// Those of a training that goes on: what it was started with, and on top what the command line says.
  /// Throws ValueError for what cannot change.
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

/// The settings of a model's folder: its model, and the rest from what to_json() wrote. Version 0.1.0 wrote
/// the model's options there too, some under their short names, and the schedule "noam" with the paper's
/// factor as the learning rate: it becomes the same curve by its peak.
TrainSettings saved_settings(const ef::Seq2SeqOptions& model, const nlohmann::json& saved);

}  // namespace translator
