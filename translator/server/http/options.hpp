#pragma once

#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Options of a server: its address, access and limits. Beyond a limit, requests get the HTTP status given.
struct ServerOptions {
  std::string host = "127.0.0.1";        ///< address to listen at; any but a loopback address needs api_keys
  index_t port = 5000;                   ///< 0: a free one; see TranslationServer::port()
  index_t io_threads = 1;                ///< threads for connections, at most 64; models have their own
  index_t max_connections = 1024;        ///< open connections; more: 503
  index_t max_body = 1 << 20;            ///< bytes of a request's body; more: 413
  index_t max_texts = 128;               ///< texts in one request; more: 422
  index_t max_characters = 100'000;      ///< Unicode code points of all texts of a request; more: 422
  index_t max_line_characters = 20'000;  ///< Unicode code points of a line; more: 422
  index_t max_alternatives = 8;          ///< alternatives per text; more: 422
  index_t max_requests = 256;            ///< translations accepted and not answered; more: 503
  index_t requests_per_minute = 0;       ///< per client address or API key; more: 429; 0: no limit
  index_t read_seconds = 30;             ///< time for a request to arrive, and between requests
  index_t write_seconds = 30;            ///< time for a client to receive an answer or a part of a stream
  index_t answer_seconds = 120;          ///< time for a translation; longer: 503
  index_t stop_seconds = 30;             ///< time for accepted requests when the server stops
  index_t file_minutes = 30;             ///< time for which a translated file can be downloaded
  index_t max_file_bytes = 64 << 20;  ///< bytes of translated files kept; the oldest are removed for new ones
  index_t idle_minutes = 0;           ///< time after which an unused model is unloaded; 0: never
  std::vector<std::string>
      api_keys{};  ///< keys of at least 8 bytes, one of which a client must send; empty: not required
  std::vector<std::string>
      cors_origins{};  ///< origins whose pages may call, such as https://example.org; "*": all

  /// Visits all fields but api_keys and cors_origins.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"host", "address to listen on; anything but a loopback address needs API keys"},
          self.host);
    visit(OptionField{"port", "port to listen on; 0: any free port", Allowed::not_negative}, self.port);
    visit(OptionField{"io_threads", "threads that read and write connections", Allowed::positive},
          self.io_threads);
    visit(OptionField{"max_connections", "maximum open connections; more get status 503", Allowed::positive},
          self.max_connections);
    visit(OptionField{"max_body", "maximum bytes of a request body; more get status 413", Allowed::positive},
          self.max_body);
    visit(OptionField{"max_texts", "maximum texts per request; more get status 422", Allowed::positive},
          self.max_texts);
    visit(OptionField{"max_characters", "maximum characters of all texts of a request; more get status 422",
                      Allowed::positive},
          self.max_characters);
    visit(OptionField{"max_line_characters", "maximum characters of a line; more get status 422",
                      Allowed::positive},
          self.max_line_characters);
    visit(OptionField{"max_alternatives", "maximum alternatives of a text; more get status 422",
                      Allowed::not_negative},
          self.max_alternatives);
    visit(OptionField{"max_requests", "maximum accepted translations not yet answered; more get status 503",
                      Allowed::positive},
          self.max_requests);
    visit(OptionField{"requests_per_minute",
                      "maximum requests per minute from an API key, or else from an address; more get status "
                      "429; 0: no limit",
                      Allowed::not_negative},
          self.requests_per_minute);
    visit(OptionField{"read_seconds",
                      "time limit in seconds for a request to arrive, and for the next one to begin",
                      Allowed::positive},
          self.read_seconds);
    visit(OptionField{"write_seconds",
                      "time limit in seconds for a client to read an answer or a part of a stream",
                      Allowed::positive},
          self.write_seconds);
    visit(OptionField{"answer_seconds", "time limit in seconds for a translation; then status 503",
                      Allowed::positive},
          self.answer_seconds);
    visit(OptionField{"stop_seconds",
                      "seconds that a stopping server takes at most to answer accepted requests",
                      Allowed::positive},
          self.stop_seconds);
    visit(OptionField{"file_minutes", "minutes for which a translated file can be downloaded",
                      Allowed::positive},
          self.file_minutes);
    visit(
        OptionField{
            "max_file_bytes",
            "maximum bytes of all translated files that are kept; the oldest are removed for new ones",
            Allowed::positive},
        self.max_file_bytes);
    visit(OptionField{"idle_minutes", "minutes after which an unused model is unloaded; 0: never",
                      Allowed::not_negative},
          self.idle_minutes);
  }

  /// Whether other machines can reach `host`: it is not a loopback address. Throws ValueError when it is not
  /// an IP address.
  bool is_reachable() const;

  /// Throws ValueError that names an invalid field, and for a reachable address without API keys.
  void validate() const;
};

}  // namespace eigenformer
