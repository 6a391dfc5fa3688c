#include "train_settings.hpp"

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>
#include <variant>

#include "eigenformer/data/corpus/conventions.hpp"

namespace translator {

namespace {

// "d_model" -> "--d-model"
std::string flag(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

}  // namespace

ef::Seq2SeqOptions TrainSettings::model(ef::index_t source_size, ef::index_t target_size) const {
  ef::Seq2SeqOptions o;
  o.source_vocab_size = source_size;
  o.target_vocab_size = target_size;
  o.encoder.num_layers = o.decoder.num_layers = layers;
  o.embedding_norm = embedding_norm;
  ef::LayerOptions& layer = o.layer;
  layer.d_model = d_model;
  layer.num_heads = heads;
  layer.dim_feedforward = ff;
  layer.dropout = {dropout};
  layer.norm_first = pre_norm;
  layer.norm.kind = norm;
  layer.sandwich_norm = sandwich_norm;
  layer.activation = activation;
  layer.gated = gated;
  layer.attention = attention;
  layer.layer_drop = layer_drop;
  layer.num_key_value_heads = kv_heads;
  layer.head_dim = head_dim;
  layer.attention_window = window;
  if (qk_norm) layer.query_key_norm = qk_norm_kind;
  // One name for positions that are added to the inputs and for those that act in attention, as in files.
  const auto named = ef::options_from_json<ef::Seq2SeqOptions>(
      {{"positions", positions == "relative" ? "relative_bias" : positions}});
  o.positions = named.positions;
  layer.positions = named.layer.positions;
  o.max_length = std::holds_alternative<ef::LearnedPositions>(o.added_positions())
                     ? ef::num_positions(max_length)
                     : max_length;
  if (tie == "auto") {
    o.tying = separate_vocab ? ef::Tying::target : ef::Tying::all;
  } else {
    ef::detail::option_from_json("tie", tie, o.tying);
  }
  return o;
}

void TrainSettings::validate() const {
  if (tsv.empty() == (source.empty() || target.empty()) ||
      (!tsv.empty() && !(source.empty() && target.empty()))) {
    throw ef::ValueError("train", "give --source and --target, or --tsv in place of both");
  }
  if (valid_source.empty() != valid_target.empty()) {
    throw ef::ValueError("train", "give both of --valid-source and --valid-target, or none");
  }
  if (tokenizer != "char" && tokenizer != "word" && tokenizer != "subword") {
    throw ef::ValueError("train", "tokenizer is '" + tokenizer + "', must be char, word or subword");
  }
  const auto at_least = [](const char* name, ef::index_t value, ef::index_t least) {
    if (value >= least) return;
    throw ef::ValueError("train", std::string(name) + " is " + std::to_string(value) + ", must be at least " +
                                      std::to_string(least));
  };
  at_least("vocab_size", vocab_size, 5);
  at_least("max_length", max_length, 1);
  if (separate_vocab && tie == "all") {
    throw ef::ValueError("train",
                         "--tie all needs one vocabulary for both languages: leave out --separate-vocab");
  }
  model(vocab_size, vocab_size).validate("train");
  training.validate();
}

void add_options(CLI::App& command, TrainSettings& settings) {
  visit_train_options(settings, [&](const char* name, auto& field, Change, const char* help) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::same_as<Field, bool>) {
      command.add_flag(flag(name), field, help);
    } else if constexpr (std::is_enum_v<Field>) {
      command
          .add_option_function<std::string>(
              flag(name),
              [&field, name](std::string word) {
                // The curve of Vaswani et al. 2017 is the same, whatever its peak.
                if (std::same_as<Field, ef::ScheduleKind> && word == "noam") word = "inverse-sqrt";
                ef::detail::option_from_json(name, word, field);
              },
              help)
          ->default_str(ef::EnumNames<Field>::names[static_cast<std::size_t>(field)]);
    } else {
      auto* option = command.add_option(flag(name), field, help);
      if constexpr (std::same_as<Field, std::string>) {
        if (!field.empty()) option->capture_default_str();
      } else {
        option->capture_default_str();
      }
    }
  });
}

TrainSettings saved_settings(nlohmann::json saved) {
  const bool noam = saved.contains("schedule") && saved.at("schedule") == "noam";
  if (noam) saved["schedule"] = "inverse-sqrt";
  auto settings = ef::options_from_json<TrainSettings>(saved);
  if (noam) {
    ef::TrainingOptions& t = settings.training;
    t.warmup = std::max<ef::index_t>(t.warmup, 1);
    t.learning_rate = ef::schedule::noam_peak(settings.d_model, t.warmup, t.learning_rate);
  }
  return settings;
}

TrainSettings resumed_settings(const CLI::App& command, const TrainSettings& given,
                               const nlohmann::json& saved) {
  nlohmann::json merged = ef::options_to_json(saved_settings(saved));
  const nlohmann::json now = ef::options_to_json(given);
  visit_train_options(given, [&](const char* name, const auto&, Change change, const char*) {
    if (command.count(flag(name)) == 0) return;
    if (change == Change::never && saved.contains(name) && saved.at(name) != now.at(name)) {
      throw ef::ValueError("train", flag(name) + " " + now.at(name).dump() +
                                        " cannot change when a training goes on; it was " +
                                        saved.at(name).dump());
    }
    merged[name] = now.at(name);
  });
  return ef::options_from_json<TrainSettings>(merged);
}

}  // namespace translator
