#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// What a validation can measure: the loss of the references, in nats a target token, or how near to them the
/// translations are.
enum class ValidationMeasure { loss, bleu, chrf };
template <>
struct EnumNames<ValidationMeasure> {
  static constexpr std::array names = {"loss", "bleu", "chrf"};
};

/// What validations on sentence pairs measure, and which measure decides what is best and when to stop.
/// validation_of() makes a Validation of it.
struct ValidationOptions {
  std::string measures = "loss";                   ///< names of ValidationMeasure, separated by commas
  ValidationMeasure by = ValidationMeasure::loss;  ///< decides; measured in any case
  index_t sample = 500;                            ///< pairs that are translated at most; 0: all
  index_t beam = 1;                                ///< beam of these translations; 1: greedy

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"validate_with", "comma-separated validation metrics: loss, bleu, chrf"},
          self.measures);
    visit(OptionField{"validate_by", "metric that selects the best weights and decides when to stop"},
          self.by);
    visit(OptionField{"validate_sample",
                      "pairs translated for BLEU and chrF, evenly spread over the data; 0: all",
                      Allowed::not_negative},
          self.sample);
    visit(
        OptionField{"validate_beam", "beam size of these translations; 1: greedy search", Allowed::positive},
        self.beam);
  }

  /// Whether a validation measures it.
  bool has(ValidationMeasure measure) const {
    if (measure == by) return true;
    for (const std::string& name : names()) {
      if (name == EnumNames<ValidationMeasure>::names[static_cast<std::size_t>(measure)]) return true;
    }
    return false;
  }
  /// Whether a validation translates.
  bool translates() const { return has(ValidationMeasure::bleu) || has(ValidationMeasure::chrf); }

  /// Throws ValueError for a measure that is not known.
  void validate() const {
    for (const std::string& name : names()) {
      bool known = false;
      for (const char* measure : EnumNames<ValidationMeasure>::names) known = known || name == measure;
      if (!known) {
        throw ValueError("training", "validate_with has '" + name +
                                         "', expected loss, bleu and chrf, separated by commas");
      }
    }
  }

 private:
  // Without the spaces around them.
  std::vector<std::string> names() const {
    std::vector<std::string> all(1);
    for (const char c : measures) {
      if (c == ',') {
        all.emplace_back();
      } else if (c != ' ') {
        all.back() += c;
      }
    }
    return all;
  }
};

}  // namespace eigenformer
