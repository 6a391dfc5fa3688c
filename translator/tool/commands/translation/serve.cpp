#include <CLI/CLI.hpp>
#include <string>

#include "commands.hpp"
#include "eigenformer/core/base/error.hpp"

#if defined(EIGENFORMER_WITH_SERVER) && EIGENFORMER_WITH_SERVER

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "options/decoding_options.hpp"
#include "translator/server/api/languages.hpp"
#include "translator/server/models/translator_backend.hpp"
#include "translator/server/translation_server.hpp"

namespace translator {

namespace {

struct ServeCommand {
  std::vector<std::string> models, adapters, cors_origins;
  std::string key_file;
  bool quiet = false;
  ef::index_t threads = 0;
  std::optional<OptionFlags<ef::ServerOptions>> server;
  std::optional<OptionFlags<ef::TranslatorOptions>> sharing;
  std::optional<OptionFlags<ef::SearchOptions>> search;
  std::optional<OptionFlags<ef::BatchSearchOptions>> batching;
  SplittingFlags splitting;
};

// --adapter gives the adapters of the models as FOLDER, NAME=FOLDER or SOURCE-TARGET:NAME=FOLDER.

/// The adapters of one model.
struct ModelAdapters {
  std::string merged;                                  ///< the folder of one that every request uses
  std::map<std::string, std::filesystem::path> named;  ///< the folders of those that requests name

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, folder] : named) names.push_back(name);
    return names;
  }
};

/// Whether requests and logs may name an adapter like this.
bool is_adapter_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

/// The adapters of each model, in the order of the models. Throws ValueError for adapters whose model or name
/// is not clear, and for two of one name.
std::vector<ModelAdapters> adapters_of_models(const std::vector<std::string>& given,
                                              const std::vector<ef::ModelPlace>& models) {
  std::vector<ModelAdapters> adapters(models.size());
  for (const std::string& text : given) {
    const auto fail = [&](const std::string& why) {
      throw ef::ValueError("serve", {"--adapter is '", text, "', ", why});
    };
    const std::size_t equals = text.find('=');
    std::string name = equals == std::string::npos ? std::string() : text.substr(0, equals);
    const std::size_t colon = name.find(':');
    const std::string languages = colon == std::string::npos ? std::string() : name.substr(0, colon);
    if (colon != std::string::npos) name.erase(0, colon + 1);
    // A folder's own name may have an equals sign, too.
    const bool is_named = is_adapter_name(name) && equals + 1 < text.size();
    std::size_t model = 0;
    if (is_named && !languages.empty()) {
      while (model < models.size() && models[model].source + "-" + models[model].target != languages) ++model;
      if (model == models.size()) fail("but no model translates " + languages);
    } else if (models.size() > 1) {
      fail(
          "which does not say whose adapter it is: with several models it must be SOURCE-TARGET:NAME=FOLDER");
    }
    ModelAdapters& of_model = adapters[model];
    if (is_named) {
      if (!of_model.named.emplace(name, text.substr(equals + 1)).second)
        fail("but the adapter '" + name + "' is given already");
    } else {
      if (!of_model.merged.empty()) fail("but another adapter is given: give each a name, NAME=FOLDER");
      of_model.merged = text;
    }
    if (!of_model.merged.empty() && !of_model.named.empty())
      fail("but one adapter has a name and another has none: give each a name, NAME=FOLDER");
  }
  return adapters;
}

/// The keys of a file, one per line; lines that begin with # are comments.
std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  for (const std::string& line : ef::read_lines(path)) {
    const std::string key = ef::trim(line);
    if (!key.empty() && key.front() != '#') keys.push_back(key);
  }
  if (keys.empty()) throw ef::IoError("serve", {"'", path, "' has no keys, expected one per line"});
  return keys;
}

ef::ServerOptions server_options(const ServeCommand& command) {
  ef::ServerOptions options = command.server->applied("server");
  if (!command.key_file.empty()) options.api_keys = read_keys(command.key_file);
  options.cors_origins = command.cors_origins;
  if (options.api_keys.empty() && options.is_reachable()) {
    throw ef::ValueError("serve", {"--host is ", options.host,
                                   ", which other machines can reach: give --api-key-file, so that only "
                                   "clients with a key may translate"});
  }
  options.validate();
  return options;
}

/// The default options of a model's translations.
ef::TextTranslatorOptions text_options(const ServeCommand& command, const ef::ModelDescription& description) {
  ef::TextTranslatorOptions options = ef::text_translator_options(description);
  options.search = command.search->applied("search", options.search);
  options.search.validate();
  options.batching = command.batching->applied("search");
  options.batching.validate();
  return options;
}

std::shared_ptr<const DecodingModels> load_models(const ef::ModelPlace& place, const ModelAdapters& adapters,
                                                  const std::string& language) {
  return std::make_shared<const DecodingModels>(std::vector{place.folder.string()}, adapters.merged, language,
                                                adapters.named);
}

/// The language of the rules that split a model's input; empty for a code that ICU does not know.
std::string rules_of(const ef::ModelPlace& place) {
  return ef::SentenceSplitter::knows(place.source) ? place.source : std::string();
}

std::unique_ptr<ef::TranslationBackend> backend(const ServeCommand& command, const ef::ModelPlace& place,
                                                const ModelAdapters& adapters, const std::string& language) {
  const auto models = load_models(place, adapters, language);
  ef::TextTranslatorOptions options = text_options(command, models->description());
  options.splitting =
      command.splitting.splitting(models->description().text, *models->tokenizers().source, rules_of(place));
  options.confidence = models->confidence();
  options.alignment = guided_alignment_options(*models);
  std::map<std::string, SentenceTranslator> adapted;
  for (const auto& [name, one] : models->adapted()) {
    ef::TextTranslatorOptions own = options;
    own.confidence = one.confidence;
    adapted.emplace(
        name, SentenceTranslator(one.ensemble, models->tokenizers(), models->description(), std::move(own)));
  }
  return std::make_unique<ef::TranslatorBackend>(sentence_translator(*models, std::move(options)), models,
                                                 ef::DocumentOptions{},
                                                 command.sharing->applied("translator"), adapted);
}

ef::ServedModel served_model(const ServeCommand& command, const ef::ModelPlace& place,
                             const ModelAdapters& adapters) {
  // Checked here, so that errors are reported at the start and not to the first client.
  // A multilingual model is listed once for each language pair that is served.
  std::string language;
  ef::detail::read_model_files(place.folder, [&] {
    const ef::ModelDescription description = ef::read_model_description(place.folder);
    language = description.text.target_languages.empty() ? std::string() : place.target;
    (void)ef::with_target_language(description.text, language);
    (void)text_options(command, description);
    const ef::TokenizerPair tokenizers =
        ef::detail::load_folder_tokenizers(description.tokenizer, description.joint, place.folder);
    ef::detail::require_tokenizers(place.folder, tokenizers);
    (void)command.splitting.splitting(description.text, *tokenizers.source, rules_of(place));
    return ef::SafetensorsFile::open(ef::detail::folder_file(place.folder, "model.safetensors"));
  });
  // Whether an adapter fits shows only with the model's weights.
  if (!adapters.merged.empty() || !adapters.named.empty()) (void)load_models(place, adapters, language);
  return {place.source, place.target,
          [&command, place, adapters, language] { return backend(command, place, adapters, language); },
          adapters.names()};
}

/// A line on standard error, with the time. It contains no texts; of what clients choose freely, only methods
/// and paths, escaped.
void log_line(const std::string& text) {
  char time[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (gmtime_r(&now, &parts) != nullptr)
    (void)std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &parts);
  std::fprintf(stderr, "%s %s\n", time, text.c_str());
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3fs", seconds);
  return text;
}

ef::ServerLog server_log(bool quiet) {
  ef::ServerLog log;
  if (!quiet) {
    log.request = [](const ef::HttpRecord& record) {
      const std::string& path = record.route.empty() ? record.path : record.route;
      log_line(record.client + " " + (record.method.empty() ? "-" : record.method + " " + path) + " " +
               std::to_string(record.status) + " " + seconds_text(record.seconds) +
               (record.note.empty() ? "" : " " + record.note));
    };
  }
  log.model = [](const ef::ServedModel& model, bool loaded, double seconds) {
    log_line("model " + model.source + "-" + model.target + (loaded ? " loaded in " : " dropped in ") +
             seconds_text(seconds));
  };
  log.load_failed = [](const ef::ServedModel& model, const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& why) {
      log_line("model " + model.source + "-" + model.target + " could not be loaded: " + why.what());
    }
  };
  return log;
}

int serve(const ServeCommand& command) {
  // Before any other thread is started, so that all threads block the signals and this one receives them.
  sigset_t signals{};
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // The process continues if the reader of the log closes its end.
  std::signal(SIGPIPE, SIG_IGN);
  set_threads(command.threads);
  command.sharing->applied("translator").validate();
  ef::ServerOptions options = server_options(command);
  std::vector<ef::ModelPlace> places;
  for (const std::string& model : command.models) places.push_back(ef::parse_model_place(model));
  const std::vector<ModelAdapters> adapters = adapters_of_models(command.adapters, places);
  std::vector<ef::ServedModel> models;
  for (std::size_t i = 0; i < places.size(); ++i)
    models.push_back(served_model(command, places[i], adapters[i]));
  const std::string host =
      options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  ef::TranslationServer server(std::move(options), std::move(models), server_log(command.quiet));
  server.start();
  log_line("listening on http://" + host + ":" + std::to_string(server.port()) + "/");
  int signal = 0;
  sigwait(&signals, &signal);
  log_line("stopping: accepted requests are still answered; repeat to exit at once");
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  server.stop();
  log_line("stopped");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, Run& run) {
  const auto [sub, command] =
      add_command(app, run, "serve",
                  "Translates over HTTP: LibreTranslate's API, streams, metrics, and a web page", serve);
  one_at_a_time(
      sub->add_option("--model", command->models,
                      "languages and model folder, such as en-de=FOLDER, or just the folder if its name ends "
                      "with the languages (model-en-de); repeat for more models"))
      ->required();
  one_at_a_time(sub->add_option(
      "--adapter", command->adapters,
      "name and folder of a LoRA adapter that requests may name, such as legal=FOLDER, or "
      "en-de:legal=FOLDER with several models; repeat for more. FOLDER alone: merged into the "
      "only model, for all requests"));
  sub->add_option("--api-key-file", command->key_file,
                  "file of API keys, one per line; clients must send one of them");
  one_at_a_time(
      sub->add_option("--cors-origin", command->cors_origins,
                      "origin whose web pages may read answers, such as https://example.org, or * for all; "
                      "repeat for more"));
  sub->add_flag("--quiet", command->quiet, "do not log each request on standard error");
  command->server.emplace(*sub, ef::ServerOptions{}, "Server and its limits");
  command->search.emplace(*sub, ef::SearchOptions{}, "Search; imported models bring their own defaults",
                          search_rows(false));
  command->batching.emplace(*sub, ef::BatchSearchOptions{}, "Batches");
  command->sharing.emplace(*sub, ef::TranslatorOptions{}, "Batches");
  command->splitting.add_to(*sub, false);
  add_threads(*sub, command->threads);
  sub->footer(
      "SIGTERM or Ctrl-C stops the server after all accepted requests are answered. Without --host only this "
      "machine can reach it; any other address needs API keys. docs/translator/server.md describes the "
      "API.");
}

}  // namespace translator

#else

namespace translator {

void add_serve(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand(
      "serve", "Translates over HTTP (not available: this program was built without Boost)");
  sub->allow_extras();
  sub->callback([&run] {
    run = []() -> int {
      throw ef::ValueError("serve",
                           "this program was built without Boost.Beast; install Boost 1.74 or newer (Debian "
                           "and Ubuntu: libboost-dev) and build it again");
    };
  });
}

}  // namespace translator

#endif
