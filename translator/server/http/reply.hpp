#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

class HttpSession;

/// Answers one request, from any thread. Calls for a finished request (answered, timed out, or its client has
/// disconnected) are ignored. Must be destroyed before the HttpServer.
class HttpReply {
 public:
  /// number: that of the request in its session. Made by HttpSession.
  HttpReply(std::shared_ptr<HttpSession> session, std::uint64_t number)
      : session_(std::move(session)), number_(number) {}

  /// Sends the answer, which finishes the request.
  void send(HttpAnswer answer) const;
  /// Sends an error answer, or in a stream an event "error", and finishes the request.
  void send(const HttpError& error) const;
  /// Begins an answer of server-sent events, with the status, headers and content type of `header`; its body
  /// is ignored.
  void begin_stream(HttpAnswer header) const;
  /// Sends an event of a stream. data: one line of text. replaces: an unsent event with this number is
  /// dropped.
  void event(std::string name, std::string data, std::optional<std::size_t> replaces = std::nullopt) const;
  /// Ends a stream, which finishes the request.
  void end_stream() const;
  /// Sets a function that is called once when the client disconnects before its answer or the time is over.
  /// May only be called within HttpHandler::handle.
  void when_gone(std::function<void()> gone) const;
  /// Sets route and note of the request's HttpRecord. May only be called within HttpHandler::handle.
  void describe(std::string route, std::string note) const;

 private:
  template <class F>
  void in_strand(F f) const;

  std::shared_ptr<HttpSession> session_;
  std::uint64_t number_;
};

/// The callbacks of a server; all must be set. They are called by its threads, several at a time. Only
/// `handle` may throw.
struct HttpHandler {
  /// Handles a request. It must not block; it answers by the reply, at once or later. An HttpError that it
  /// throws is sent as the answer, bad_alloc as 503, other exceptions as 500.
  std::function<void(HttpRequest, HttpReply)> handle;
  std::function<HttpAnswer(const HttpError&)> error_answer;  ///< makes the answer for an error
  /// Returns header fields for every answer, errors included, to a request with this Origin; empty: the
  /// request has none.
  std::function<HttpHeaders(const std::string&)> common_headers;
  std::function<void(const HttpRecord&)> over;  ///< called when a request is finished
};

}  // namespace eigenformer::detail
