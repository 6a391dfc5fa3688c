#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

struct HttpRequest;

/// Checks API keys and limits the requests per minute of each client. Thread-safe.
class ApiAccess {
 public:
  using Clock = std::chrono::steady_clock;  ///< the clock of the rate limit

  /// keys: accepted keys, none of them empty; no keys: everybody has access. per_minute: requests per client;
  /// 0: no limit.
  ApiAccess(std::vector<std::string> keys, index_t per_minute)
      : keys_(std::move(keys)), per_minute_(static_cast<double>(per_minute)) {}

  /// Whether requests need an API key.
  bool needs_key() const noexcept { return !keys_.empty(); }

  /// Returns the key of a request, or the client's address when no key is needed; both identify the client
  /// for count(). given: the parameter api_key; when it is empty, the key is taken from "Authorization:
  /// Bearer". Throws HttpError: 401 without a key, 403 for a wrong one.
  std::string require_key(const HttpRequest& request, std::string given) const;

  /// Counts a request of a client, by a token bucket that holds the requests of one minute. Throws HttpError
  /// 429 with Retry-After when the bucket is empty.
  void count(const std::string& client);

 private:
  struct Bucket {
    double tokens;
    Clock::time_point at;
  };
  static constexpr std::size_t most_buckets = 10'000;

  // Compares in a time that does not depend on how much of the key is right.
  static bool equal(const std::string& a, const std::string& b);

  // The tokens that a bucket holds now.
  double tokens(const Bucket& bucket, Clock::time_point now) const;

  const std::vector<std::string> keys_;
  const double per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace eigenformer::detail
