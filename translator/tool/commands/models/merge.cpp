#include <cstdio>
#include <string>

#include "commands.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "model/confidence_file.hpp"
#include "terminal/output_checks.hpp"
#include "translator/serving/adapted_model.hpp"
#include "translator/training/training_lock.hpp"

namespace translator {

namespace {

struct MergeCommand {
  std::string folder, adapter, output;
  bool overwrite = false;
};

int merge(const MergeCommand& command) {
  require_new_model_folder("merge", command.output, "--output", command.overwrite,
                           {command.folder, command.adapter}, "an input of the merge");
  const ef::TrainingLock lock(command.output);
  const auto loaded = ef::load_merged_model(command.folder, command.adapter);
  const ef::WeightFormat format = loaded.description.weights;
  ef::save_model_folder(command.output, loaded, format);
  remove_confidence(command.output);
  std::printf("%s: the model in '%s' with the adapter in '%s', %s weights\n", command.output.c_str(),
              command.folder.c_str(), command.adapter.c_str(), ef::word_of(format));
  return 0;
}

}  // namespace

void add_merge(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "merge",
      "Merges a LoRA adapter into a model's weights and writes a model folder that needs no adapter", merge);
  sub->add_option("--model", command->folder, "model folder")->required();
  sub->add_option("--adapter", command->adapter,
                  "adapter folder, written by translator train --lora-rank or by PEFT")
      ->required();
  sub->add_option("--output", command->output, "model folder to write")->required();
  sub->add_flag("--overwrite", command->overwrite, "replace an existing model in the output folder");
  sub->footer(
      "The weights keep the model's format, float32 or bf16. An adapter cannot be merged into int8 weights.");
}

}  // namespace translator
