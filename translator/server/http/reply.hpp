#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "translator/server/http/message.hpp"
#include "translator/server/http/session.hpp"

namespace eigenformer {

/// Answers one request, from any thread. Calls for a finished request (answered, timed out, or its client has
/// disconnected) are ignored. Must be destroyed before the HttpServer.
class HttpReply {
 public:
  /// number: that of the request in its session. Made by HttpSession.
  HttpReply(std::shared_ptr<HttpSession> session, std::uint64_t number)
      : session_(std::move(session)), number_(number) {}

  /// Sends the answer, which finishes the request.
  void send(HttpAnswer answer) const {
    in_strand([answer = std::move(answer)](HttpSession& s) mutable { s.send(std::move(answer)); });
  }
  /// Sends an error answer, or in a stream an event "error", and finishes the request.
  void send(const HttpError& error) const {
    in_strand([error](HttpSession& s) {
      if (s.state_ == HttpSession::State::answering) return s.send_error(error);
      if (s.state_ != HttpSession::State::streaming) return;
      s.events_.add("error", s.handler_.error_answer(error).body);
      s.end_stream();
    });
  }
  /// Begins an answer of server-sent events, with the status, headers and content type of `header`; its body
  /// is ignored.
  void begin_stream(HttpAnswer header) const {
    in_strand([header = std::move(header)](HttpSession& s) mutable { s.begin_stream(std::move(header)); });
  }
  /// Sends an event of a stream. data: one line of text. replaces: an unsent event with this number is
  /// dropped.
  void event(std::string name, std::string data, std::optional<std::size_t> replaces = std::nullopt) const {
    in_strand([name = std::move(name), data = std::move(data), replaces](HttpSession& s) mutable {
      if (s.state_ != HttpSession::State::streaming) return;
      if (replaces) {
        s.events_.replace(*replaces, name, data);
      } else {
        s.events_.add(name, data);
      }
      s.write_events();
    });
  }
  /// Ends a stream, which finishes the request.
  void end_stream() const {
    in_strand([](HttpSession& s) { s.end_stream(); });
  }
  /// Sets a function that is called once when the client disconnects before its answer or the time is over.
  /// May only be called within HttpHandler::handle.
  void when_gone(std::function<void()> gone) const { session_->gone_ = std::move(gone); }
  /// Sets route and note of the request's HttpRecord. May only be called within HttpHandler::handle.
  void describe(std::string route, std::string note) const {
    session_->record_.route = std::move(route);
    session_->record_.note = std::move(note);
  }

 private:
  template <class F>
  void in_strand(F f) const {
    session_->in_strand([session = session_, number = number_, f = std::move(f)]() mutable {
      if (session->number_ == number) f(*session);
    });
  }

  std::shared_ptr<HttpSession> session_;
  std::uint64_t number_;
};

inline void HttpSession::handle(HttpRequest request) {
  try {
    handler_.handle(std::move(request), HttpReply(shared_from_this(), number_));
  } catch (const HttpError& error) {
    send_error(error);
  } catch (const std::bad_alloc&) {
    send_error(HttpError(503, "the server is out of memory"));
  } catch (const std::exception&) {
    send_error(HttpError(500, "the server failed"));
  }
}

}  // namespace eigenformer
