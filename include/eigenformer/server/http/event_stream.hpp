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

/// The bytes of an answer of server-sent events (HTML Living Standard, 9.2) that wait to be written. What a
/// slow client leaves waiting does not grow with time: an event may replace an earlier one.
class EventStream {
 public:
  /// chunked: whether the body is sent in HTTP/1.1's chunks.
  void begin(const boost::beast::http::response<boost::beast::http::empty_body>& header, bool chunked) {
    std::ostringstream text;
    text << header.base();
    waiting_ = text.str();
    replaceable_.clear();
    chunked_ = chunked;
    ended_ = false;
  }

  /// data: one line of text.
  void add(const std::string& name, const std::string& data) {
    flush();
    append(encoded(name, data));
  }

  /// An event that is only sent where no later one of its number comes before it could be.
  void replace(std::size_t number, const std::string& name, const std::string& data) {
    replaceable_[number] = encoded(name, data);
  }

  void end() {
    flush();
    if (chunked_ && !ended_) waiting_ += "0\r\n\r\n";
    ended_ = true;
  }
  bool ended() const { return ended_; }

  /// All that waits.
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
