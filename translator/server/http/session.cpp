#include "translator/server/http/session.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <sstream>
#include <string_view>

namespace eigenformer::detail {

namespace {

std::string encoded(const std::string& name, const std::string& data) {
  return "event: " + name + "\ndata: " + data + "\n\n";
}

// A text of the client for the log: printable ASCII, and not long.
std::string escaped(std::string_view text, std::size_t most) {
  std::string escaped;
  for (const char c : text) {
    if (escaped.size() + 3 > most) return escaped + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7F && c != '"' && c != '\\') {
      escaped += c;
    } else {
      constexpr std::string_view digits = "0123456789ABCDEF";
      escaped += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return escaped;
}

// A target that is a complete URL (RFC 9112, section 3.2.2) without its scheme and host; any other as it
// is.
std::string without_origin(boost::beast::string_view given) {
  const std::string target(given.data(), given.size());
  for (const std::string scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    const std::size_t end = std::min(target.find_first_of("/?", scheme.size()), target.size());
    const std::string rest = target.substr(end);
    return rest.starts_with('/') ? rest : "/" + rest;
  }
  return target;
}

}  // namespace

void EventStream::begin(const boost::beast::http::response<boost::beast::http::empty_body>& header,
                        bool chunked) {
  std::ostringstream text;
  text << header.base();
  waiting_ = text.str();
  replaceable_.clear();
  chunked_ = chunked;
  ended_ = false;
}

void EventStream::add(const std::string& name, const std::string& data) {
  flush();
  append(encoded(name, data));
}

void EventStream::replace(std::size_t number, const std::string& name, const std::string& data) {
  replaceable_[number] = encoded(name, data);
}

void EventStream::end() {
  flush();
  if (chunked_ && !ended_) waiting_ += "0\r\n\r\n";
  ended_ = true;
}

std::string EventStream::take() {
  flush();
  return std::exchange(waiting_, {});
}

void EventStream::append(const std::string& bytes) {
  if (ended_) return;
  if (!chunked_) {
    waiting_ += bytes;
    return;
  }
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  waiting_ += size + bytes + "\r\n";
}

void EventStream::flush() {
  for (const auto& [number, bytes] : replaceable_) append(bytes);
  replaceable_.clear();
}

HttpSession::HttpSession(tcp::socket socket, const ServerOptions& options, const HttpHandler& handler,
                         std::function<void(HttpSession*)> ended)
    : stream_(std::move(socket)),
      timer_(stream_.get_executor()),
      options_(options),
      handler_(handler),
      ended_(std::move(ended)),
      count_extensions_([this](std::uint64_t, boost::beast::string_view extensions, ErrorCode& error) {
        chunk_extensions_ += extensions.size();
        if (chunk_extensions_ > most_header) error = boost::beast::http::error::bad_chunk_extension;
      }) {
  boost::system::error_code ignored;
  client_ = stream_.socket().remote_endpoint(ignored).address().to_string();
  stream_.socket().set_option(tcp::no_delay(true), ignored);
}

void HttpSession::start() {
  in_strand([self = shared_from_this()] { self->read(); });
}

void HttpSession::refuse() {
  in_strand([self = shared_from_this()] {
    self->refuse_request(503, "the server has too many connections", {{"Retry-After", "1"}});
  });
}

void HttpSession::stop() {
  announce_stop();
  in_strand([self = shared_from_this()] {
    const bool begun = self->parser_ && self->parser_->got_some();  // no parser: start() was not called
    if (self->state_ == State::reading && !begun && self->buffer_.size() == 0) self->close();
  });
}

void HttpSession::abort() {
  in_strand([self = shared_from_this()] { self->lose(); });
}

void HttpSession::read() {
  namespace http = boost::beast::http;
  if (state_ == State::closed || (stopping_ && buffer_.size() == 0)) return close();
  state_ = State::reading;
  origin_.clear();
  request_ = {};
  chunk_extensions_ = 0;
  parser_.emplace();
  parser_->header_limit(most_header);
  parser_->on_chunk_header(count_extensions_);
  parser_->body_limit(static_cast<std::uint64_t>(options_.max_body));
  stream_.expires_after(std::chrono::seconds(options_.read_seconds));
  http::async_read_header(stream_, buffer_, *parser_, then(&HttpSession::header_read));
}

void HttpSession::header_read(ErrorCode error, std::size_t) {
  namespace http = boost::beast::http;
  if (error) return reading_failed(error);
  const auto& header = parser_->get();
  // What follows the header may have a trailer, whose fields the parser adds to these.
  keep_alive_ = header.keep_alive();
  version_ = header.version();
  read_fields(header);
  if (std::distance(header.begin(), header.end()) > static_cast<std::ptrdiff_t>(most_fields))
    return refuse_request(431, "the header has more than " + std::to_string(most_fields) + " fields");
  const std::size_t hosts = header.count(http::field::host);
  if (hosts > 1 || (header.version() >= 11 && hosts == 0))
    return refuse_request(400, hosts == 0 ? "the request has no Host" : "the request has more than one Host");
  // RFC 9112, section 6.1.
  if (header.version() < 11 && header.count(http::field::transfer_encoding) > 0)
    return refuse_request(400,
                          "the request has a Transfer-Encoding, which its version of HTTP does not have");
  const auto length = header[http::field::content_length];
  if (header.count(http::field::content_length) > 1 ||
      length.find_first_not_of("0123456789") != boost::beast::string_view::npos)
    return refuse_request(400, "the Content-Length is not one number");
  // Only one form is accepted: a proxy in front might disagree with us on where the body ends.
  if (header.count(http::field::transfer_encoding) > 0 &&
      (header.count(http::field::transfer_encoding) > 1 ||
       !boost::beast::iequals(header[http::field::transfer_encoding], "chunked")))
    return refuse_request(501, "the Transfer-Encoding is not supported, expected chunked");
  if (header.count(http::field::content_encoding) > 0 &&
      !boost::beast::iequals(header[http::field::content_encoding], "identity"))
    return refuse_request(415, "the Content-Encoding is not supported, expected none");
  const bool asks = boost::beast::iequals(header[http::field::expect], "100-continue");
  if (!asks || parser_->is_done() || buffer_.size() > 0) return read_body({}, 0);
  out_ = "HTTP/1.1 100 Continue\r\n\r\n";
  boost::asio::async_write(stream_, boost::asio::buffer(out_), then(&HttpSession::read_body));
}

void HttpSession::read_body(ErrorCode error, std::size_t) {
  if (error) return close();
  boost::beast::http::async_read(stream_, buffer_, *parser_, then(&HttpSession::body_read));
}

void HttpSession::body_read(ErrorCode error, std::size_t) {
  if (error) return reading_failed(error);
  begin_request();
  keep_alive_ = keep_alive_ && !stopping_;
  head_ = record_.method == "HEAD";
  // A HEAD is answered as a GET, without the body.
  if (head_) request_.method = "GET";
  request_.body = std::move(parser_->get().body());
  state_ = State::answering;
  limit_time(std::chrono::seconds(options_.answer_seconds));
  watch();
  handle(std::move(request_));
}

// Takes from a header what a request has of it.
template <class Header>
void HttpSession::read_fields(const Header& header) {
  namespace http = boost::beast::http;
  request_.method = std::string(header.method_string());
  const std::string target = without_origin(header.target());
  const std::size_t mark = target.find('?');
  request_.path = target.substr(0, mark);
  if (mark != std::string::npos) request_.query = target.substr(mark + 1);
  request_.content_type = std::string(header[http::field::content_type]);
  request_.host = std::string(header[http::field::host]);
  request_.https = boost::beast::iequals(header["X-Forwarded-Proto"], "https");
  request_.origin = origin_ = std::string(header[http::field::origin]);
  request_.authorization = std::string(header[http::field::authorization]);
  request_.client = client_;
}

void HttpSession::handle(HttpRequest request) {
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

// Answers a request that cannot be read to its end with an error if its client is still connected.
void HttpSession::reading_failed(ErrorCode error) {
  namespace http = boost::beast::http;
  if (error.category() != http::make_error_code(http::error::bad_method).category() ||
      error == http::error::end_of_stream || error == http::error::partial_message)
    return close();
  read_fields(parser_->get());  // those that came before the error
  if (error == http::error::body_limit)
    return refuse_request(413, "the body has more than " + std::to_string(options_.max_body) + " bytes");
  if (error == http::error::header_limit) {
    if (parser_->get().method_string().empty()) return refuse_request(414, "the request line is too long");
    return refuse_request(431, "the header is too long");
  }
  if (error == http::error::buffer_overflow)
    return refuse_request(431, "the line before a chunk, or the trailer, has more than " +
                                   std::to_string(most_buffered) + " bytes");
  if (chunk_extensions_ > most_header)
    return refuse_request(
        413, "the chunks have more than " + std::to_string(most_header) + " bytes of extensions");
  refuse_request(400, "the request is not valid HTTP: " + error.message());
}

void HttpSession::refuse_request(unsigned status, const std::string& why, const HttpHeaders& headers) {
  begin_request();
  keep_alive_ = false;
  send_error(HttpError(status, why, headers));
}

void HttpSession::begin_request() {
  ++number_;
  state_ = State::answering;
  began_ = Clock::now();
  record_ = {};
  record_.client = client_;
  record_.method = escaped(request_.method, 32);
  record_.path = escaped(request_.path, 200);
  gone_ = nullptr;
  half_closed_ = false;
  head_ = false;
}

// Detects that the client disconnects before its answer is sent.
void HttpSession::watch() {
  stream_.socket().async_wait(
      tcp::socket::wait_read, [self = shared_from_this(), number = number_](ErrorCode error) {
        if (error || number != self->number_ || !self->is_answering()) return;
        char byte = 0;
        self->stream_.socket().non_blocking(true, error);
        const std::size_t size =
            self->stream_.socket().receive(boost::asio::buffer(&byte, 1), tcp::socket::message_peek, error);
        if (size > 0) return;  // the next request
        if (error == boost::asio::error::would_block) return self->watch();
        if (error != boost::asio::error::eof) return self->lose();
        self->half_closed_ = true;
        self->keep_alive_ = false;
        self->limit_time(half_closed_time);
      });
}

void HttpSession::limit_time(std::chrono::seconds time) {
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), number = number_](ErrorCode error) {
    if (error || number != self->number_ || !self->is_answering()) return;
    if (self->half_closed_) return self->lose();
    const HttpError late(
        503, "the answer took longer than " + std::to_string(self->options_.answer_seconds) + " seconds",
        {{"Retry-After", "1"}});
    self->tell_gone();
    self->fail(late);
  });
}

void HttpSession::fail(const HttpError& error) {
  if (state_ == State::answering) return send_error(error);
  if (state_ != State::streaming) return;
  events_.add("error", handler_.error_answer(error).body);
  end_stream();
}

void HttpSession::tell_gone() {
  if (auto gone = std::exchange(gone_, nullptr)) gone();
}

// Handles the loss of the client.
void HttpSession::lose() {
  if (is_answering()) {
    record_.status = 499;
    tell_gone();
    request_over();
  }
  close();
}

void HttpSession::send(HttpAnswer answer) {
  namespace http = boost::beast::http;
  if (state_ != State::answering) return;
  state_ = State::writing;
  quiet();
  answer_.emplace(static_cast<http::status>(answer.status), version_);
  write_headers(*answer_, answer);
  answer_->keep_alive(keep_alive_);
  answer_->body() = std::move(answer.body);
  answer_->prepare_payload();
  record_.status = answer.status;
  stream_.expires_after(std::chrono::seconds(options_.write_seconds));
  if (!head_) return http::async_write(stream_, *answer_, then(&HttpSession::written));
  serializer_.emplace(*answer_);
  http::async_write_header(stream_, *serializer_, then(&HttpSession::written));
}

template <class Message>
void HttpSession::write_headers(Message& message, const HttpAnswer& answer) const {
  namespace http = boost::beast::http;
  message.set(http::field::server, "eigenformer");
  message.set(http::field::content_type, answer.content_type);
  message.set(http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : handler_.common_headers(origin_)) message.set(name, value);
  for (const auto& [name, value] : answer.headers) message.set(name, value);
}

// Cancels the timer and the wait of watch(): from now on, the session only writes.
void HttpSession::quiet() {
  timer_.cancel();
  ErrorCode ignored;
  stream_.socket().cancel(ignored);
}

void HttpSession::written(ErrorCode error, std::size_t) {
  serializer_.reset();
  answer_.reset();
  if (error) {
    record_.status = 499;
    request_over();
    return close();
  }
  request_over();
  if (keep_alive_ && !stopping_) return read();
  linger();
}

void HttpSession::request_over() {
  record_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  ++number_;
  gone_ = nullptr;
  handler_.over(record_);
}

// Closes the sending direction, and reads until the client closes the connection or has sent too much.
void HttpSession::linger() {
  state_ = State::writing;
  ErrorCode ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream_.expires_after(discarding_time);
  discard({}, 0);
}

void HttpSession::discard(ErrorCode error, std::size_t size) {
  discarded_ += size;
  buffer_.clear();
  if (error || discarded_ > most_discarded) return close();
  stream_.async_read_some(buffer_.prepare(64 * 1024), then(&HttpSession::discard));
}

void HttpSession::close() {
  state_ = State::closed;
  timer_.cancel();
  stream_.close();
}

void HttpSession::begin_stream(HttpAnswer answer) {
  namespace http = boost::beast::http;
  if (state_ != State::answering) return;
  state_ = State::streaming;
  http::response<http::empty_body> header(static_cast<http::status>(answer.status), version_);
  write_headers(header, answer);
  // HTTP/1.0 has no chunks: closing the connection ends the stream.
  if (version_ < 11) keep_alive_ = false;
  header.keep_alive(keep_alive_);
  header.chunked(version_ >= 11);
  record_.status = answer.status;
  events_.begin(header, version_ >= 11);
  write_events();
}

void HttpSession::end_stream() {
  if (state_ != State::streaming) return;
  events_.end();
  write_events();
}

void HttpSession::write_events() {
  if (writing_events_ || state_ != State::streaming) return;
  out_ = events_.take();
  if (out_.empty()) {
    if (!events_.ended()) return;
    quiet();
    return written({}, 0);
  }
  writing_events_ = true;
  stream_.expires_after(std::chrono::seconds(options_.write_seconds));
  boost::asio::async_write(stream_, boost::asio::buffer(out_),
                           [self = shared_from_this()](ErrorCode error, std::size_t) {
                             self->writing_events_ = false;
                             self->stream_.expires_never();
                             if (error) return self->lose();
                             self->write_events();
                           });
}

}  // namespace eigenformer::detail
