#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>

#include "eigenformer/kernels/sequence/rotary.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Where the sines and cosines stand in a row.
enum class SinusoidOrder {
  interleaved,   ///< sin, cos, sin, cos, ...: the paper
  concatenated,  ///< all sines, then all cosines: tensor2tensor, fairseq, CTranslate2
};
template <>
struct EnumNames<SinusoidOrder> {
  static constexpr std::array names = {"interleaved", "concatenated"};
};

/// The i-th of d/2 frequencies.
enum class SinusoidExponent {
  paper,          ///< base^(-2i / d)
  tensor2tensor,  ///< base^(-i / (d/2 - 1)): the last frequency is 1 / base; fairseq and CTranslate2 too
};
template <>
struct EnumNames<SinusoidExponent> {
  static constexpr std::array names = {"paper", "tensor2tensor"};
};
template <>
struct EnumNames<RotaryPairing> {
  static constexpr std::array names = {"adjacent", "halves"};
};

/// No positions: causal decoders do without (Haviv et al. 2022).
struct NoPositions {
  static constexpr const char* word = "none";
  static void fields(auto&, auto&&) {}
  friend bool operator==(const NoPositions&, const NoPositions&) = default;
};

/// Sines and cosines of the position, added to the inputs (Vaswani et al. 2017, 3.5).
struct SinusoidalPositions {
  static constexpr const char* word = "sinusoidal";
  double base = 10000;
  SinusoidOrder order = SinusoidOrder::interleaved;
  SinusoidExponent exponent = SinusoidExponent::paper;
  index_t first_position =
      0;  ///< the position of a sequence's first token; CTranslate2's models count from 1

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"sinusoid_base", "base of the sinusoidal positions' wavelengths", Allowed::positive},
          self.base);
    visit(OptionField{"sinusoid_order", "sines and cosines interleaved, or concatenated as in tensor2tensor"},
          self.order);
    visit(OptionField{"sinusoid_exponent", "frequencies as in the paper or in tensor2tensor"}, self.exponent);
    visit(
        OptionField{"sinusoid_first_position", "position of a sequence's first token", Allowed::not_negative},
        self.first_position);
  }
  /// Throws ValueError, as `op`, for what is impossible at width d.
  void validate(const char* op, index_t d) const {
    validate_fields(op, *this);
    detail::require_allowed(op, "d_model", static_cast<double>(d), std::to_string(d), Allowed::positive);
    if (order == SinusoidOrder::concatenated && d % 2 != 0) {
      throw ValueError(
          op, "d_model is " + std::to_string(d) + ", must be even for concatenated sines and cosines");
    }
    if (exponent == SinusoidExponent::tensor2tensor && d < 4) {
      throw ValueError(op, "d_model is " + std::to_string(d) +
                               ", must be at least 4 for the frequencies of tensor2tensor");
    }
  }
  friend bool operator==(const SinusoidalPositions&, const SinusoidalPositions&) = default;
};

/// A learned vector for each position, added to the inputs (Gehring et al. 2017). The table has the model's
/// max_length.
struct LearnedPositions {
  static constexpr const char* word = "learned";
  index_t offset = 0;  ///< the row of position 0; the table has so many rows more (BART: 2)

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"learned_position_offset",
                      "row of the table of learned positions that holds position 0", Allowed::not_negative},
          self.offset);
  }
  friend bool operator==(const LearnedPositions&, const LearnedPositions&) = default;
};

/// Positions that are added to a model's inputs.
using InputPositions = std::variant<SinusoidalPositions, LearnedPositions, NoPositions>;

/// Queries and keys turn with their positions (Su et al. 2021): the first `dim` features of each head, pair i
/// by position * base^(-2 i / dim).
struct RotaryPositions {
  static constexpr const char* word = "rotary";
  double base = 10000;
  index_t dim = 0;  ///< even; 0: the whole head
  RotaryPairing pairing = RotaryPairing::adjacent;

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"rotary_base", "base of the rotary positions' wavelengths", Allowed::positive},
          self.base);
    visit(OptionField{"rotary_dim", "features per head that are rotated; 0: all", Allowed::not_negative},
          self.dim);
    visit(
        OptionField{"rotary_pairing",
                    "which features are rotated in pairs: adjacent ones, or one from each half of the head"},
        self.pairing);
  }
  friend bool operator==(const RotaryPositions&, const RotaryPositions&) = default;
};

/// Scores fall with the distance, by a fixed slope for each head (ALiBi, Press et al. 2022).
struct AlibiPositions {
  static constexpr const char* word = "alibi";
  static void fields(auto&, auto&&) {}
  friend bool operator==(const AlibiPositions&, const AlibiPositions&) = default;
};

/// Scores have a learned bias by distance, one table for a stack (T5, Raffel et al. 2020): near distances
/// have a bucket each, further ones share buckets that widen with their logarithm, up to max_distance.
struct RelativeBiasPositions {
  static constexpr const char* word = "relative_bias";
  index_t buckets = 32;
  index_t max_distance = 128;
  /// Whether keys after the query have buckets of their own or share that of distance 0; empty: true in
  /// encoders and false in decoders.
  std::optional<bool> bidirectional{};

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"relative_bias_buckets", "number of buckets of the relative bias", Allowed::positive},
          self.buckets);
    visit(OptionField{"relative_bias_max_distance", "all distances from this one on share the last bucket",
                      Allowed::positive},
          self.max_distance);
    visit(OptionField{"relative_bias_bidirectional",
                      "separate buckets for keys after the query; not given: in encoders only"},
          self.bidirectional);
  }
  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    // Both directions need an exact bucket and a wider one.
    if (buckets < 4 || buckets % 4 != 0) {
      throw ValueError(op, "relative_bias_buckets is " + std::to_string(buckets) +
                               ", must be positive and divisible by 4");
    }
    // A table by distance is made of it.
    constexpr index_t most = index_t{1} << 20;
    if (max_distance <= buckets / 2 || max_distance > most) {
      throw ValueError(op, "relative_bias_max_distance is " + std::to_string(max_distance) +
                               ", must be above half the buckets, which is " + std::to_string(buckets / 2) +
                               ", and at most " + std::to_string(most));
    }
  }
  friend bool operator==(const RelativeBiasPositions&, const RelativeBiasPositions&) = default;
};

/// Learned keys and values by distance in each layer (Shaw et al. 2018).
struct ShawPositions {
  static constexpr const char* word = "shaw";
  index_t max_distance = 16;  ///< further away is as if at this distance

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"shaw_max_distance", "all distances from this one on share Shaw's keys and values",
                      Allowed::positive},
          self.max_distance);
  }
  friend bool operator==(const ShawPositions&, const ShawPositions&) = default;
};

/// Positions that act in self-attention.
using AttentionPositions =
    std::variant<NoPositions, RotaryPositions, AlibiPositions, RelativeBiasPositions, ShawPositions>;

}  // namespace eigenformer
