#include "translator/server/api/access.hpp"

#include <algorithm>
#include <string_view>

#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

std::string ApiAccess::require_key(const HttpRequest& request, std::string given) const {
  if (keys_.empty()) return request.client;
  constexpr std::string_view bearer = "bearer ";
  // The name of a scheme is case-insensitive (RFC 9110, section 11.1).
  const std::string_view scheme = std::string_view(request.authorization).substr(0, bearer.size());
  if (given.empty() && ascii_lower(scheme) == bearer)
    given = request.authorization.substr(bearer.size());
  if (given.empty()) throw HttpError(401, "an API key is required", {{"WWW-Authenticate", "Bearer"}});
  bool found = false;
  for (const std::string& key : keys_) found = equal(key, given) || found;
  if (!found) throw HttpError(403, "Invalid API key");
  return given;
}

void ApiAccess::count(const std::string& client) {
  if (per_minute_ == 0) return;
  const std::scoped_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (buckets_.size() >= most_buckets) {
    // Forgets clients with a full bucket, which is the same as a new one; all clients if that frees nothing.
    std::erase_if(buckets_, [&](const auto& entry) { return tokens(entry.second, now) >= per_minute_; });
    if (buckets_.size() >= most_buckets) buckets_.clear();
  }
  Bucket& bucket = buckets_.try_emplace(client, Bucket{per_minute_, now}).first->second;
  bucket = {tokens(bucket, now), now};
  if (bucket.tokens < 1) {
    const int wait = static_cast<int>((1 - bucket.tokens) * 60 / per_minute_) + 1;
    throw HttpError(429,
                    "Slow down: " + std::to_string(static_cast<index_t>(per_minute_)) + " requests a minute",
                    {{"Retry-After", std::to_string(wait)}});
  }
  bucket.tokens -= 1;
}

bool ApiAccess::equal(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i)
    different |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i % a.size()]) ^ static_cast<unsigned char>(b[i]));
  return different == 0;
}

double ApiAccess::tokens(const Bucket& bucket, Clock::time_point now) const {
  const double minutes = std::chrono::duration<double>(now - bucket.at).count() / 60;
  return std::min(per_minute_, bucket.tokens + minutes * per_minute_);
}

}  // namespace eigenformer::detail
