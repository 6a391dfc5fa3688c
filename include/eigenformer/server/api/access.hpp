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
#include "eigenformer/server/http/message.hpp"

namespace eigenformer {

/// Who may translate: those with an API key, and each of them so many times a minute.
class ApiAccess {
 public:
  using Clock = std::chrono::steady_clock;

  /// keys: empty: everybody. per_minute: 0: any number.
  ApiAccess(std::vector<std::string> keys, index_t per_minute)
      : keys_(std::move(keys)), per_minute_(static_cast<double>(per_minute)) {}

  bool needs_key() const noexcept { return !keys_.empty(); }

  /// Throws HttpError: 401 without a key, 403 with a wrong one. given: what came as api_key; else the
  /// request's "Authorization: Bearer" counts. Returns the key, or the client's address where none is asked
  /// for.
  std::string require_key(const HttpRequest& request, std::string given) const {
    if (keys_.empty()) return request.client;
    constexpr std::string_view bearer = "Bearer ";
    // The name of a scheme has no case (RFC 9110, section 11.1).
    const std::string_view scheme = std::string_view(request.authorization).substr(0, bearer.size());
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    if (given.empty() && std::equal(scheme.begin(), scheme.end(), bearer.begin(), bearer.end(),
                                    [&](char a, char b) { return lower(a) == lower(b); }))
      given = request.authorization.substr(bearer.size());
    if (given.empty()) throw HttpError(401, "an API key is required", {{"WWW-Authenticate", "Bearer"}});
    bool found = false;
    for (const std::string& key : keys_) found = equal(key, given) || found;
    if (!found) throw HttpError(403, "Invalid API key");
    return given;
  }

  /// Counts a request of a client. Throws HttpError 429 where it has had its number: a bucket of tokens, one
  /// minute's, that fills all the time.
  void count(const std::string& client) {
    if (per_minute_ == 0) return;
    const std::scoped_lock lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (buckets_.size() >= most_buckets) forget(now);
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

  // In a time that does not tell how much of a key was right.
  static bool equal(const std::string& a, const std::string& b) {
    unsigned different = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < b.size(); ++i)
      different |= static_cast<unsigned>(static_cast<unsigned char>(a[i % a.size()]) ^
                                         static_cast<unsigned char>(b[i]));
    return different == 0;
  }

  // What a bucket holds now.
  double tokens(const Bucket& bucket, Clock::time_point now) const {
    const double minutes = std::chrono::duration<double>(now - bucket.at).count() / 60;
    return std::min(per_minute_, bucket.tokens + minutes * per_minute_);
  }

  // Forgets those whose bucket is full, as a new one is; all, where that makes no room.
  void forget(Clock::time_point now) {
    std::erase_if(buckets_, [&](const auto& entry) { return tokens(entry.second, now) >= per_minute_; });
    if (buckets_.size() >= most_buckets) buckets_.clear();
  }

  const std::vector<std::string> keys_;
  const double per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace eigenformer
