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

using AddCommand = void(CLI::App& app, Run& run);
AddCommand add_prepare, add_train, add_curves, add_translate, add_score, add_calibrate, add_evaluate,
    add_inspect, add_import, add_quantize, add_merge, add_compare, add_shortlist, add_serve, add_completion;

}  // namespace translator
