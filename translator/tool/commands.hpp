#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <utility>

/// The subcommands. Each adds itself to the program, and stores its work in `run` when it is chosen. `run`
/// returns the exit code, or throws an exception that main() reports.
namespace eigenformer {}

namespace translator {

namespace ef = eigenformer;

using Run = std::function<int()>;

/// Adds a subcommand that calls `work` with a command line of type C. Returns it and that command line, to
/// which its options are to be added.
template <class C>
std::pair<CLI::App*, C*> add_command(CLI::App& app, Run& run, const char* name, const char* description,
                                     int (*work)(const C&)) {
  CLI::App* const sub = app.add_subcommand(name, description);
  const auto command = std::make_shared<C>();
  sub->callback([&run, command, work] { run = [command, work] { return work(*command); }; });
  return {sub, command.get()};
}

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
