/// Trains Transformers on pairs of sentences and translates with them.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "commands.hpp"
#include "eigenformer/version.hpp"

namespace {

int fail(const char* why) {
  std::fflush(stdout);
  std::fprintf(stderr, "translator: error: %s\n", why);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  // A file that reaches the size limit is an error to report, like a full disk, and no reason to be killed.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    CLI::App app("Trains encoder-decoder Transformers on pairs of sentences and translates with them.", "translator");
    app.set_version_flag("--version", std::string("translator, eigenformer ") + eigenformer::version_string());
    app.require_subcommand(1);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.get_formatter()->column_width(36);
    app.footer("Exit code: 0 when all went well, 130 when training was interrupted and saved, 1 for every error.");
    translator::Run run;
    translator::add_demo(app, run);
    translator::add_train(app, run);
    translator::add_translate(app, run);
    translator::add_evaluate(app, run);
    translator::add_inspect(app, run);
    translator::add_import(app, run);
    translator::add_quantize(app, run);
    translator::add_compare(app, run);
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& request) {  // --help, --version
      return app.exit(request);
    } catch (const CLI::ParseError& error) {
      const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
      const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
      if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named)) {
        return fail((std::string("there is no command '") + argv[1] + "'; see translator --help").c_str());
      }
      return fail((error.what() + std::string("; see translator --help")).c_str());
    }
    return run();
  } catch (const std::bad_alloc&) {
    return fail("out of memory");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
