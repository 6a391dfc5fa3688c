#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "translator/server/http/options.hpp"
#include "translator/server/http/reply.hpp"
#include "translator/server/http/session.hpp"

namespace eigenformer::detail {

/// An HTTP/1.1 server with a fixed number of threads for all connections.
class HttpServer {
 public:
  using tcp = boost::asio::ip::tcp;  ///< the protocol of its sockets

  /// Opens the port; connections are served after start(). Throws ValueError for invalid options, IoError
  /// when the port cannot be opened.
  HttpServer(ServerOptions options, HttpHandler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        sessions_(std::make_shared<Sessions>()),
        context_(static_cast<int>(options_.io_threads)),
        work_(boost::asio::make_work_guard(context_)),
        strand_(boost::asio::make_strand(context_)),
        acceptor_(strand_),
        pause_(strand_) {
    options_.validate();
    const tcp::endpoint endpoint(boost::asio::ip::make_address(options_.host),
                                 static_cast<unsigned short>(options_.port));
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    if (error) {
      throw IoError("server",
                    {"cannot listen at ", options_.host, " port ", options_.port, ": ", error.message()});
    }
    port_ = acceptor_.local_endpoint().port();
  }

  ~HttpServer() {
    abort();
    work_.reset();
    if (!threads_.empty()) sessions_->wait_until_none(std::chrono::seconds(5));
    context_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The TCP port that it listens at, also when options.port is 0.
  unsigned short port() const noexcept { return port_; }
  /// Number of open connections.
  std::size_t connections() const { return sessions_->count(); }

  /// Starts the threads that serve connections, as TranslationServer::start().
  void start() {
    if (!threads_.empty()) throw ValueError("server", "start() was called before, expected one call");
    try {
      threads_.reserve(static_cast<std::size_t>(options_.io_threads));
      for (index_t i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { serve(); });
      boost::asio::post(strand_, [this] { accept(); });
    } catch (...) {
      context_.stop();
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
      context_.restart();
      throw;
    }
  }

  /// Accepts no more connections, answers the requests that have begun, and returns when all connections are
  /// closed; after stop_seconds, closes those that are left.
  void stop() {
    if (threads_.empty()) return close_acceptor();
    std::promise<void> closed;
    boost::asio::post(strand_, [&] {
      close_acceptor();
      closed.set_value();
    });
    closed.get_future().wait();
    // No connection comes from now on. All sessions know before the first connection closes: a client that
    // sees one close gets answers with "Connection: close" on the others.
    sessions_->each([](HttpSession& session) { session.announce_stop(); });
    sessions_->each([](HttpSession& session) { session.stop(); });
    if (!sessions_->wait_until_none(std::chrono::seconds(options_.stop_seconds))) abort();
  }

  /// Closes all connections immediately, also in the middle of a request.
  void abort() {
    boost::asio::post(strand_, [this] { close_acceptor(); });
    sessions_->each([](HttpSession& session) { session.abort(); });
  }

 private:
  // Connections above max_connections that get an error before they are closed; further ones are closed
  // without an answer.
  static constexpr std::size_t refused_at_once = 64;

  // All sessions; a session may outlive the server while a reply refers to it.
  class Sessions {
   public:
    void add(const std::shared_ptr<HttpSession>& session) {
      const std::scoped_lock lock(mutex_);
      sessions_[session.get()] = session;
    }
    void remove(HttpSession* session) {
      const std::scoped_lock lock(mutex_);
      sessions_.erase(session);
      if (sessions_.empty()) none_.notify_all();
    }
    template <class F>
    void each(F&& f) const {
      std::vector<std::shared_ptr<HttpSession>> found;
      {
        const std::scoped_lock lock(mutex_);
        for (const auto& [key, session] : sessions_)
          if (auto locked = session.lock()) found.push_back(std::move(locked));
      }
      for (const auto& session : found) f(*session);
    }
    std::size_t count() const {
      const std::scoped_lock lock(mutex_);
      return sessions_.size();
    }
    bool wait_until_none(std::chrono::seconds time) {
      std::unique_lock lock(mutex_);
      return none_.wait_for(lock, time, [this] { return sessions_.empty(); });
    }

   private:
    mutable std::mutex mutex_;
    std::condition_variable none_;
    std::map<HttpSession*, std::weak_ptr<HttpSession>> sessions_;
  };

  // A handler throws when memory runs out. Its connection is then closed, because nothing refers to its
  // session any more, and the others are served.
  void serve() noexcept {
    for (;;) {
      try {
        context_.run();
        return;
      } catch (...) {
      }
    }
  }

  // In the strand. Tries again while memory is short: nobody else would.
  void accept() noexcept {
    while (acceptor_.is_open()) {
      try {
        return accept_one();
      } catch (...) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  void accept_one() {
    acceptor_.async_accept(
        boost::asio::make_strand(context_), [this](boost::system::error_code error, tcp::socket socket) {
          if (!acceptor_.is_open()) return;
          if (error) {  // such as no more file descriptors: trying again at once would be a busy loop
            pause_.expires_after(std::chrono::milliseconds(100));
            pause_.async_wait([this](boost::system::error_code) {
              if (acceptor_.is_open()) accept();
            });
            return;
          }
          try {
            take(std::move(socket));
          } catch (...) {
            // Memory ran out: this connection is closed, and the next ones are accepted.
          }
          accept();
        });
  }

  void take(tcp::socket socket) {
    const std::size_t open = sessions_->count(), most = static_cast<std::size_t>(options_.max_connections);
    if (open >= most + refused_at_once) return;
    const auto session =
        std::make_shared<HttpSession>(std::move(socket), options_, handler_,
                                      [sessions = sessions_](HttpSession* s) { sessions->remove(s); });
    sessions_->add(session);
    open < most ? session->start() : session->refuse();
  }

  void close_acceptor() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

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
