#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "translator/server/http/message.hpp"

namespace eigenformer::detail {

/// The counters of a server, exported in the text format 0.0.4 of Prometheus. Thread-safe.
class ServerMetrics {
 public:
  /// Counts a finished request by route and status, and its time in the route's histogram.
  void request_over(const HttpRecord& record);
  /// Counts translated texts and their characters, in Unicode code points of the source.
  void add_translated(std::size_t texts, std::size_t characters);
  /// Counts a model that was loaded, or an idle one that was unloaded.
  void add_model(bool loaded) {
    const std::scoped_lock lock(mutex_);
    ++(loaded ? loads_ : drops_);
  }

  /// Returns all metrics as text for Prometheus. The arguments are current values: translations accepted and
  /// not answered, open connections, loaded models.
  std::string text(std::size_t in_flight, std::size_t connections, std::size_t models) const;

 private:
  static constexpr std::array bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                        0.25,  0.5,    1.0,   2.5,  5.0,   10.0, 30.0};
  struct Histogram {
    std::array<std::uint64_t, bounds.size() + 1> counts{};
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, unsigned>, std::uint64_t> requests_;
  std::map<std::string, Histogram> seconds_;
  std::uint64_t texts_ = 0, characters_ = 0, loads_ = 0, drops_ = 0;
};

}  // namespace eigenformer::detail
