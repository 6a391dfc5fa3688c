#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// A request as it came, whole.
struct HttpRequest {
  std::string method;  ///< GET, POST, ...
  std::string path;    ///< from the first / up to the ?
  std::string query;   ///< behind the ?
  std::string body;
  std::string content_type;   ///< as the client wrote it
  std::string origin;         ///< of the page that called; empty: none
  std::string authorization;  ///< such as "Bearer key"
  std::string client;         ///< the address it came from
};

/// An answer to be sent whole.
struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// An error answer: the HTTP status, a message for people, and further header fields.
class HttpError : public Error {
 public:
  HttpError(unsigned status, std::string message,
            std::vector<std::pair<std::string, std::string>> headers = {})
      : Error("server", message),
        status_(status),
        message_(std::move(message)),
        headers_(std::move(headers)) {}

  unsigned status() const noexcept { return status_; }
  /// Without the "[server]" of what().
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::pair<std::string, std::string>>& headers() const noexcept { return headers_; }

 private:
  unsigned status_;
  std::string message_;
  std::vector<std::pair<std::string, std::string>> headers_;
};

/// What is known of a request once it is over; nothing of its texts.
struct HttpRecord {
  std::string client, method;
  std::string route;    ///< what the handler called it; empty: no route of the server's
  std::string note;     ///< what the handler said of it, such as the languages and sizes
  unsigned status = 0;  ///< 499: the client went before its answer
  double seconds = 0;   ///< from the whole request to the last byte of the answer
};

}  // namespace eigenformer
