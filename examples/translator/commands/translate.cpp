#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "model/decoding_model.hpp"
#include "terminal/line_reader.hpp"
#include "terminal/result_output.hpp"
#include "translation/line_translation.hpp"

namespace translator {

namespace {

int translate(const TranslateOptions& options) {
  options.set_threads();
  const DecodingModels models(options.folders);
  LineTranslation translation(options, models);
  LineReader reader(options.input);
  ResultOutput output(options.output);
  output.write(translation.header());
  std::size_t before = 0, read = 0;  // lines of earlier chunks; with this one's
  for (std::vector<std::string> lines; !(lines = reader.chunk(translation.lines_at_once())).empty();
       before = read) {
    if (before == 0) drop_byte_order_mark(lines[0]);
    read = before + lines.size();
    const std::string problem = cut_at_invalid_utf8(lines, before, reader);
    const LineTranslation::Results results = translation(std::move(lines), before);
    output.write(results.text);
    for (const std::string& warning : results.warnings)
      std::fprintf(stderr, "translator: %s\n", warning.c_str());
    if (!problem.empty()) {
      throw ef::IoError("translate", problem + (output.appears_at_the_end()
                                                    ? "; nothing was written to '" + options.output + "'"
                                                    : "; the lines before it were translated"));
    }
  }
  output.finish();
  translation.finish();
  return 0;
}

}  // namespace

void add_translate(CLI::App& app, Run& run) {
  CLI::App* sub =
      app.add_subcommand("translate", "Translates lines of text: one output line for each input line");
  auto options = std::make_shared<TranslateOptions>();
  options->add_flags(*sub);
  sub->callback([&run, options] { run = [options] { return translate(*options); }; });
}

}  // namespace translator
