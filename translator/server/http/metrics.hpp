#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "translator/server/http/message.hpp"
#include "translator/training/process_memory.hpp"

namespace eigenformer::detail {

/// The counters of a server, exported in the text format 0.0.4 of Prometheus. Thread-safe.
class ServerMetrics {
 public:
  /// Counts a finished request by route and status, and its time in the route's histogram.
  void request_over(const HttpRecord& record) {
    const std::scoped_lock lock(mutex_);
    const std::string route = record.route.empty() ? "other" : record.route;
    ++requests_[{route, record.status}];
    Histogram& histogram = seconds_[route];
    std::size_t i = 0;
    while (i < bounds.size() && record.seconds > bounds[i]) ++i;
    ++histogram.counts[i];
    histogram.sum += record.seconds;
  }

  /// Counts translated texts and their characters, in Unicode code points of the source.
  void add_translated(std::size_t texts, std::size_t characters) {
    const std::scoped_lock lock(mutex_);
    texts_ += texts;
    characters_ += characters;
  }

  /// Counts a model that was loaded, or an idle one that was unloaded.
  void add_model(bool loaded) {
    const std::scoped_lock lock(mutex_);
    ++(loaded ? loads_ : drops_);
  }

  /// Returns all metrics as text for Prometheus. The arguments are current values: translations accepted and
  /// not answered, open connections, loaded models.
  std::string text(std::size_t in_flight, std::size_t connections, std::size_t models) const {
    const std::scoped_lock lock(mutex_);
    std::ostringstream out;
    out.imbue(std::locale::classic());  // the format has no other decimal points, and no groups of digits
    const auto head = [&](const char* name, const char* type, const char* help) {
      out << "# HELP eigenformer_" << name << " " << help << "\n# TYPE eigenformer_" << name << " " << type
          << "\n";
    };
    const auto single = [&](const char* name, const char* type, const char* help, std::uint64_t value) {
      head(name, type, help);
      out << "eigenformer_" << name << " " << value << "\n";
    };
    head("http_requests_total", "counter",
         "Finished requests by route and status; 499: the client disconnected before the answer.");
    for (const auto& [key, count] : requests_) {
      out << "eigenformer_http_requests_total{route=\"" << key.first << "\",status=\"" << key.second << "\"} "
          << count << "\n";
    }
    head("http_request_seconds", "histogram",
         "Seconds from the complete request to the last byte of the answer.");
    for (const auto& [route, histogram] : seconds_) {
      std::uint64_t count = 0;
      for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
        count += histogram.counts[i];
        out << "eigenformer_http_request_seconds_bucket{route=\"" << route << "\",le=\"";
        i < bounds.size() ? out << bounds[i] : out << "+Inf";
        out << "\"} " << count << "\n";
      }
      // All digits: a sum grows for months, and rates are computed from its small differences.
      char sum[32];
      *std::to_chars(sum, sum + sizeof sum - 1, histogram.sum).ptr = '\0';
      out << "eigenformer_http_request_seconds_sum{route=\"" << route << "\"} " << sum << "\n"
          << "eigenformer_http_request_seconds_count{route=\"" << route << "\"} " << count << "\n";
    }
    single("translated_texts_total", "counter", "Translated texts.", texts_);
    single("translated_characters_total", "counter",
           "Translated characters (Unicode code points of the source).", characters_);
    single("model_loads_total", "counter", "Model loads.", loads_);
    single("model_drops_total", "counter", "Idle models unloaded.", drops_);
    single("models_loaded", "gauge", "Models in memory.", models);
    single("translations_in_flight", "gauge", "Translations accepted and not yet answered.", in_flight);
    single("connections", "gauge", "Open connections.", connections);
    out << "# HELP process_resident_memory_bytes Resident memory size in bytes.\n"
           "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes "
        << resident_bytes().value_or(0) << "\n";
    return out.str();
  }

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
