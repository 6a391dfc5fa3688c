#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "terminal/status_line.hpp"
#include "translator/training/training_log.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;

struct InspectCommand {
  std::string folder;
  bool parameters = false;
  bool verify = false;
};

void print_options(const char* title, const nlohmann::json& options) {
  std::printf("\n%s\n", title);
  for (const auto& [name, value] : options.items()) {
    if (value.is_null() || ef::detail::is_text(value, "")) continue;
    std::printf("  %-26s %s\n", name.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

void print_vocabulary(const char* side, const ef::Tokenizer& tokenizer) {
  std::printf("  %-26s %lld entries, tokenizer %s:", side,
              static_cast<long long>(tokenizer.vocabulary_size()), tokenizer.kind().c_str());
  const ef::index_t shown = std::min<ef::index_t>(12, tokenizer.vocabulary_size());
  for (ef::index_t id = 0; id < shown; ++id)
    std::printf(" %s", tokenizer.token(static_cast<std::int32_t>(id)).c_str());
  std::printf("%s\n", shown < tokenizer.vocabulary_size() ? " ..." : "");
}

/// "encoder.layers.0.self_attn.in_proj_weight" belongs to "encoder.layers.0", "projection.bias" to
/// "projection".
std::string module_of(const std::string& parameter) {
  std::size_t end = parameter.find('.');
  if (parameter.compare(end, 8, ".layers.") == 0)
    end = parameter.find('.', end + 8);
  else if (std::count(parameter.begin(), parameter.end(), '.') > 1)
    end = parameter.find('.', end + 1);
  return parameter.substr(0, end);
}

void print_parameters(const ef::Seq2SeqTransformer<float>& model) {
  std::vector<std::pair<std::string, ef::index_t>> modules;
  std::vector<std::string> tied;
  for (const auto& entry : ef::state_dict(model)) {
    if (!entry.alias_of.empty()) {
      tied.push_back(entry.name + " is " + entry.alias_of);
      continue;
    }
    const std::string module = module_of(entry.name);
    if (modules.empty() || modules.back().first != module) modules.emplace_back(module, 0);
    modules.back().second += entry.value.numel();
  }
  std::printf("\nparameters\n");
  for (const auto& [name, values] : modules)
    std::printf("  %-26s %12lld\n", name.c_str(), static_cast<long long>(values));
  std::printf("  %-26s %12lld\n", "total", static_cast<long long>(ef::count_parameters(model)));
  for (const std::string& line : tied) std::printf("  %s\n", line.c_str());
}

void print_files(const fs::path& folder) {
  std::printf("\nfiles\n");
  std::uintmax_t total = 0;
  std::vector<std::pair<fs::path, std::uintmax_t>> files;
  // While the model is trained, files appear and disappear; hidden ones are being written.
  std::error_code gone;
  for (fs::recursive_directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with('.')) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored)) {
      const std::uintmax_t bytes = it->file_size(ignored);
      if (!ignored) files.emplace_back(it->path(), bytes);
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& [path, bytes] : files) {
    total += bytes;
    std::printf("  %-26s %12.3f MB\n", fs::relative(path, folder).c_str(), static_cast<double>(bytes) / 1e6);
  }
  std::printf("  %-26s %12.3f MB\n", "total", static_cast<double>(total) / 1e6);
}

/// What the folder's log says about its training; nothing without a log. A damaged end of it is ignored.
void print_training(const fs::path& folder, const nlohmann::json& options) {
  if (!options.empty()) print_options("training options", options);
  const fs::path file = ef::training_log_file(folder);
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return;
  ef::index_t updates = 0, pairs = 0;
  double seconds = 0;
  nlohmann::json best;
  for (const nlohmann::json& line : ef::parse_training_log(ef::detail::read_text_file(file)).lines) {
    updates = line.at("step").get<ef::index_t>();
    seconds = line.at("seconds").get<double>();
    if (ef::detail::is_text(line.at("event"), "start") && line.contains("pairs") &&
        line.at("pairs").is_number_integer())
      pairs = line.at("pairs").get<ef::index_t>();
    if (ef::detail::is_text(line.at("event"), "validation") && line.contains("best") &&
        line.at("best") == true)
      best = line;
  }
  std::printf("\ntraining\n  %-26s %lld\n", "updates", static_cast<long long>(updates));
  std::printf("  %-26s %.1f\n", "minutes", seconds / 60);
  if (pairs > 0) std::printf("  %-26s %lld\n", "sentence pairs", static_cast<long long>(pairs));
  if (!best.is_object() || !best.contains("measures") || !best.at("measures").is_object()) return;
  std::string measures;
  for (const auto& [name, value] : best.at("measures").items()) {
    if (value.is_number()) measures += format("%s %.4g, ", name.c_str(), value.get<double>());
  }
  std::printf("  %-26s %safter update %lld\n", "best validation", measures.c_str(),
              static_cast<long long>(best.at("step").get<ef::index_t>()));
}

int inspect_adapter(const InspectCommand& command) {
  if (command.verify) {
    throw ef::ValueError("inspect", {"'", command.folder,
                                     "' holds an adapter, which has no checksums; --verify is for models"});
  }
  const ef::AdapterDescription d = ef::read_adapter_description(command.folder);
  const auto config =
      ef::detail::read_peft_config(ef::detail::folder_file(command.folder, "adapter_config.json"));
  const auto file =
      ef::SafetensorsFile::open(ef::detail::folder_file(command.folder, "adapter_model.safetensors"));
  std::printf("adapter in %s for the model in %s\n\nadapter\n", command.folder.c_str(), d.base.c_str());
  ef::index_t values = 0;
  std::map<ef::index_t, int> ranks;
  for (const ef::TensorInfo& info : file.infos()) {
    values += info.shape.numel();
    if (info.name.ends_with(".lora_A.weight") && info.shape.rank() == 2) ++ranks[info.shape[0]];
  }
  for (const auto& [rank, matrices] : ranks)
    std::printf("  %-26s %lld, of %d matrices\n", "rank", static_cast<long long>(rank), matrices);
  std::printf("  %-26s %g%s\n", "alpha", config.alpha,
              config.alphas.empty() ? "" : ", others for some matrices");
  for (const std::string& module : config.target_modules)
    std::printf("  %-26s %s\n", "target module", module.c_str());
  std::printf("  %-26s %lld\n", "parameters", static_cast<long long>(values));
  if (!d.fingerprint.empty()) std::printf("  %-26s %s\n", "hash of the base", d.fingerprint.c_str());
  print_training(command.folder, d.training);
  if (command.parameters) {
    std::printf("\nparameters\n");
    for (const ef::TensorInfo& info : file.infos())
      std::printf("  %s %s\n", info.name.c_str(), info.shape.str().c_str());
  }
  print_files(command.folder);
  return 0;
}

int inspect(const InspectCommand& command) {
  if (ef::is_adapter_folder(command.folder) && !ef::is_model_folder(command.folder))
    return inspect_adapter(command);
  const int verified = command.verify ? ef::verify_model_folder(command.folder) : 0;
  const ef::TranslationModel<float> loaded = ef::load_model_folder<float>(command.folder);
  const ef::ModelDescription& d = loaded.description;
  std::printf("model in %s: %s weights, written by eigenformer %s\n", command.folder.c_str(),
              ef::word_of(d.weights), d.library_version.c_str());
  print_options("model", ef::options_to_json(d.model));
  std::printf("\nvocabulary\n");
  if (!loaded.tokenizers.source) {
    std::printf("  none: the model was saved without a tokenizer\n");
  } else if (loaded.tokenizers.joint()) {
    print_vocabulary("both languages", *loaded.tokenizers.source);
  } else {
    print_vocabulary("source", *loaded.tokenizers.source);
    print_vocabulary("target", *loaded.tokenizers.target);
  }
  print_training(command.folder, d.training);
  if (command.parameters) {
    std::printf("\n%s", ef::summary(loaded.model).c_str());
  } else {
    print_parameters(loaded.model);
  }
  print_files(command.folder);
  if (command.verify) std::printf("\n%d files match their checksums\n", verified);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  const auto [sub, command] = add_command(
      app, run, "inspect",
      "Shows the options, vocabulary, parameters, training and size of a model or an adapter", inspect);
  sub->add_option("--model", command->folder, "folder of a model or an adapter")->required();
  sub->add_flag("--parameters", command->parameters, "list every parameter");
  sub->add_flag("--verify", command->verify,
                "check the files against the checksums that were saved with them");
}

}  // namespace translator
