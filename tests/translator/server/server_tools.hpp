#pragma once

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "translator/server/translation_server.hpp"

namespace eigenformer::testing {

/// A backend with one thread that "translates" a text to itself in brackets, after the
/// adapter's name. Of some texts it does something
/// else: "fail" fails, "full" has no room, "wait" waits until it is let go or cancelled, "steps" shows two
/// beginnings first.
class FakeBackend final : public TranslationBackend {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int waiting = 0, cancelled = 0, alive = 0;
    bool let_go = false;

    template <class F>
    bool wait_for(F&& f, std::chrono::seconds time = std::chrono::seconds(20)) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, time, [&] { return f(*this); });
    }
  };

  explicit FakeBackend(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {
    const std::scoped_lock lock(shared_->mutex);
    ++shared_->alive;
    thread_ = std::thread([this] { work(); });
  }
  ~FakeBackend() override {
    {
      const std::scoped_lock lock(shared_->mutex);
      over_ = true;
      --shared_->alive;
    }
    shared_->changed.notify_all();
    thread_.join();
  }

  std::function<void()> start(TranslationTask task, TaskEvents events) override {
    if (task.texts.front() == "full") throw HttpError(503, "the queue is full");
    auto job = std::make_shared<Job>(Job{std::move(task), std::move(events), false});
    {
      const std::scoped_lock lock(shared_->mutex);
      jobs_.push_back(job);
      if (job->task.texts.front() == "wait") ++shared_->waiting;
    }
    shared_->changed.notify_all();
    return [job, shared = shared_] {
      {
        const std::scoped_lock lock(shared->mutex);
        job->cancelled = true;
        ++shared->cancelled;
      }
      shared->changed.notify_all();
    };
  }

 private:
  struct Job {
    TranslationTask task;
    TaskEvents events;
    bool cancelled;
  };

  // The first job that need not wait.
  std::shared_ptr<Job> next() {
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
      if ((*job)->task.texts.front() == "wait" && !(*job)->cancelled && !shared_->let_go && !over_) continue;
      auto found = *job;
      jobs_.erase(job);
      return found;
    }
    return nullptr;
  }

  void work() {
    std::unique_lock lock(shared_->mutex);
    for (;;) {
      std::shared_ptr<Job> job;
      shared_->changed.wait(lock, [&] { return (job = next()) != nullptr || over_; });
      if (job == nullptr) return;
      const bool cancelled = job->cancelled;
      lock.unlock();
      run(*job, cancelled);
      job.reset();
      lock.lock();
    }
  }

  static void run(const Job& job, bool cancelled) {
    if (cancelled || job.task.texts.front() == "fail")
      return job.events.failed(std::make_exception_ptr(std::runtime_error("secret of the model")));
    std::vector<TranslatedText> results;
    for (std::size_t i = 0; i < job.task.texts.size(); ++i) {
      const std::string& text = job.task.texts[i];
      if (text == "steps" && job.events.partial) {
        job.events.partial(i, "one");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        job.events.partial(i, "one two");
      }
      TranslatedText result{.text = job.task.adapter + (job.task.html ? "<" : "[") + text + "]"};
      for (index_t k = 0; k < job.task.alternatives; ++k)
        result.alternatives.push_back(text + std::to_string(k));
      if (job.task.details) {
        result.source_words = {text};
        result.words = {{"[" + text + "]", 0.5, {0}}};
      }
      results.push_back(std::move(result));
    }
    job.events.done(std::move(results));
  }

  std::shared_ptr<Shared> shared_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool over_ = false;
  std::thread thread_;
};

/// A connection to a server on this machine.
class Client {
 public:
  using tcp = boost::asio::ip::tcp;
  using Answer = boost::beast::http::response<boost::beast::http::string_body>;

  explicit Client(unsigned short port) : socket_(context_) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
    // No test waits for ever.
    const timeval limit{20, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }

  void send(const std::string& bytes) { boost::asio::write(socket_, boost::asio::buffer(bytes)); }
  /// Sends no more.
  void half_close() { socket_.shutdown(tcp::socket::shutdown_send); }
  void close() { socket_.close(); }

  /// Throws boost::system::system_error where none comes.
  Answer answer() {
    Answer answer;
    boost::beast::http::read(socket_, buffer_, answer);
    return answer;
  }
  /// What comes until the server closes the connection.
  std::string rest() {
    std::string text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    boost::system::error_code ignored;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), ignored);
    return text;
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
};

inline std::string get(const std::string& path, const std::string& headers = "",
                       const std::string& method = "GET") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

inline std::string post(const std::string& path, const std::string& body,
                        const std::string& headers = "Content-Type: application/json\r\n") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

/// A request to /translate from English to German.
inline std::string translate(const nlohmann::json& q, nlohmann::json more = nlohmann::json::object()) {
  nlohmann::json body = {{"q", q}, {"source", "en"}, {"target", "de"}};
  body.update(more);
  return post("/translate", body.dump());
}

/// A server with fake models from English to German and back; adapters: of the first of them.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = {},
                      std::vector<std::pair<std::string, std::string>> pairs = {{"en", "de"}, {"de", "en"}},
                      std::vector<std::string> adapters = {})
      : shared(std::make_shared<FakeBackend::Shared>()) {
    options.port = 0;
    std::vector<ServedModel> models;
    for (const auto& [source, target] : pairs)
      models.push_back({source, target, [shared = shared] { return std::make_unique<FakeBackend>(shared); }});
    models.front().adapters = std::move(adapters);
    ServerLog log;
    log.request = [this](const HttpRecord& record) {
      const std::scoped_lock lock(mutex_);
      records_.push_back(record);
    };
    server = std::make_unique<TranslationServer>(std::move(options), std::move(models), std::move(log));
    server->start();
  }

  Client connect() const { return Client(server->port()); }
  Client::Answer ask(const std::string& request) const {
    Client client = connect();
    client.send(request);
    return client.answer();
  }
  /// Fails a test by an exception where the answer is none of JSON.
  nlohmann::json json(const std::string& request, unsigned status = 200) const {
    const auto answer = ask(request);
    if (answer.result_int() != status)
      throw std::runtime_error("status " + std::to_string(answer.result_int()) + ": " + answer.body());
    return nlohmann::json::parse(answer.body());
  }
  std::vector<HttpRecord> records() {
    const std::scoped_lock lock(mutex_);
    return records_;
  }
  void let_go() {
    {
      const std::scoped_lock lock(shared->mutex);
      shared->let_go = true;
    }
    shared->changed.notify_all();
  }

  std::shared_ptr<FakeBackend::Shared> shared;

 private:
  std::mutex mutex_;
  std::vector<HttpRecord> records_;

 public:
  std::unique_ptr<TranslationServer> server;
};

}  // namespace eigenformer::testing
