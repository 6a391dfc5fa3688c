#include <cstdio>
#include <filesystem>
#include <string>

#include "command_line/checks.hpp"
#include "commands.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "model/confidence_file.hpp"
#include "terminal/output_checks.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;

struct ImportCommand {
  std::string from, folder;
  std::string format;  // empty: int8 for an int8 model of Marian, else float32
  ef::ImportOptions options;
  bool overwrite = false;
};

/// Ends an import whose model was saved, and returns the exit code.
int report_imported(const ImportCommand& command, const ef::TranslationModel<float>& imported) {
  remove_confidence(command.folder);
  const ef::Seq2SeqOptions& o = imported.description.model;
  std::printf("%s: %lld + %lld layers of width %lld, %lld parameters, tokenizer %s\n", command.folder.c_str(),
              static_cast<long long>(o.encoder.num_layers), static_cast<long long>(o.decoder.num_layers),
              static_cast<long long>(o.layer.d_model),
              static_cast<long long>(ef::count_parameters(imported.model)),
              imported.description.tokenizer.c_str());
  return 0;
}

int import_model(const ImportCommand& command) {
  const bool marian = ef::detail::is_marian_checkpoint(command.from);
  ef::WeightFormat format = marian && command.format.empty() && ef::detail::is_marian_int8(command.from)
                                ? ef::WeightFormat::int8
                                : ef::WeightFormat::float32;
  if (!command.format.empty()) ef::detail::option_from_json("weights", command.format, format);
  require_new_model_folder("import", command.folder, "--model", command.overwrite, {command.from},
                           "the checkpoint folder");
  ef::ImportOptions options = command.options;
  options.warn = [](const std::string& what) {
    std::fprintf(stderr, "translator: warning: %s\n", what.c_str());
  };
  const nlohmann::json origin = {{"imported_from", fs::path(command.from).filename().string()}};
  if (marian && format == ef::WeightFormat::int8) {
    const auto model = ef::import_marian_int8(command.from, options);
    ef::save_packed_folder(command.folder, model, origin);
    return report_imported(command, model.loaded);
  }
  const ef::TranslationModel<float> model = ef::import_checkpoint<float>(command.from, options);
  ef::save_model_folder(command.folder, model.model, model.tokenizers, origin, format,
                        model.description.text);
  return report_imported(command, model);
}

}  // namespace

void add_import(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "import",
      "Makes a model folder from a checkpoint of Marian, CTranslate2 or Hugging Face's transformers",
      import_model);
  sub->add_option("--from", command->from,
                  "checkpoint folder: of CTranslate2 (model.bin and vocabularies) or Hugging Face "
                  "(config.json, model.safetensors and tokenizer files); or a Marian model (.bin) with its "
                  "vocabularies (.spm) in the same folder")
      ->required();
  sub->add_option("--model", command->folder, "model folder to write")->required();
  sub->add_option("--source-language", command->options.source_language,
                  "source language of a multilingual model, as in its vocabulary, such as eng_Latn");
  sub->add_option("--target-language", command->options.target_language,
                  "target language of a multilingual model");
  sub->add_option("--prefix", command->options.source_text,
                  "text added before each line, such as T5's \"translate English to German: \"");
  sub->add_option("--weights", command->format,
                  "format of the weights: float32, bf16 or int8; not given: int8 for an int8 model of "
                  "Marian, else float32")
      ->check(one_of({"float32", "bf16", "int8"}));
  sub->add_flag("--overwrite", command->overwrite, "replace an existing model in the folder");
}

}  // namespace translator
