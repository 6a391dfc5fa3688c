#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "translator/server/http/options.hpp"
#include "translator/server/http/reply.hpp"

namespace eigenformer::detail {

/// An HTTP/1.1 server with a fixed number of threads for all connections.
class HttpServer {
 public:
  using tcp = boost::asio::ip::tcp;  ///< the protocol of its sockets

  /// Opens the port; connections are served after start(). Throws ValueError for invalid options, IoError
  /// when the port cannot be opened.
  HttpServer(ServerOptions options, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The TCP port that it listens at, also when options.port is 0.
  unsigned short port() const noexcept { return port_; }
  /// Number of open connections.
  std::size_t connections() const;

  /// Starts the threads that serve connections, as TranslationServer::start().
  void start();

  /// Accepts no more connections, answers the requests that have begun, and returns when all connections are
  /// closed; after stop_seconds, closes those that are left.
  void stop();

  /// Closes all connections immediately, also in the middle of a request.
  void abort();

 private:
  class Sessions;

  void serve() noexcept;
  void accept() noexcept;
  void accept_one();
  void take(tcp::socket socket);
  void close_acceptor();

  ServerOptions options_;
  HttpHandler handler_;
  std::shared_ptr<Sessions> sessions_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  unsigned short port_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace eigenformer::detail
