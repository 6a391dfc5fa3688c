#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// What a validation can measure.
enum class ValidationMeasure {
  loss,  ///< cross entropy of the references, in nats per target token
  bleu,  ///< corpus_bleu() of translations, 0 to 100
  chrf   ///< corpus_chrf() of translations, 0 to 100
};
/// The names of ValidationMeasure in options and reports.
template <>
struct EnumNames<ValidationMeasure> {
  /// In the order of the enumerators.
  static constexpr std::array names = {"loss", "bleu", "chrf"};
};

/// What validations on sentence pairs measure, and which measure decides what is best and when to stop;
/// validation_of() creates the Validation.
struct ValidationOptions {
  std::string measures = "loss";                   ///< names of ValidationMeasure, separated by commas
  ValidationMeasure by = ValidationMeasure::loss;  ///< the deciding measure, always measured
  index_t sample = 500;                            ///< maximum pairs to translate; 0: all
  index_t beam = 1;                                ///< beam size of these translations; 1: greedy

  /// Visits the fields with their names and descriptions, for files and command lines.
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

  /// Whether validations measure it: it is `by` or one of `measures`.
  bool has(ValidationMeasure measure) const {
    if (measure == by) return true;
    for (const std::string& name : names()) {
      if (name == EnumNames<ValidationMeasure>::names[static_cast<std::size_t>(measure)]) return true;
    }
    return false;
  }
  /// Whether validations translate the sample.
  bool translates() const { return has(ValidationMeasure::bleu) || has(ValidationMeasure::chrf); }

  /// Throws ValueError when `measures` contains an unknown name, or one twice.
  void validate() const {
    std::set<std::string> given;
    for (const std::string& name : names()) {
      bool known = false;
      for (const char* measure : EnumNames<ValidationMeasure>::names) known = known || name == measure;
      if (known && !given.insert(name).second)
        throw ValueError("training", "validate_with has '" + name + "' twice, expected each measure once");
      if (!known) {
        throw ValueError("training", "validate_with has '" + name +
                                         "', expected loss, bleu and chrf, separated by commas");
      }
    }
  }

 private:
  // The names in `measures`, without spaces.
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
