#include "translator/text/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"

namespace eigenformer {

namespace {

// Throws ValueError for a value or an outcome outside [0, 1]. item, what: what a value belongs to and is.
void require_shares(const char* op, const char* item, const char* what, std::span<const double> values,
                    std::span<const double> right) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const double x : {values[i], right[i]}) {
      if (x >= 0 && x <= 1) continue;
      throw ValueError(op, {item, i, " has a ", what, " or outcome of ", x, ", must be in [0, 1]"});
    }
  }
}

}  // namespace

std::string Calibration::str() const {
  const int digits = bins.size() <= 10 ? 1 : 3;
  std::string table = "confidence" + std::string(digits == 1 ? 6 : 10, ' ') + "count   mean  right\n";
  std::array<char, 96> line{};
  for (const CalibrationBin& bin : bins) {
    if (bin.count == 0) continue;
    std::snprintf(line.data(), line.size(), "%.*f to %.*f  %9lld  %.3f  %.3f\n", digits, bin.from, digits,
                  bin.to, static_cast<long long>(bin.count), bin.confidence, bin.right);
    table += line.data();
  }
  std::snprintf(line.data(), line.size(), "%-*s%9lld  %.3f  %.3f  ECE %.3f  Brier %.3f\n",
                digits == 1 ? 12 : 16, "all", static_cast<long long>(count), confidence, right,
                expected_error, brier);
  return table + line.data();
}

Calibration calibration(std::span<const double> confidences, std::span<const double> right, index_t bins) {
  if (confidences.size() != right.size() || confidences.empty()) {
    throw ValueError("calibration", {confidences.size(), " confidences and ", right.size(),
                                     " outcomes, expected equal numbers, at least one of each"});
  }
  if (bins < 1) throw ValueError("calibration", {"bins is ", bins, ", must be positive"});
  require_shares("calibration", "prediction ", "confidence", confidences, right);
  Calibration c;
  for (index_t b = 0; b < bins; ++b)
    c.bins.push_back({static_cast<double>(b) / static_cast<double>(bins),
                      static_cast<double>(b + 1) / static_cast<double>(bins)});
  c.count = static_cast<index_t>(confidences.size());
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    auto b = std::min(bins - 1, static_cast<index_t>(std::floor(confidences[i] * static_cast<double>(bins))));
    if (b + 1 < bins && confidences[i] >= c.bins[static_cast<std::size_t>(b)].to) ++b;  // the product rounds
    CalibrationBin& bin = c.bins[static_cast<std::size_t>(b)];
    ++bin.count;
    bin.confidence += confidences[i];
    bin.right += right[i];
    c.brier += (confidences[i] - right[i]) * (confidences[i] - right[i]);
  }
  const auto n = static_cast<double>(c.count);
  for (CalibrationBin& bin : c.bins) {
    c.confidence += bin.confidence / n;
    c.right += bin.right / n;
    c.expected_error += std::abs(bin.confidence - bin.right) / n;
    if (bin.count == 0) continue;
    bin.confidence /= static_cast<double>(bin.count);
    bin.right /= static_cast<double>(bin.count);
  }
  c.brier /= n;
  return c;
}

ConfidenceScale fit_confidence(std::span<const double> probabilities, std::span<const double> right) {
  const auto n_right = std::count_if(right.begin(), right.end(), [](double x) { return x > 0.5; });
  if (probabilities.size() != right.size() || n_right == 0 ||
      n_right == static_cast<std::ptrdiff_t>(right.size())) {
    throw ValueError("fit_confidence",
                     {probabilities.size(), " probabilities, ", right.size(), " outcomes, ", n_right,
                      " of them right: expected equal numbers, some right, some not"});
  }
  require_shares("fit_confidence", "word ", "probability", probabilities, right);
  std::vector<double> logits;
  for (const double given : probabilities) {
    const double p = ConfidenceScale::clamped(given);
    logits.push_back(std::log(p / (1 - p)));
  }
  const auto loss = [&](double slope, double offset) {
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double z = slope * logits[i] + offset;
      sum += std::max(z, 0.0) - z * right[i] + std::log1p(std::exp(-std::abs(z)));
    }
    return sum;
  };
  double slope = 0, offset = 0, before = loss(0, 0);
  for (int iteration = 0; iteration < 100; ++iteration) {
    double g0 = 0, g1 = 0, h00 = 1e-9, h01 = 0, h11 = 1e-9;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = 1 / (1 + std::exp(-(slope * logits[i] + offset))), w = p * (1 - p);
      g0 += p - right[i];
      g1 += (p - right[i]) * logits[i];
      h00 += w;
      h01 += w * logits[i];
      h11 += w * logits[i] * logits[i];
    }
    const double determinant = h00 * h11 - h01 * h01;
    const double d0 = (h11 * g0 - h01 * g1) / determinant, d1 = (h00 * g1 - h01 * g0) / determinant;
    double step = 1;  // halved until the loss falls
    while (step > 1e-6 && !(loss(slope - step * d1, offset - step * d0) <= before)) step /= 2;
    if (step <= 1e-6) break;
    slope -= step * d1;
    offset -= step * d0;
    const double now = loss(slope, offset);
    if (before - now < 1e-9) break;
    before = now;
  }
  return {.slope = slope, .offset = offset};
}

std::vector<double> right_words(std::span<const WordConfidence> words, std::string_view reference) {
  std::map<std::string, index_t> left;
  for (const ByteSpan& word : detail::word_spans(reference)) ++left[std::string(word.of(reference))];
  std::vector<double> right;
  for (const WordConfidence& word : words) {
    const auto found = left.find(word.word);
    const bool is_right = found != left.end() && found->second > 0;
    if (is_right) --found->second;
    right.push_back(is_right ? 1 : 0);
  }
  return right;
}

}  // namespace eigenformer
