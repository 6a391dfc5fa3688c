#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// Names and values of header fields.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// An error that is answered with an HTTP status.
class HttpError : public Error {
 public:
  /// status: 400 to 599. message: for the client. headers: further header fields of the answer.
  HttpError(unsigned status, std::string message, HttpHeaders headers = {})
      : Error("server", message),
        status_(status),
        message_(std::move(message)),
        headers_(std::move(headers)) {}

  /// The HTTP status code.
  unsigned status() const noexcept { return status_; }
  /// The message without the "[server]" of what().
  const std::string& message() const noexcept { return message_; }
  /// Further header fields of the answer.
  const HttpHeaders& headers() const noexcept { return headers_; }

 private:
  unsigned status_;
  std::string message_;
  HttpHeaders headers_;
};

/// A log record of a finished request, without its texts.
struct HttpRecord {
  std::string client,   ///< IP address of the client
      method,           ///< as sent by the client; empty when the request could not be read
      path;             ///< as sent by the client, escaped: printable ASCII, at most 200 bytes
  std::string route;    ///< set by HttpReply::describe(); empty: an unknown path
  std::string note;     ///< set by HttpReply::describe(), such as languages and sizes
  unsigned status = 0;  ///< HTTP status of the answer; 499: the client disconnected before it was sent
  double seconds = 0;   ///< time from the complete request to the last byte of the answer
};

namespace detail {

/// A complete HTTP request. Header fields that are absent are empty.
struct HttpRequest {
  std::string method;         ///< GET, POST, ...; GET for HEAD, whose body is left out when sending
  std::string path;           ///< target up to the ?, not decoded, without scheme and host
  std::string query;          ///< target after the ?, not decoded
  std::string body;           ///< bytes of the body, at most ServerOptions::max_body
  std::string content_type;   ///< Content-Type, unchanged
  std::string host;           ///< Host: name or address, and port, by which the client reached the server
  bool https = false;         ///< whether the client uses https, as a proxy says in X-Forwarded-Proto
  std::string origin;         ///< Origin: scheme and host of the calling page
  std::string authorization;  ///< Authorization, such as "Bearer key"
  std::string client;         ///< IP address of the client
};

/// A complete HTTP answer.
struct HttpAnswer {
  unsigned status = 200;                          ///< HTTP status code
  std::string content_type = "application/json";  ///< Content-Type
  std::string body{};                             ///< bytes of the body
  HttpHeaders headers{};                          ///< further header fields
};

}  // namespace detail

}  // namespace eigenformer
