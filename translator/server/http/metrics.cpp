#include "translator/server/http/metrics.hpp"

#include <charconv>
#include <locale>
#include <sstream>

#include "translator/training/process_memory.hpp"

namespace eigenformer::detail {

void ServerMetrics::request_over(const HttpRecord& record) {
  const std::scoped_lock lock(mutex_);
  const std::string route = record.route.empty() ? "other" : record.route;
  ++requests_[{route, record.status}];
  Histogram& histogram = seconds_[route];
  std::size_t i = 0;
  while (i < bounds.size() && record.seconds > bounds[i]) ++i;
  ++histogram.counts[i];
  histogram.sum += record.seconds;
}

void ServerMetrics::add_translated(std::size_t texts, std::size_t characters) {
  const std::scoped_lock lock(mutex_);
  texts_ += texts;
  characters_ += characters;
}

std::string ServerMetrics::text(std::size_t in_flight, std::size_t connections, std::size_t models) const {
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

}  // namespace eigenformer::detail
