#include "translator/server/http/options.hpp"

#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>
#include <utility>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

bool ServerOptions::is_reachable() const {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  if (!error) return !address.is_loopback();
  throw ValueError(
      "server",
      {"host is '", host,
       "', must be an address, such as 127.0.0.1, ::1, or 0.0.0.0 for all addresses of this machine"});
}

void ServerOptions::validate() const {
  validate_fields("server", *this);
  const auto at_most = [](const char* name, index_t value, index_t most) {
    if (value <= most) return;
    throw ValueError("server", {name, " is ", value, ", must be at most ", most});
  };
  at_most("port", port, 65535);
  at_most("io_threads", io_threads, 64);
  at_most("max_connections", max_connections, 100'000);
  at_most("max_body", max_body, index_t{1} << 30);
  at_most("max_texts", max_texts, 100'000);
  at_most("max_alternatives", max_alternatives, 100);
  at_most("max_requests", max_requests, 100'000);
  for (const auto& [name, value] :
       {std::pair("read_seconds", read_seconds), std::pair("write_seconds", write_seconds),
        std::pair("answer_seconds", answer_seconds), std::pair("stop_seconds", stop_seconds)})
    at_most(name, value, 24 * 60 * 60);
  at_most("file_minutes", file_minutes, 365 * 24 * 60);
  at_most("max_file_bytes", max_file_bytes, index_t{1} << 40);
  at_most("idle_minutes", idle_minutes, 365 * 24 * 60);
  if (is_reachable() && api_keys.empty()) {
    throw ValueError("server",
                     {"host is ", host, ", which other machines can reach: api_keys must have a key"});
  }
  for (const std::string& key : api_keys) {
    if (key.size() < 8)
      throw ValueError("server", "api_keys has a key of fewer than 8 characters, must have at least 8");
  }
}

}  // namespace eigenformer
