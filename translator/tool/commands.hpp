#pragma once

#include <CLI/CLI.hpp>
#include <functional>

/// The subcommands. Each adds itself to the program, and stores its work in `run` when it is chosen. `run`
/// returns the exit code, or throws an exception that main() reports.
namespace eigenformer {}

namespace translator {

namespace ef = eigenformer;

using Run = std::function<int()>;

void add_prepare(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
void add_curves(CLI::App& app, Run& run);
void add_translate(CLI::App& app, Run& run);
void add_score(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_evaluate(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_import(CLI::App& app, Run& run);
void add_quantize(CLI::App& app, Run& run);
void add_merge(CLI::App& app, Run& run);
void add_compare(CLI::App& app, Run& run);
void add_shortlist(CLI::App& app, Run& run);
void add_serve(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);

}  // namespace translator
