#include "translator/server/translation_server.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "translator/documents/markup/read_markup.hpp"
#include "translator/server/api/access.hpp"
#include "translator/server/api/detect.hpp"
#include "translator/server/api/files.hpp"
#include "translator/server/api/jobs.hpp"
#include "translator/server/api/languages.hpp"
#include "translator/server/api/request.hpp"
#include "translator/server/api/response.hpp"
#include "translator/server/api/spec.hpp"
#include "translator/server/http/http_server.hpp"
#include "translator/server/http/metrics.hpp"
#include "translator/server/models/registry.hpp"
#include "translator/server/page/page.hpp"

namespace eigenformer {

namespace detail {

namespace {

void require_different(const std::vector<ServedModel>& models) {
  if (models.empty()) throw ValueError("server", "there is no model, expected at least one");
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto& names = models[i].adapters;
    for (auto name = names.begin(); name != names.end(); ++name) {
      if (!name->empty() && std::find(names.begin(), name, *name) == name) continue;
      throw ValueError(
          "server", {"the model ", models[i].source, "-", models[i].target,
                     (name->empty() ? " has an adapter without a name" : " has two adapters '" + *name + "'"),
                     ", expected a name of its own for each"});
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (models[i].source != models[j].source || models[i].target != models[j].target) continue;
      throw ValueError("server", {"two models translate ", models[i].source, "-", models[i].target,
                                  ", expected one model for each pair of languages"});
    }
  }
}

bool is_in(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

void add_language(const std::string& code, std::vector<std::string>& codes) {
  if (!is_in(codes, code)) codes.push_back(code);
}

HttpAnswer preflight(const std::string& methods, const HttpHeaders& headers) {
  HttpAnswer answer{.status = 204, .headers = {{"Allow", methods}}};
  if (!headers.empty() && headers.front().first == "Access-Control-Allow-Origin") {
    answer.headers.insert(answer.headers.end(),
                          {{"Access-Control-Allow-Methods", methods},
                           {"Access-Control-Allow-Headers", "Content-Type, Authorization"},
                           {"Access-Control-Max-Age", "3600"}});
  }
  return answer;
}

// Throws HttpError 400 unless the name is empty or one of the model's adapters.
void require_adapter(const ServedModel& model, const std::string& name) {
  const auto& names = model.adapters;
  if (name.empty() || is_in(names, name)) return;
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "; there are: " : ", ") + known;
  throw HttpError(400, "there is no adapter " + name + " of " + model.source + "-" + model.target +
                           (names.empty() ? "; it has none" : list));
}

nlohmann::ordered_json language_json(const std::string& code) {
  return {{"code", code}, {"name", language_name(code)}};
}

// The policy allows no other hosts, no inline scripts, and no framing by other pages.
HttpAnswer page_answer(const char* type, const char* body) {
  return {.content_type = std::string(type) + "; charset=utf-8",
          .body = body,
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                       "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace

/// The routes of a TranslationServer, and what they need.
class TranslationService {
 public:
  TranslationService(ServerOptions options, std::vector<ServedModel> models, ServerLog log)
      : options_(std::move(options)),
        log_(std::move(log)),
        access_(options_.api_keys, options_.requests_per_minute),
        jobs_(static_cast<std::size_t>(options_.max_requests)),
        files_(static_cast<std::size_t>(options_.max_file_bytes),
               std::chrono::minutes(options_.file_minutes)) {
    options_.validate();
    require_different(models);
    for (const ServedModel& model : models) {
      add_language(model.source, sources_);
      targets_[model.source].push_back(model.target);
    }
    http_ = std::make_unique<HttpServer>(
        options_, HttpHandler{
                      [this](const HttpRequest& request, const HttpReply& reply) {
                        if (auto answer = route(request, reply)) reply.send(std::move(*answer));
                      },
                      api_error,
                      [this](const std::string& origin) { return cors_headers(origin); },
                      [this](const HttpRecord& record) {
                        metrics_.request_over(record);
                        if (log_.request) log_.request(record);
                      },
                  });
    models_ = std::make_unique<ModelRegistry>(
        std::move(models), std::chrono::minutes(options_.idle_minutes),
        [this](const ServedModel& model, bool loaded, double seconds) {
          metrics_.add_model(loaded);
          if (log_.model) log_.model(model, loaded, seconds);
        },
        log_.load_failed);
  }

  ~TranslationService() {
    http_->abort();
    models_->shutdown();  // running translations have replies, which need the connections
    http_.reset();        // its threads may use models until they end
  }
  TranslationService(const TranslationService&) = delete;
  TranslationService& operator=(const TranslationService&) = delete;

  HttpServer& http() noexcept { return *http_; }

 private:
  struct Route {
    ApiRoute api;
    std::optional<HttpAnswer> (TranslationService::*answer)(const HttpRequest&, const HttpReply&);
    const char* const* page = nullptr;  // what it always answers, instead of `answer`
  };

  // The CORS headers that allow pages of listed origins to read an answer.
  HttpHeaders cors_headers(const std::string& origin) const {
    const auto& origins = options_.cors_origins;
    if (origin.empty() || origins.empty()) return {};
    const bool all = is_in(origins, "*");
    if (!all && !is_in(origins, origin)) return {{"Vary", "Origin"}};
    return {{"Access-Control-Allow-Origin", all ? "*" : origin}, {"Vary", "Origin"}};
  }

  static std::span<const Route> routes() {
    static constexpr ApiField key{"api_key", "string", false, "API key, if the server requires one"};
    static constexpr ApiField adapter{"adapter", "string", false, "name of one of the model's adapters"};
    static constexpr ApiField source{"source", "string", true, "language code of the text, or auto"};
    static constexpr ApiField target{"target", "string", true, "language code of the translation"};
    static constexpr std::array translate_fields = {
        ApiField{"q", "texts", true, "the text, or a list of texts"},
        source,
        target,
        ApiField{"format", "string", false, "text (default) or html"},
        ApiField{"alternatives", "integer", false, "number of further translations"},
        ApiField{"details", "boolean", false, "whether to return words, confidences and alignment"},
        ApiField{"stream", "boolean", false, "whether the answer is a stream of events"},
        adapter,
        key};
    static constexpr std::array file_fields = {
        ApiField{"file", "file", true, "a text (.txt) or a page (.html, .htm) in UTF-8"}, source, target,
        adapter, key};
    static constexpr std::array detect_fields = {ApiField{"q", "string", true, "the text"}, key};
    static constexpr const char *json = "application/json", *text = "text/plain";
    using Service = TranslationService;
    static constexpr std::array all = {
        Route{{"/translate", "POST", "Translates texts", json, translate_fields}, &Service::translate},
        Route{{"/translate_file", "POST", "Translates a file", json, file_fields}, &Service::translate_file},
        Route{{"/download_file/{name}", "GET", "A translated file", "application/octet-stream"},
              &Service::download_file},
        Route{{"/detect", "POST", "Detects the language of a text", json, detect_fields}, &Service::detect},
        Route{{"/languages", "GET", "Languages and their targets", json}, &Service::languages},
        Route{{"/frontend/settings", "GET", "Limits and default languages", json}, &Service::settings},
        Route{{"/spec", "GET", "This description", json}, &Service::spec},
        Route{{"/health", "GET", "Whether the server is running", json}, &Service::health},
        Route{{"/metrics", "GET", "Counters in Prometheus' text format", text}, &Service::metrics},
        Route{{"/", "GET", "A page for translating", "text/html"}, nullptr, &page_html},
        Route{{"/page.css", "GET", "The style of the page", "text/css"}, nullptr, &page_style},
        Route{{"/page.js", "GET", "The script of the page", "text/javascript"}, nullptr, &page_script},
    };
    return all;
  }

  // The answer; nothing when it is sent later.
  std::optional<HttpAnswer> route(const HttpRequest& request, const HttpReply& reply) {
    std::string path = request.path;
    if (path.size() > 1 && path.ends_with('/')) path.pop_back();
    for (const Route& route : routes()) {
      if (!is_route_of(route.api, path)) continue;
      reply.describe(route.api.path, "");
      const std::string methods =
          std::string(route.api.method) == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
      if (request.method == "OPTIONS") return preflight(methods, cors_headers(request.origin));
      if (request.method != route.api.method)
        throw HttpError(405, path + " does not support the method " + request.method.substr(0, 32),
                        {{"Allow", methods}});
      if (route.page != nullptr) return page_answer(route.api.answer, *route.page);
      return (this->*route.answer)(request, reply);
    }
    throw HttpError(404, "Not found");
  }

  // The parameters of a request, whose client is counted. Throws HttpError without access.
  ApiParameters admitted(const HttpRequest& request) {
    ApiParameters parameters(request, options_);
    access_.count(access_.require_key(request, parameters.text("api_key")));
    return parameters;
  }

  std::optional<HttpAnswer> translate(const HttpRequest& request, const HttpReply& reply) {
    const ApiParameters parameters = admitted(request);
    begin("/translate", api_translation(parameters, options_), reply);
    return std::nullopt;
  }

  std::optional<HttpAnswer> translate_file(const HttpRequest& request, const HttpReply& reply) {
    const ApiParameters parameters = admitted(request);
    const bool plain =
        request.host.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") == std::string::npos;
    if (request.host.empty() || !plain)
      throw HttpError(400, "the request needs a Host that is a name or an address, for the file's URL");
    ApiTranslation wanted = api_file_translation(parameters, options_);
    wanted.file_answer = [this, url = (request.https ? "https://" : "http://") + request.host,
                          name = download_name(*parameters.file().filename, wanted.target)](
                             std::string text) -> nlohmann::ordered_json {
      return {{"translatedFileUrl", url + "/download_file/" + files_.add(name, std::move(text))}};
    };
    begin("/translate_file", std::move(wanted), reply);
    return std::nullopt;
  }

  // A file's name is as hard to guess as a key, and LibreTranslate's clients send none here.
  std::optional<HttpAnswer> download_file(const HttpRequest& request, const HttpReply&) {
    const std::string name = request.path.substr(request.path.rfind('/') + 1);
    std::optional<std::string> content = files_.get(name);
    if (!content) throw HttpError(404, "there is no such file, or not any more");
    return HttpAnswer{
        .content_type = name.ends_with(".txt") ? "text/plain; charset=utf-8" : "text/html; charset=utf-8",
        .body = std::move(*content),
        .headers = {
            {"Content-Disposition", "attachment; filename=\"" + name.substr(name.find('.') + 1) + '"'},
            {"Content-Security-Policy", "default-src 'none'; sandbox"}}};
  }

  // Begins a translation, whose job sends the answer.
  void begin(const char* route, ApiTranslation wanted, const HttpReply& reply) {
    std::optional<DetectedLanguage> detected;
    if (wanted.source == "auto") {
      std::string all;
      for (const std::string& text : wanted.task.texts) {
        if (!wanted.task.html) {
          all += text + "\n";
        } else {  // tags, scripts and styles are in no language
          for (const MarkupSegment& segment : read_markup(text, MarkupFormat::html).segments)
            all += segment.text + "\n";
        }
      }
      detected = detected_language(all, wanted.target);
      wanted.source = detected->code;
    }
    const bool same_language = wanted.source == wanted.target;
    if (!same_language && !is_in(sources_, wanted.source))
      throw HttpError(400, wanted.source + " is not supported");
    const auto model = models_->find(wanted.source, wanted.target);
    if (same_language ? !is_in(all_languages(), wanted.source) : !model)
      throw HttpError(400, wanted.target + " is not supported as a target of " + wanted.source);
    if (model) require_adapter(models_->model(*model), wanted.task.adapter);
    // The log must not contain the texts themselves.
    std::size_t bytes = 0;
    for (const std::string& text : wanted.task.texts) bytes += text.size();
    reply.describe(
        route,
        wanted.source + "-" + wanted.target + " texts=" + std::to_string(wanted.task.texts.size()) +
            " bytes=" + std::to_string(bytes) +
            (model && !wanted.task.adapter.empty() ? " adapter=" + wanted.task.adapter : std::string()));
    const auto job =
        std::make_shared<TranslateJob>(std::move(wanted), std::move(detected), reply, jobs_.add(), metrics_);
    if (!model) {  // nothing to translate
      std::vector<TranslatedText> same;
      for (const std::string& text : job->task().texts) same.push_back({.text = text});
      job->begin_stream();
      job->done(std::move(same));
      return;
    }
    reply.when_gone([job] { job->cancel(); });
    models_->use(*model, [job](const std::shared_ptr<TranslationBackend>& backend,
                               const std::exception_ptr& error) { job->begin(backend, error); });
  }

  // The language of a text that is translated to a target; of equally likely ones, one with a model. Throws
  // HttpError 400 when there is no model for it, and when a model's language has no profile.
  DetectedLanguage detected_language(const std::string& text, const std::string& target) const {
    if (!is_in(all_languages(), target)) throw HttpError(400, target + " is not supported");
    const std::vector<DetectedLanguage> found = detections(text);
    for (const DetectedLanguage& language : found) {
      if (language.confidence < found.front().confidence) break;
      if (language.code == target || models_->find(language.code, target)) return language;
    }
    const auto named = [](const std::string& code) { return language_name(code) + " (" + code + ")"; };
    throw HttpError(400, named(target) + " is not available as a target language from " +
                             named(found.front().code) + ", the detected language of the text");
  }

  // All languages with a profile, the most likely first; of equally likely ones, those of the models.
  std::vector<DetectedLanguage> detections(const std::string& text) const {
    for (const std::string& code : sources_) {
      if (!can_detect(code))
        throw HttpError(400, "language detection is not available: there is no profile for " + code);
    }
    return detect_language(text, detectable_languages(all_languages()));
  }

  std::optional<HttpAnswer> detect(const HttpRequest& request, const HttpReply&) {
    const ApiParameters parameters = admitted(request);
    const auto [texts, list] = parameters.texts(options_);
    auto json = nlohmann::ordered_json::array();
    for (const DetectedLanguage& detected : detections(texts.front()))
      if (detected.confidence > 0) json.push_back(detection_json(detected));
    return json_answer(json);
  }

  // All source languages, followed by languages that are only targets.
  std::vector<std::string> all_languages() const {
    std::vector<std::string> codes = sources_;
    for (const auto& [source, targets] : targets_)
      for (const std::string& target : targets) add_language(target, codes);
    return codes;
  }

  std::optional<HttpAnswer> languages(const HttpRequest&, const HttpReply&) {
    auto json = nlohmann::ordered_json::array();
    for (const std::string& code : all_languages()) {
      auto language = language_json(code);
      const auto found = targets_.find(code);
      language["targets"] = found == targets_.end() ? std::vector<std::string>() : found->second;
      for (std::size_t i = 0; i < models_->size(); ++i) {
        const ServedModel& model = models_->model(i);
        if (model.source == code && !model.adapters.empty())
          language["adapters"][model.target] = model.adapters;
      }
      json.push_back(std::move(language));
    }
    return json_answer(json);
  }

  std::optional<HttpAnswer> settings(const HttpRequest&, const HttpReply&) {
    const ServedModel& first = models_->model(0);
    return json_answer(
        {{"apiKeys", access_.needs_key()},
         {"charLimit", options_.max_characters},
         {"maxAlternatives", options_.max_alternatives},
         {"frontendTimeout", 500},
         {"keyRequired", access_.needs_key()},
         {"language", {{"source", language_json(first.source)}, {"target", language_json(first.target)}}},
         {"suggestions", false},
         {"filesTranslation", true},
         {"supportedFilesFormat", file_endings}});
  }

  std::optional<HttpAnswer> spec(const HttpRequest&, const HttpReply&) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const Route& route : routes()) add_to_spec(document, route.api);
    return json_answer(document);
  }

  std::optional<HttpAnswer> health(const HttpRequest&, const HttpReply&) {
    return json_answer({{"status", "ok"}});
  }

  std::optional<HttpAnswer> metrics(const HttpRequest& request, const HttpReply&) {
    access_.require_key(request, "");
    return HttpAnswer{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                      .body = metrics_.text(jobs_.count(), http_->connections(), models_->loaded())};
  }

  const ServerOptions options_;
  const ServerLog log_;
  ServerMetrics metrics_;
  ApiAccess access_;
  JobCount jobs_;
  TranslatedFiles files_;
  std::vector<std::string> sources_;
  std::map<std::string, std::vector<std::string>> targets_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ModelRegistry> models_;
};

}  // namespace detail

TranslationServer::TranslationServer(ServerOptions options, std::vector<ServedModel> models, ServerLog log)
    : service_(std::make_unique<detail::TranslationService>(std::move(options), std::move(models),
                                                            std::move(log))) {}

TranslationServer::~TranslationServer() = default;

unsigned short TranslationServer::port() const noexcept { return service_->http().port(); }

void TranslationServer::start() { service_->http().start(); }

void TranslationServer::stop() { service_->http().stop(); }

}  // namespace eigenformer
