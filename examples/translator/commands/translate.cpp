#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "model/decoding_model.hpp"
#include "options/decoding_options.hpp"
#include "terminal/line_reader.hpp"
#include "terminal/output_checks.hpp"

namespace translator {

namespace {

struct TranslateCommand : DecodingCommand {
  std::string input, output, attention;
};

/// Collects attention weights as tensors named "<line>.<source, target or memory>.<layer>", (heads, queries,
/// keys).
class AttentionFile {
 public:
  /// Throws IoError where the file cannot be written.
  explicit AttentionFile(std::string path) : path_(std::move(path)) {
    if (wanted()) check_writable_file(path_);
  }

  bool wanted() const { return !path_.empty(); }

  void add(std::size_t line, const ef::AttentionMaps& maps) {
    const auto add_layers = [&](const char* kind, const std::vector<ef::Tensor<float>>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i)
        tensors_.emplace_back(std::to_string(line) + "." + kind + "." + std::to_string(i), layers[i]);
    };
    add_layers("source", maps.source);
    add_layers("target", maps.target);
    add_layers("memory", maps.memory);
  }

  void finish() const {
    if (wanted()) ef::save_safetensors(path_, tensors_);
  }

 private:
  std::string path_;
  std::vector<std::pair<std::string, ef::Tensor<float>>> tensors_;
};

/// Takes translations: to stdout line by line, or to a file that appears when all is done.
class Output {
 public:
  explicit Output(const std::string& path) {
    if (path.empty()) return;
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      stream_ = std::fopen(path.c_str(), "wb");  // a device or a pipe
      if (stream_ == nullptr) refuse();
    } else {
      file_.emplace(path);
    }
  }
  ~Output() {
    if (stream_ != stdout && stream_ != nullptr) std::fclose(stream_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) (text += line) += '\n';
    if (file_) {
      file_->write(text);
    } else if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size() ||
               std::fflush(stream_) != 0) {
      refuse();
    }
  }

  /// Whether what was translated is lost when finish() is not reached.
  bool appears_at_the_end() const { return file_.has_value(); }

  void finish() {
    if (file_) file_->commit();
  }

 private:
  [[noreturn]] static void refuse() {
    throw ef::IoError("translate", "cannot write the translations: " + ef::detail::errno_text(errno));
  }

  std::FILE* stream_ = stdout;
  std::optional<ef::AtomicFile> file_;
};

int translate(const TranslateCommand& command) {
  command.set_threads();
  if (!command.attention.empty() && command.attention == command.output)
    throw ef::ValueError("translate",
                         "--attention and --output are both '" + command.output + "', expected two files");
  const DecodingModel model(command.folder);
  const ef::TranslationModel<float>& loaded = model.loaded;
  const ef::index_t max_source = ef::max_source_tokens(loaded.description);
  AttentionFile attention(command.attention);
  ef::TextTranslatorOptions options = command.for_model(model);
  options.search.attention = attention.wanted();
  const SentenceTranslator translator(loaded, options, model.ctx);
  LineReader reader(command.input);
  Output output(command.output);
  const auto most = static_cast<std::size_t>(options.batching.batch_size) * 32;
  std::size_t before = 0;  // lines of earlier chunks
  for (std::vector<std::string> lines; !(lines = reader.chunk(most)).empty(); before += lines.size()) {
    if (before == 0 && lines[0].rfind("\xEF\xBB\xBF", 0) == 0) lines[0].erase(0, 3);  // byte order mark
    std::string problem;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const auto bad = ef::find_invalid_utf8(lines[i]);
      if (!bad) continue;
      problem = "invalid UTF-8 in line " + std::to_string(before + i + 1) + " of " + reader.name() +
                ", at byte " + std::to_string(*bad + 1) + " of the line";
      lines.resize(i);
    }
    const std::vector<ef::Translation> translations = translator.translate(lines, before);
    output.write(texts(translations));
    for (std::size_t i = 0; i < translations.size(); ++i) {
      if (translations[i].attention != nullptr) attention.add(before + i + 1, *translations[i].attention);
      if (!translations[i].cut) continue;
      std::fprintf(stderr, "translator: line %zu has more than %lld tokens; the rest of it was left out\n",
                   before + i + 1, static_cast<long long>(max_source));
    }
    if (!problem.empty()) {
      throw ef::IoError("translate", problem + (output.appears_at_the_end()
                                                    ? "; nothing was written to '" + command.output + "'"
                                                    : "; the lines before it were translated"));
    }
  }
  output.finish();
  attention.finish();
  return 0;
}

}  // namespace

void add_translate(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("translate", "Translates lines of text: one output line for each input line");
  auto command = std::make_shared<TranslateCommand>();
  command->add_to(*sub);
  sub->add_option("--input", command->input, "file to translate; else standard input");
  sub->add_option("--output", command->output, "file for the translations; else standard output");
  CLI::Option* const attention =
      sub->add_option("--attention", command->attention,
                      "file for the attention weights of every line, layer and head, as safetensors");
  command->add_sampling_to(*sub, attention);
  sub->callback([&run, command] { run = [command] { return translate(*command); }; });
}

}  // namespace translator
