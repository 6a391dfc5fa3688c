#pragma once

#include <optional>
#include <variant>

#include "eigenformer/kernels/sequence/rotary.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The order of sines and cosines in a row.
enum class SinusoidOrder {
  interleaved,   ///< sin, cos, sin, cos, ...: the paper
  concatenated,  ///< all sines, then all cosines: tensor2tensor, fairseq, CTranslate2
};
EIGENFORMER_ENUM_NAMES(SinusoidOrder, "interleaved", "concatenated")

/// The formula of the i-th of d/2 frequencies.
enum class SinusoidExponent {
  paper,          ///< base^(-2i / d)
  tensor2tensor,  ///< base^(-i / (d/2 - 1)): the last frequency is 1 / base; fairseq and CTranslate2 too
};
EIGENFORMER_ENUM_NAMES(SinusoidExponent, "paper", "tensor2tensor")
EIGENFORMER_ENUM_NAMES(RotaryPairing, "adjacent", "halves")

/// No positions: causal decoders can work without (Haviv et al. 2022).
struct NoPositions {
  static constexpr const char* word = "none";  ///< name of this alternative in files and flags
  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto&, auto&&) {}
  /// Whether all fields are equal.
  friend bool operator==(const NoPositions&, const NoPositions&) = default;
};

/// Adds sines and cosines of the position to the inputs (Vaswani et al. 2017, 3.5); see
/// SinusoidalPositionalEncoding.
struct SinusoidalPositions {
  static constexpr const char* word = "sinusoidal";  ///< name of this alternative in files and flags
  double base = 10000;  ///< of the wavelengths, which rise from 2 pi to about 2 pi base
  SinusoidOrder order = SinusoidOrder::interleaved;     ///< order of sines and cosines in a row
  SinusoidExponent exponent = SinusoidExponent::paper;  ///< formula of the frequencies
  index_t first_position = 0;  ///< position of a sequence's first token; CTranslate2's models count from 1

  /// Calls visit(OptionField, member) for each field (see OptionField).
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
  /// Throws ValueError (`[op] ...`) that names the invalid field, or if the order or exponent does not
  /// support width d.
  void validate(const char* op, index_t d) const;
  /// Whether all fields are equal.
  friend bool operator==(const SinusoidalPositions&, const SinusoidalPositions&) = default;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void SinusoidalPositions::validate(const char* op, index_t d) const {
  validate_fields(op, *this);
  detail::require_positive(op, "d_model", d);
  if (order == SinusoidOrder::concatenated && d % 2 != 0) {
    throw ValueError(op, {"d_model is ", d, ", must be even for concatenated sines and cosines"});
  }
  if (exponent == SinusoidExponent::tensor2tensor && d < 4) {
    throw ValueError(op, {"d_model is ", d, ", must be at least 4 for the frequencies of tensor2tensor"});
  }
}

#endif

/// Adds a learned vector for each position to the inputs (Gehring et al. 2017); see
/// LearnedPositionalEmbedding. The table has the model's max_length.
struct LearnedPositions {
  static constexpr const char* word = "learned";  ///< name of this alternative in files and flags
  index_t offset = 0;  ///< row of the table that is position 0; the table has this many rows more (BART: 2)

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"learned_position_offset",
                      "row of the table of learned positions that holds position 0", Allowed::not_negative},
          self.offset);
  }
  /// Whether all fields are equal.
  friend bool operator==(const LearnedPositions&, const LearnedPositions&) = default;
};

/// Positions that are added to a model's inputs. The default is sinusoidal.
using InputPositions = std::variant<SinusoidalPositions, LearnedPositions, NoPositions>;

/// Rotates queries and keys by their positions (Su et al. 2021): of the first `dim` features of each head,
/// pair i by position * base^(-2 i / dim).
struct RotaryPositions {
  static constexpr const char* word = "rotary";     ///< name of this alternative in files and flags
  double base = 10000;                              ///< of the wavelengths
  index_t dim = 0;                                  ///< features of a head that rotate; even; 0: all
  RotaryPairing pairing = RotaryPairing::adjacent;  ///< which features form a pair

  /// Calls visit(OptionField, member) for each field (see OptionField).
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
  /// Whether all fields are equal.
  friend bool operator==(const RotaryPositions&, const RotaryPositions&) = default;
};

/// Subtracts slope * distance from the scores, with a fixed slope for each head; see alibi_slopes() (ALiBi,
/// Press et al. 2022).
struct AlibiPositions {
  static constexpr const char* word = "alibi";  ///< name of this alternative in files and flags
  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto&, auto&&) {}
  /// Whether all fields are equal.
  friend bool operator==(const AlibiPositions&, const AlibiPositions&) = default;
};

/// Adds a learned bias by distance to the scores, one table for a stack (T5, Raffel et al. 2020): near
/// distances have a bucket each, farther ones share buckets that widen with their logarithm, up to
/// max_distance. See relative_bias_bucket().
struct RelativeBiasPositions {
  static constexpr const char* word = "relative_bias";  ///< name of this alternative in files and flags
  index_t buckets = 32;        ///< rows of the table; at least 4, without bidirectional at least 2
  index_t max_distance = 128;  ///< from here on distances share a bucket; usually above buckets / 2
  /// Whether keys after the query have buckets of their own; otherwise they share that of distance 0. Unset:
  /// true in encoders, false in decoders.
  std::optional<bool> bidirectional{};

  /// Calls visit(OptionField, member) for each field (see OptionField).
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
  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const {
    // Each direction needs at least one exact and one wider bucket. Ids of buckets are int32.
    const index_t least = bidirectional.value_or(true) ? 4 : 2,
                  most = std::numeric_limits<std::int32_t>::max();
    if (buckets < least || buckets > most) {
      throw ValueError(op, {"relative_bias_buckets is ", buckets, ", must be from ", least, " to ", most,
                            (least == 4 ? " (from 2 if relative_bias_bidirectional is false)" : "")});
    }
    detail::require_positive(op, "relative_bias_max_distance", max_distance);
  }
  /// Whether all fields are equal.
  friend bool operator==(const RelativeBiasPositions&, const RelativeBiasPositions&) = default;
};

/// Adds learned vectors by distance to keys and values, in each layer (Shaw et al. 2018).
struct ShawPositions {
  static constexpr const char* word = "shaw";  ///< name of this alternative in files and flags
  index_t max_distance = 16;                   ///< greater distances are clipped to this one

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"shaw_max_distance", "all distances from this one on share Shaw's keys and values",
                      Allowed::positive},
          self.max_distance);
  }
  /// Whether all fields are equal.
  friend bool operator==(const ShawPositions&, const ShawPositions&) = default;
};

/// Positions that act in self-attention. The default is none.
using AttentionPositions =
    std::variant<NoPositions, RotaryPositions, AlibiPositions, RelativeBiasPositions, ShawPositions>;

}  // namespace eigenformer
