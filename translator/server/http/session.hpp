#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "translator/server/http/message.hpp"
#include "translator/server/http/options.hpp"
#include "translator/server/http/reply.hpp"

namespace eigenformer::detail {

/// The unsent bytes of an answer of server-sent events (HTML Living Standard, 9.2). An event may replace an
/// earlier unsent one, so that memory for a slow client does not grow with time.
class EventStream {
 public:
  /// Begins a stream with the header of its answer. chunked: whether the body uses HTTP/1.1's chunked
  /// encoding.
  void begin(const boost::beast::http::response<boost::beast::http::empty_body>& header, bool chunked);

  /// Adds an event. data: one line of text.
  void add(const std::string& name, const std::string& data);

  /// Adds an event that replaces an unsent one with the same number.
  void replace(std::size_t number, const std::string& name, const std::string& data);

  /// Ends the stream; later events are dropped.
  void end();
  /// Whether end() was called.
  bool ended() const { return ended_; }

  /// Returns and removes all unsent bytes.
  std::string take();

 private:
  void append(const std::string& bytes);
  void flush();

  std::string waiting_;
  std::map<std::size_t, std::string> replaceable_;
  bool chunked_ = true, ended_ = false;
};

/// A connection and its requests, one after the other. All handlers run in the socket's strand; the public
/// functions may be called from any thread.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  using tcp = boost::asio::ip::tcp;  ///< the protocol of its socket

  /// options and handler are held by reference. ended: called by the destructor.
  HttpSession(tcp::socket socket, const ServerOptions& options, const HttpHandler& handler,
              std::function<void(HttpSession*)> ended);
  ~HttpSession() { ended_(this); }
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  /// Begins to read requests.
  void start();
  /// Answers 503 because there are too many connections, and closes the connection.
  void refuse();
  /// Makes the next answer the connection's last one; stop() follows. From any thread, with effect at once.
  void announce_stop() noexcept { stopping_ = true; }
  /// Closes the connection after the current request is answered, or at once when there is none.
  void stop();
  /// Closes the connection at once, also in the middle of a request.
  void abort();

 private:
  friend class HttpReply;
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::beast::error_code;
  enum class State { reading, answering, streaming, writing, closed };

  // Bytes of a request line, of all header fields, and of the extensions of all chunks; number of fields.
  static constexpr std::size_t most_header = 16 * 1024, most_fields = 128;
  // Bytes that are received and not yet parsed: of the trailer, of the line before a chunk, and of pipelined
  // requests, together. The rest of a body goes to its string.
  static constexpr std::size_t most_buffered = 64 * 1024;
  // How long a request continues after its client has closed its sending direction: it may have disconnected.
  static constexpr std::chrono::seconds half_closed_time{2};
  // Bytes that are read and discarded after an error answer, before the connection is closed: closing
  // earlier would reset it, and the client might lose the answer.
  static constexpr std::size_t most_discarded = 1 << 22;
  static constexpr std::chrono::seconds discarding_time{2};

  template <class F>
  void in_strand(F&& f) {
    boost::asio::post(stream_.get_executor(), std::forward<F>(f));
  }
  template <class F>
  auto then(F f) {
    return [self = shared_from_this(), f](auto&&... values) { (self.get()->*f)(values...); };
  }

  void read();
  void header_read(ErrorCode error, std::size_t);
  void read_body(ErrorCode error, std::size_t);
  void body_read(ErrorCode error, std::size_t);
  template <class Header>
  void read_fields(const Header& header);
  void handle(HttpRequest request);
  void reading_failed(ErrorCode error);
  void begin_request();
  void watch();
  bool is_answering() const { return state_ == State::answering || state_ == State::streaming; }
  void limit_time(std::chrono::seconds time);
  void tell_gone();
  void lose();
  void send_error(const HttpError& error) { send(handler_.error_answer(error)); }
  // Answers a request that cannot be read, and closes the connection.
  void refuse_request(unsigned status, const std::string& why, const HttpHeaders& headers = {});
  // Ends the current request with an error answer, or in a stream with an event "error".
  void fail(const HttpError& error);
  void send(HttpAnswer answer);
  template <class Message>
  void write_headers(Message& message, const HttpAnswer& answer) const;
  void quiet();
  void written(ErrorCode error, std::size_t);
  void request_over();
  void linger();
  void discard(ErrorCode error, std::size_t size);
  void close();
  void begin_stream(HttpAnswer answer);
  void end_stream();
  void write_events();

  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer timer_;
  const ServerOptions& options_;
  const HttpHandler& handler_;
  std::function<void(HttpSession*)> ended_;
  std::string client_;
  std::string origin_;   // of the current request
  HttpRequest request_;  // the current one until it is handled
  boost::beast::flat_buffer buffer_{most_buffered};
  std::function<void(std::uint64_t, boost::beast::string_view, ErrorCode&)> count_extensions_;
  std::size_t chunk_extensions_ = 0;  // bytes of them in the current request
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<boost::beast::http::response<boost::beast::http::string_body>> answer_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::string_body>> serializer_;
  EventStream events_;
  std::string out_;
  bool writing_events_ = false;
  State state_ = State::reading;
  std::uint64_t number_ = 0;  // of the request that is answered; a reply to an earlier one is late
  Clock::time_point began_{};
  HttpRecord record_;
  std::function<void()> gone_;
  bool keep_alive_ = true, half_closed_ = false, head_ = false;
  std::atomic<bool> stopping_{false};
  unsigned version_ = 11;
  std::size_t discarded_ = 0;
};

}  // namespace eigenformer::detail
