#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/search/text/confidence.hpp"

namespace eigenformer {

/// One interval of confidence and the predictions that fall into it.
struct CalibrationBin {
  double from = 0,        ///< lower bound, inclusive
      to = 0;             ///< upper bound, exclusive except in the last bin
  index_t count = 0;      ///< predictions in the bin
  double confidence = 0;  ///< their mean confidence; 0 without predictions
  double right = 0;       ///< the share of them that was right; 0 without predictions
};

/// How well confidences predict what was right, as calibration() measures it.
struct Calibration {
  std::vector<CalibrationBin> bins;  ///< of equal width over [0, 1], empty ones included
  index_t count = 0;                 ///< predictions
  double confidence = 0;             ///< mean confidence
  double right = 0;                  ///< the share of predictions that was right
  /// Expected calibration error: |right - confidence| of the bins, weighted by their counts (Guo et al. 2017,
  /// section 2).
  double expected_error = 0;
  double brier = 0;  ///< Brier score: the mean of (confidence - right)^2

  /// A table with a header, a line for each bin that has predictions, and a line for all.
  std::string str() const;
};

/// Compares confidences with outcomes: `right` holds 1 or 0 for each prediction, or a share in between.
/// Throws ValueError when the spans differ in size or are empty, for values outside [0, 1], and for bins
/// below 1.
Calibration calibration(std::span<const double> confidences, std::span<const double> right,
                        index_t bins = 10);

/// Fits a ConfidenceScale by maximum likelihood to word probabilities and their outcomes (1: right, 0:
/// wrong): logistic regression on logit(p), by Newton's method (Platt 1999). Throws ValueError when the spans
/// differ in size, for values outside [0, 1], and unless some outcomes are above 0.5 and some are not.
ConfidenceScale fit_confidence(std::span<const double> probabilities, std::span<const double> right);

/// Returns 1 for each word that the reference also has, else 0. The reference is split at white space; each
/// of its words matches once, whatever its position.
std::vector<double> right_words(std::span<const WordConfidence> words, std::string_view reference);

}  // namespace eigenformer
