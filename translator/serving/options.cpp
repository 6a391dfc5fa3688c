#include "translator/serving/options.hpp"

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

void TranslatorOptions::validate() const {
  validate_fields("translator", *this);
  if (window > 60) {
    throw ValueError("translator", {"window is ", window, " seconds, must be at most 60"});
  }
}

}  // namespace eigenformer
