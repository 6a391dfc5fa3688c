#pragma once

#include <array>
#include <string>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The sides of a pair whose segmentation is drawn.
enum class SampledSides { both, source, target };
template <>
struct EnumNames<SampledSides> {
  static constexpr std::array names = {"both", "source", "target"};
};

/// How segmentations into subwords are drawn in training, so that a model sees a word in many ways. One of
/// the rates may be above 0, that of the tokenizer's kind.
struct SubwordSampling {
  /// Byte pair encoding: the probability that a merge is left out where it could be next (Provilkov et al.
  /// 2020, algorithm 1; 0.1 in the paper).
  double bpe_dropout = 0;
  /// Unigram models: segmentations are drawn in proportion to their probability to this power (Kudo 2018,
  /// section 3.2, among all of them; 0.1 to 0.5 in the paper). 0: the best one.
  double unigram_alpha = 0;
  SampledSides sides = SampledSides::both;  ///< of a pair

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

  bool on() const noexcept { return bpe_dropout > 0 || unigram_alpha > 0; }

  /// Throws ValueError that names an impossible field.
  void validate() const {
    validate_fields("subword_sampling", *this);
    if (bpe_dropout > 0 && unigram_alpha > 0) {
      throw ValueError(
          "subword_sampling",
          "bpe_dropout and unigram_alpha are both above 0, expected only the one for the tokenizer's kind");
    }
  }
};

namespace detail {

/// Throws ValueError unless the rate that is given is that of byte pair encoding, or of a unigram model.
inline void require_rate_of(bool bpe, const SubwordSampling& sampling) {
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
