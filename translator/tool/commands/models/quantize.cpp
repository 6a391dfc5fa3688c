#include <cstdio>
#include <filesystem>
#include <string>

#include "command_line/checks.hpp"
#include "commands.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "model/confidence_file.hpp"
#include "terminal/output_checks.hpp"
#include "translator/training/training_lock.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;

struct QuantizeCommand {
  std::string folder, output;
  std::string format = "int8";
  bool overwrite = false;
};

fs::path output_folder(const QuantizeCommand& command) {
  if (!command.output.empty()) return command.output;
  fs::path folder = fs::path(command.folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "model/"
  return folder.string() + "-" + command.format;
}

double megabytes(const fs::path& folder) {
  return static_cast<double>(fs::file_size(ef::detail::folder_file(folder, "model.safetensors"))) / 1e6;
}

int quantize(const QuantizeCommand& command) {
  ef::WeightFormat format{};
  ef::detail::option_from_json("to", command.format, format);
  const ef::WeightFormat before = ef::read_model_description(command.folder).weights;
  if (before != ef::WeightFormat::float32) {
    throw ef::ValueError("quantize", {"'", command.folder, "' has ", ef::word_of(before),
                                      " weights already; give the float32 model that it was made from"});
  }
  const fs::path output = output_folder(command);
  require_new_model_folder("quantize", output, "--output", command.overwrite, {command.folder},
                           "the model to quantize");
  const ef::TrainingLock lock(output);
  const ef::TranslationModel<float> loaded = ef::load_model_folder<float>(command.folder);
  ef::save_model_folder(output, loaded, format);
  remove_confidence(output.string());
  std::printf("%s: %s weights, %.3f MB (float32: %.3f MB)\n", output.c_str(), command.format.c_str(),
              megabytes(output), megabytes(command.folder));
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Run& run) {
  const auto [sub, command] =
      add_command(app, run, "quantize",
                  "Writes a smaller and faster copy of a model with int8 or bf16 weights", quantize);
  sub->add_option("--model", command->folder, "model folder")->required();
  sub->add_option("--to", command->format,
                  "format of the weights: int8 (a quarter of the size) or bf16 (half the size)")
      ->required()
      ->check(one_of({"int8", "bf16"}));
  sub->add_option("--output", command->output,
                  "model folder to write; not given: the name of the model folder with -int8 or -bf16 added");
  sub->add_flag("--overwrite", command->overwrite, "replace an existing model in the output folder");
  sub->footer(
      "The copy translates like any model, but cannot be trained. translator compare measures the loss of "
      "quality.");
}

}  // namespace translator
