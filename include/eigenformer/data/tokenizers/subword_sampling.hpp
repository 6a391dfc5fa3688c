#pragma once

#include <array>
#include <string>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The sides of a pair whose segmentation is sampled.
enum class SampledSides {
  both,    ///< source and target
  source,  ///< only the source
  target   ///< only the target
};

EIGENFORMER_ENUM_NAMES(SampledSides, "both", "source", "target")

/// Options of sampled subword segmentation, a regularisation for training. Only the rate for the tokenizer's
/// kind of model may be above 0.
struct SubwordSampling {
  /// Byte pair encoding: the probability in [0, 1) that a possible merge is left out in a step (Provilkov et
  /// al. 2020, algorithm 1; 0.1 in the paper). 0: the plain segmentation.
  double bpe_dropout = 0;
  /// Unigram models: segmentations are sampled in proportion to their probability to this power, from all of
  /// them (Kudo 2018, section 3.2; 0.1 to 0.5 in the paper). 0: the best one.
  double unigram_alpha = 0;
  SampledSides sides = SampledSides::both;  ///< which sides of a pair are sampled

  /// Calls visit(OptionField, field) for each field.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"bpe_dropout",
                      "BPE-dropout: probability of skipping a merge, drawn anew for each pair and epoch",
                      Allowed::rate},
          self.bpe_dropout);
    visit(
        OptionField{
            "unigram_alpha",
            "sample segmentations of a unigram model by their probability to this power; 0: use the best one",
            Allowed::not_negative},
        self.unigram_alpha);
    visit(OptionField{"sampled_sides", "sides whose segmentation is sampled"}, self.sides);
  }

  /// Whether segmentations are sampled at all: one of the rates is above 0.
  bool on() const noexcept { return bpe_dropout > 0 || unigram_alpha > 0; }

  /// Throws ValueError that names an invalid field, and when both rates are above 0.
  void validate() const;
};

namespace detail {

/// Throws ValueError for invalid options, and when a rate above 0 belongs to the other kind of model.
EIGENFORMER_FUNCTION void require_rate_of(bool bpe, const SubwordSampling& sampling);

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void SubwordSampling::validate() const {
  validate_fields("subword_sampling", *this);
  if (bpe_dropout > 0 && unigram_alpha > 0) {
    throw ValueError(
        "subword_sampling",
        "bpe_dropout and unigram_alpha are both above 0, expected only the one for the tokenizer's kind");
  }
}

namespace detail {

EIGENFORMER_FUNCTION void require_rate_of(bool bpe, const SubwordSampling& sampling) {
  sampling.validate();
  if (bpe && sampling.unigram_alpha > 0) {
    throw ValueError("subword_sampling",
                     "unigram_alpha is for unigram models, and this tokenizer uses byte pair encoding; "
                     "expected bpe_dropout");
  }
  if (!bpe && sampling.bpe_dropout > 0) {
    throw ValueError("subword_sampling",
                     "bpe_dropout is for byte pair encoding, and this tokenizer has a unigram model; "
                     "expected unigram_alpha");
  }
}

}  // namespace detail
}  // namespace eigenformer

#endif
