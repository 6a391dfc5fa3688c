#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace eigenformer::detail {

/// A possible language of a text.
struct DetectedLanguage {
  std::string code;       ///< as passed to detect_language(), such as "en"
  double confidence = 0;  ///< percent, 0 to 100; those of all candidates add up to 100 but for rounding
};

/// Whether detect_language() has a profile of a language.
bool can_detect(std::string_view code);

/// The languages that have a profile, and those of `codes` that have one with their own codes.
std::vector<std::string> detectable_languages(std::span<const std::string> codes);

/// Returns the languages `among` which a UTF-8 text may be, the most likely first, without those that have no
/// profile. It is a naive Bayes classifier (Maron 1961) with frequent words, special letters and the script
/// as features and equal priors. Only the first 4096 letters are read. Single words and names give a low
/// confidence.
std::vector<DetectedLanguage> detect_language(std::string_view text, std::span<const std::string> among);

}  // namespace eigenformer::detail
