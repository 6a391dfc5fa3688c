#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "translator/server/http/message.hpp"
#include "translator/server/http/options.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer {

namespace detail {
class TranslationService;
}

/// Callbacks for logging; each may be empty. They are called by the server's threads, several at a time, and
/// must not throw.
struct ServerLog {
  std::function<void(const HttpRecord&)> request{};  ///< a request is finished
  /// A model was loaded (true) or unloaded (false), and how many seconds that took.
  std::function<void(const ServedModel&, bool loaded, double seconds)> model{};
  /// A model could not be loaded; the next request for it tries again.
  std::function<void(const ServedModel&, const std::exception_ptr&)> load_failed{};
};

/// A translation server with the HTTP API of LibreTranslate (/translate, /translate_file, /languages,
/// /detect, /frontend/settings, /spec), optional streaming by server-sent events, /health, /metrics for
/// Prometheus, and a web page at /.
///
///     ef::TranslationServer server({.port = 5000}, {{"en", "de", [] { return load_my_model(); }}});
///     server.start();
///     ...
///     server.stop();  // answers accepted requests
class TranslationServer {
 public:
  /// Opens the port; requests are answered after start(). Throws ValueError for invalid options, no models,
  /// two models for the same languages, and an adapter without a name or with that of another one of the
  /// model; IoError when the port cannot be opened.
  TranslationServer(ServerOptions options, std::vector<ServedModel> models, ServerLog log = {});
  /// Closes all connections and cancels running translations; waits for the threads.
  ~TranslationServer();
  TranslationServer(const TranslationServer&) = delete;
  TranslationServer& operator=(const TranslationServer&) = delete;

  /// The TCP port that the server listens at, also when options.port is 0.
  unsigned short port() const noexcept;
  /// Starts the threads that answer requests, and returns. Throws std::system_error when the system cannot
  /// start them, and std::bad_alloc; then none is left, and start() may be called again. Throws ValueError
  /// when the server was started.
  void start();
  /// Accepts no more requests, answers those that have begun, and returns when all are answered or after
  /// stop_seconds.
  void stop();

 private:
  std::unique_ptr<detail::TranslationService> service_;
};

}  // namespace eigenformer
