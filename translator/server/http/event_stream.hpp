#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/write.hpp>
#include <cstddef>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <utility>

namespace eigenformer {

/// The unsent bytes of an answer of server-sent events (HTML Living Standard, 9.2). An event may replace an
/// earlier unsent one, so that memory for a slow client does not grow with time.
class EventStream {
 public:
  /// Begins a stream with the header of its answer. chunked: whether the body uses HTTP/1.1's chunked
  /// encoding.
  void begin(const boost::beast::http::response<boost::beast::http::empty_body>& header, bool chunked) {
    std::ostringstream text;
    text << header.base();
    waiting_ = text.str();
    replaceable_.clear();
    chunked_ = chunked;
    ended_ = false;
  }

  /// Adds an event. data: one line of text.
  void add(const std::string& name, const std::string& data) {
    flush();
    append(encoded(name, data));
  }

  /// Adds an event that replaces an unsent one with the same number.
  void replace(std::size_t number, const std::string& name, const std::string& data) {
    replaceable_[number] = encoded(name, data);
  }

  /// Ends the stream; later events are dropped.
  void end() {
    flush();
    if (chunked_ && !ended_) waiting_ += "0\r\n\r\n";
    ended_ = true;
  }
  /// Whether end() was called.
  bool ended() const { return ended_; }

  /// Returns and removes all unsent bytes.
  std::string take() {
    flush();
    return std::exchange(waiting_, {});
  }

 private:
  static std::string encoded(const std::string& name, const std::string& data) {
    return "event: " + name + "\ndata: " + data + "\n\n";
  }

  void append(const std::string& bytes) {
    if (ended_) return;
    if (!chunked_) {
      waiting_ += bytes;
      return;
    }
    char size[24];
    std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
    waiting_ += size + bytes + "\r\n";
  }

  void flush() {
    for (const auto& [number, bytes] : replaceable_) append(bytes);
    replaceable_.clear();
  }

  std::string waiting_;
  std::map<std::size_t, std::string> replaceable_;
  bool chunked_ = true, ended_ = false;
};

}  // namespace eigenformer
