/// Trains Transformers on pairs of sentences and translates with them.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "command_line/checks.hpp"
#include "command_line/config_file.hpp"
#include "command_line/help_formatter.hpp"
#include "commands.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/version.hpp"

namespace {

int fail(const char* why) {
  std::fflush(stdout);
  std::fprintf(stderr, "translator: error: %s\n", why);
  return 1;
}

/// Returns the exit code, or reports lost output of standard output.
int finish(int code) {
  errno = 0;
  bool good = std::fflush(stdout) == 0;
  if (good && std::ferror(stdout) != 0) {
    // An earlier write failed, and its errno is lost: write again.
    good = ::write(STDOUT_FILENO, "\n", 1) == 1;
    if (good) return fail("cannot write the whole output");
  }
  if (good) return code;
  const int error = errno;
  return fail((std::string("cannot write: ") + std::strerror(error)).c_str());
}

// What is wrong with the arguments, and which --help tells more.
std::string explanation(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  using namespace translator;
  const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  const auto commands = commands_of(app);
  std::string why = message_of(error);
  std::string help = "translator";
  const CLI::App* command = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  const bool missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // The required option may be there, mistyped.
  if (unknown || (missing && !command->remaining().empty())) why = unknown_argument(*command);
  if (argc == 1) why = "a command is required, such as translate";
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named))
    why = unknown_command(app, argv[1]);
  if (command != &app) help += " " + command->get_name();
  return why + (why.ends_with('?') ? " See " : "; see ") + help + " --help";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace translator;
  // A file that reaches the size limit is an error to report, as on a full disk, and must not kill the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    CLI::App app("Trains encoder-decoder Transformers on sentence pairs and translates with them.",
                 "translator");
    app.set_version_flag("--version", std::string("translator, eigenformer ") + ef::version_string());
    app.require_subcommand(1);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.formatter(help_formatter());
    app.footer("Exit code: 0: success; 130: interrupted, the command can be resumed; 1: error.");
    Run run;
    for (const auto add : {add_prepare, add_train, add_curves, add_translate, add_score, add_evaluate,
                           add_calibrate, add_inspect, add_import, add_quantize, add_merge, add_compare,
                           add_shortlist, add_serve, add_completion})
      add(app, run);
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) add_config(*command);
    check_values(app);
    try {
      app.parse(argc, argv);
      for (const CLI::App* command : app.get_subcommands()) require_given_once(*command);
    } catch (const ConfigRequest& request) {
      std::fputs(request.text.c_str(), stdout);
      return finish(0);
    } catch (const CLI::Success& request) {  // --help, --version
      return finish(app.exit(request));
    } catch (const CLI::ParseError& error) {
      return fail(explanation(app, error, argc, argv).c_str());
    }
    try {
      return finish(run());
    } catch (const ef::Error& error) {
      std::string why = with_option_names(error.what(), app.got_subcommand("train"));
      const std::string place = config_place(why);
      if (!place.empty()) why += "; see " + place;
      return fail(why.c_str());
    }
  } catch (const std::bad_alloc&) {
    return fail("out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(("cannot access '" + error.path1().string() + "': " + error.code().message()).c_str());
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
