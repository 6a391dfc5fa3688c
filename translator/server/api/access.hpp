#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

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
  std::string require_key(const HttpRequest& request, std::string given) const {
    if (keys_.empty()) return request.client;
    constexpr std::string_view bearer = "bearer ";
    // The name of a scheme is case-insensitive (RFC 9110, section 11.1).
    const std::string_view scheme = std::string_view(request.authorization).substr(0, bearer.size());
    if (given.empty() && ascii_lower(scheme) == bearer) given = request.authorization.substr(bearer.size());
    if (given.empty()) throw HttpError(401, "an API key is required", {{"WWW-Authenticate", "Bearer"}});
    bool found = false;
    for (const std::string& key : keys_) found = equal(key, given) || found;
    if (!found) throw HttpError(403, "Invalid API key");
    return given;
  }

  /// Counts a request of a client, by a token bucket that holds the requests of one minute. Throws HttpError
  /// 429 with Retry-After when the bucket is empty.
  void count(const std::string& client) {
    if (per_minute_ == 0) return;
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (buckets_.size() >= most_buckets) {
      // Forgets clients with a full bucket, which is the same as a new one; all clients if that frees
      // nothing.
      std::erase_if(buckets_, [&](const auto& entry) { return tokens(entry.second, now) >= per_minute_; });
      if (buckets_.size() >= most_buckets) buckets_.clear();
    }
    Bucket& bucket = buckets_.try_emplace(client, Bucket{per_minute_, now}).first->second;
    bucket = {tokens(bucket, now), now};
    if (bucket.tokens < 1) {
      const int wait = static_cast<int>((1 - bucket.tokens) * 60 / per_minute_) + 1;
      throw HttpError(
          429, "Slow down: " + std::to_string(static_cast<index_t>(per_minute_)) + " requests a minute",
          {{"Retry-After", std::to_string(wait)}});
    }
    bucket.tokens -= 1;
  }

 private:
  struct Bucket {
    double tokens;
    Clock::time_point at;
  };
  static constexpr std::size_t most_buckets = 10'000;

  // Compares in a time that does not depend on how much of the key is right.
  static bool equal(const std::string& a, const std::string& b) {
    unsigned different = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < b.size(); ++i)
      different |= static_cast<unsigned>(static_cast<unsigned char>(a[i % a.size()]) ^
                                         static_cast<unsigned char>(b[i]));
    return different == 0;
  }

  // The tokens that a bucket holds now.
  double tokens(const Bucket& bucket, Clock::time_point now) const {
    const double minutes = std::chrono::duration<double>(now - bucket.at).count() / 60;
    return std::min(per_minute_, bucket.tokens + minutes * per_minute_);
  }

  const std::vector<std::string> keys_;
  const double per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace eigenformer::detail
