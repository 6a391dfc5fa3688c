#include "translator/server/http/reply.hpp"

#include "translator/server/http/session.hpp"

namespace eigenformer::detail {

template <class F>
void HttpReply::in_strand(F f) const {
  session_->in_strand([session = session_, number = number_, f = std::move(f)]() mutable {
    if (session->number_ == number) f(*session);
  });
}

void HttpReply::send(HttpAnswer answer) const {
  in_strand([answer = std::move(answer)](HttpSession& s) mutable { s.send(std::move(answer)); });
}

void HttpReply::send(const HttpError& error) const {
  in_strand([error](HttpSession& s) { s.fail(error); });
}

void HttpReply::begin_stream(HttpAnswer header) const {
  in_strand([header = std::move(header)](HttpSession& s) mutable { s.begin_stream(std::move(header)); });
}

void HttpReply::event(std::string name, std::string data, std::optional<std::size_t> replaces) const {
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

void HttpReply::end_stream() const {
  in_strand([](HttpSession& s) { s.end_stream(); });
}

void HttpReply::when_gone(std::function<void()> gone) const { session_->gone_ = std::move(gone); }

void HttpReply::describe(std::string route, std::string note) const {
  session_->record_.route = std::move(route);
  session_->record_.note = std::move(note);
}

}  // namespace eigenformer::detail
