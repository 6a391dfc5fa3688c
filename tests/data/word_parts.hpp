#pragma once

#include <string>
#include <vector>

namespace eigenformer::testing {

/// Sentences of a few word parts, from which a subword model can be trained.
inline std::vector<std::string> sentences_of_word_parts() {
  const std::vector<std::string> stems = {"lern", "spiel", "arbeit", "koch", "tanz", "Häus", "klein"};
  const std::vector<std::string> endings = {"en", "er", "et", "te", "est", "chen"};
  std::vector<std::string> text;
  for (const std::string& a : stems) {
    for (const std::string& b : endings) {
      for (const std::string& c : stems) text.push_back("Wir " + a + b + ", aber sie " + c + b + " „gern“!");
    }
  }
  return text;
}

}  // namespace eigenformer::testing
