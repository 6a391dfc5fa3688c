#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "model/model_folder.hpp"

namespace translator {

namespace {

namespace fs = std::filesystem;
namespace ef = eigenformer;

struct InspectCommand {
  std::string folder;
  bool parameters = false;
  bool verify = false;
};

void print_options(const char* title, const nlohmann::json& options) {
  std::printf("\n%s\n", title);
  for (const auto& [name, value] : options.items()) {
    if (value.is_null() || value == "") continue;
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

int inspect(const InspectCommand& command) {
  const int verified = command.verify ? ef::verify_model_folder(command.folder) : 0;
  const ef::TranslationModel<float> loaded = ef::load_model_folder<float>(command.folder);
  const ef::ModelDescription& d = loaded.description;
  std::printf("model in %s: %s weights, format version %d, written by eigenformer %s\n",
              command.folder.c_str(), ef::weight_format_name(d.weights), d.format_version,
              d.library_version.c_str());
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
  if (!d.training.empty()) print_options("training options", d.training);
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
  CLI::App* sub = app.add_subcommand("inspect", "Shows a model's options, vocabulary, parameters and size");
  auto command = std::make_shared<InspectCommand>();
  sub->add_option("--model", command->folder, "model folder")->required();
  sub->add_flag("--parameters", command->parameters, "list every parameter");
  sub->add_flag("--verify", command->verify,
                "check the files against the checksums that were saved with them");
  sub->callback([&run, command] { run = [command] { return inspect(*command); }; });
}

}  // namespace translator
