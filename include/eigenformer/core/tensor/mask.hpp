#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// Which keys each query may attend to, and what is added to their scores. `&` combines masks.
///
/// Dense masks have the shape (Lq, Lk), (B, Lq, Lk) or (B or 1, H or 1, Lq or 1, Lk), for padded and packed
/// layouts alike; Lq and Lk count the rows of a sequence, padding on its left included. They share the
/// tensor's storage. Rules (causal, window, prefix) compare absolute positions: a token's index plus the
/// first position of its layout. The output of a query that may attend to nothing is zero. Rules take no
/// memory, and blocks of keys that they exclude take no time.
class AttentionMask {
 public:
  static constexpr index_t unlimited =
      std::numeric_limits<index_t>::max();  ///< the width of a window without a limit on that side

  /// The meaning of a dense mask's elements.
  enum class Kind {
    allow,    ///< bool, true = may attend
    block,    ///< bool, true = may not attend (PyTorch's attn_mask and key_padding_mask)
    additive  ///< float, added to the score; -infinity = may not attend
  };

  /// A dense mask: `bias` is defined if `kind` is additive, otherwise `flags`.
  struct Dense {
    Kind kind = Kind::allow;  ///< the meaning of its elements
    Tensor<bool> flags;       ///< of Kind::allow and Kind::block
    Tensor<float> bias;       ///< of Kind::additive
    bool keyed = false;  ///< the first dimension counts sequences of keys, not of queries (key_padding())

    /// The shape of `bias` or `flags`.
    const Shape& shape() const noexcept { return kind == Kind::additive ? bias.shape() : flags.shape(); }
  };

  /// Strides of a dense mask in elements; 0 where it broadcasts. Keys are adjacent.
  struct Strides {
    index_t b = 0;  ///< from one sequence to the next
    index_t h = 0;  ///< from one head to the next
    index_t i = 0;  ///< from one query to the next
  };

  /// The document number of each row of queries and keys.
  struct Documents {
    Tensor<std::int32_t> queries;  ///< (B, Lq)
    Tensor<std::int32_t> keys;     ///< (key B, Lk)
  };

  /// Every query attends to every key of its sequence.
  AttentionMask() = default;
  /// The same as a default-constructed mask.
  static AttentionMask none() { return {}; }

  /// Keys at or before the query: key <= query, in absolute positions.
  static AttentionMask causal() { return window(unlimited, 0); }

  /// Keys from query - left to query + right, in absolute positions. Throws ValueError for a negative width.
  static AttentionMask window(index_t left, index_t right) {
    if (left < 0 || right < 0) {
      throw ValueError("attention_mask", {"window of ", left, " to the left and ", right,
                                          " to the right, must not be negative"});
    }
    AttentionMask mask;
    // So that sums of a width and a position stay in range.
    constexpr index_t far = index_t{1} << 48;
    mask.left_ = left < far ? left : unlimited;
    mask.right_ = right < far ? right : unlimited;
    return mask;
  }

  /// Prefix language model: keys at or before the query, and for every query of sequence b the keys of its
  /// first lengths[b] positions (Raffel et al. 2020, figure 4). A causal decoder uses it in place of
  /// causal(). Throws ValueError for a negative length.
  static AttentionMask prefix(std::vector<index_t> lengths) {
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] >= 0) continue;
      throw ValueError("attention_mask",
                       {"prefix of sequence ", b, " is ", lengths[b], " long, must not be negative"});
    }
    AttentionMask mask;
    mask.prefixes_.push_back(std::move(lengths));
    return mask;
  }

  /// Block-diagonal: a query attends to the keys of the same document. ids: (B, L), the document number of
  /// each row of self-attention, of any values. Throws ShapeError unless the rank is 2.
  static AttentionMask documents(const Tensor<std::int32_t>& ids) { return documents(ids, ids); }
  /// The same for queries and keys of different sequences: query_ids (B, Lq), key_ids (key B, Lk).
  static AttentionMask documents(Tensor<std::int32_t> query_ids, Tensor<std::int32_t> key_ids) {
    for (const Tensor<std::int32_t>* ids : {&query_ids, &key_ids}) {
      if (ids->rank() == 2) continue;
      throw ShapeError(
          "attention_mask",
          {"documents of shape ", ids->shape(), " must have the shape (batch, rows of a sequence)"},
          {ids->shape()});
    }
    AttentionMask mask;
    mask.documents_.push_back({std::move(query_ids), std::move(key_ids)});
    return mask;
  }

  /// A dense mask, true = may attend. Throws ShapeError unless the rank is 2, 3 or 4.
  static AttentionMask allow(Tensor<bool> allowed) {
    return dense(Kind::allow, std::move(allowed), {}, false);
  }

  /// A dense mask, true = may not attend, as PyTorch's boolean attn_mask. Throws as allow().
  static AttentionMask block(Tensor<bool> blocked) {
    return dense(Kind::block, std::move(blocked), {}, false);
  }

  /// A dense mask that is added to the scaled scores; -infinity excludes the key, even where the score is not
  /// finite. Throws as allow().
  static AttentionMask additive(Tensor<float> bias) {
    return dense(Kind::additive, {}, std::move(bias), false);
  }
  /// The same for doubles, which are converted to float.
  static AttentionMask additive(const Tensor<double>& bias) { return additive(bias.to<float>()); }

  /// A mask of keys, (B, Lk), true = padding, as PyTorch's key_padding_mask; B counts the sequences of keys.
  /// Throws ShapeError unless the rank is 2.
  static AttentionMask key_padding(Tensor<bool> padding) {
    return dense(Kind::block, padding.reshape(keyed_shape(padding.shape())), {}, true);
  }
  /// A mask of keys, (B, Lk), added to the scores of each key, as PyTorch's key_padding_mask of floats.
  /// Throws as above.
  static AttentionMask key_padding(const Tensor<float>& bias) {
    return dense(Kind::additive, {}, bias.reshape(keyed_shape(bias.shape())), true);
  }

  /// Both masks: a key must be allowed by each, and additive masks are summed.
  friend AttentionMask operator&(AttentionMask a, const AttentionMask& b) {
    a.left_ = std::min(a.left_, b.left_);
    a.right_ = std::min(a.right_, b.right_);
    a.dense_.insert(a.dense_.end(), b.dense_.begin(), b.dense_.end());
    a.prefixes_.insert(a.prefixes_.end(), b.prefixes_.begin(), b.prefixes_.end());
    a.documents_.insert(a.documents_.end(), b.documents_.begin(), b.documents_.end());
    return a;
  }
  /// Combines this mask with another.
  AttentionMask& operator&=(const AttentionMask& other) { return *this = *this & other; }

  /// The mask of a causal decoder: this one & causal(), or this one alone if it has a prefix rule, which is
  /// causal outside its prefixes.
  [[nodiscard]] AttentionMask within_causal() const { return prefixes_.empty() ? *this & causal() : *this; }

  /// Whether it neither excludes a key nor changes a score.
  bool is_none() const noexcept {
    return left_ == unlimited && right_ == unlimited && dense_.empty() && !has_rules();
  }
  /// Whether it is causal() alone.
  bool is_causal() const noexcept {
    return left_ == unlimited && right_ == 0 && dense_.empty() && !has_rules();
  }
  /// The window to the left: keys further before the query are excluded; `unlimited` without such a rule.
  index_t left() const noexcept { return left_; }
  /// The window to the right: keys further after the query are excluded; `unlimited` without such a rule.
  index_t right() const noexcept { return right_; }
  /// The dense masks, in the order in which they were combined.
  const std::vector<Dense>& dense_masks() const noexcept { return dense_; }
  /// Whether it has a prefix or a documents rule.
  bool has_rules() const noexcept { return !prefixes_.empty() || !documents_.empty(); }
  /// The lengths of each prefix rule, by sequence of queries.
  const std::vector<std::vector<index_t>>& prefixes() const noexcept { return prefixes_; }
  /// The document numbers of each documents rule.
  const std::vector<Documents>& document_rules() const noexcept { return documents_; }

  /// Throws ShapeError unless every rule and dense mask fits queries of (batch, heads, query_length) and keys
  /// of (key_batch, key_length).
  void check(index_t batch, index_t heads, index_t query_length, index_t key_batch,
             index_t key_length) const {
    for (const auto& lengths : prefixes_) {
      if (static_cast<index_t>(lengths.size()) == batch) continue;
      throw ShapeError("attention", {lengths.size(), " prefix lengths must be ", batch,
                                     ", one for each sequence of queries"});
    }
    for (const Documents& documents : documents_) {
      const Shape queries{batch, query_length}, keys{key_batch, key_length};
      if (documents.queries.shape() == queries && documents.keys.shape() == keys) continue;
      throw ShapeError("attention",
                       {"documents of shapes ", documents.queries.shape(), " and ", documents.keys.shape(),
                        " must be ", queries.str(), " of the queries and ", keys.str(), " of the keys"},
                       {documents.queries.shape(), documents.keys.shape()});
    }
    for (const Dense& mask : dense_) {
      const Shape& s = mask.shape();
      const index_t sequences = mask.keyed ? key_batch : batch;
      const index_t r = s.rank();
      const auto fits = [&](index_t axis, index_t size) {
        return s[axis] == size || (r == 4 && s[axis] == 1 && !(mask.keyed && axis == 0));
      };
      if (s[-1] == key_length && fits(-2, query_length) && (r == 2 || fits(0, sequences)) &&
          (r < 4 || fits(1, heads))) {
        continue;
      }
      if (mask.keyed) {
        throw ShapeError("attention",
                         {"key padding of shape ", Shape{s[0], s[3]}.str(), " must be ",
                          Shape{sequences, key_length}.str(), " (batch, keys)"},
                         {s});
      }
      const Shape matrix{query_length, key_length}, matrices{batch, query_length, key_length};
      const std::string four =
          detail::join({"(", batch, " or 1, ", heads, " or 1, ", query_length, " or 1, ", key_length, ")"});
      throw ShapeError("attention",
                       {"mask of shape ", s, " must be ", matrix, ", ", matrices, " or ", four,
                        " for (batch, heads, queries, keys)"},
                       {s});
    }
  }

  /// The strides of `mask`, which check() has accepted.
  static Strides strides(const Dense& mask) {
    const Shape& s = mask.shape();
    const index_t r = s.rank();
    const index_t keys = s[-1];
    if (r == 2) return {0, 0, keys};
    if (r == 3) return {s[1] * keys, 0, keys};
    return {s[0] == 1 ? 0 : s[1] * s[2] * keys, s[1] == 1 ? 0 : s[2] * keys, s[2] == 1 ? 0 : keys};
  }

  /// The mask as a tensor (batch, heads, query_length, key_length), true = may attend. Query i has position
  /// first_position + i, key j has position j. Throws ShapeError where a rule or dense mask does not fit and
  /// for a first position below 0 or above Shape::max_numel.
  Tensor<bool> to_tensor(index_t batch, index_t heads, index_t query_length, index_t key_length,
                         index_t first_position = 0) const {
    const Tensor<float> bias = to_additive(batch, heads, query_length, key_length, first_position);
    Tensor<bool> allowed(bias.shape());
    std::transform(bias.span().begin(), bias.span().end(), allowed.span().begin(),
                   [](float x) { return x != -std::numeric_limits<float>::infinity(); });
    return allowed;
  }

  /// The same in additive form: the numbers added to the scores, -infinity where a query may not attend.
  Tensor<float> to_additive(index_t batch, index_t heads, index_t query_length, index_t key_length,
                            index_t first_position = 0) const {
    check(batch, heads, query_length, batch, key_length);
    if (first_position < 0 || first_position > Shape::max_numel) {
      throw ShapeError("attention_mask",
                       {"first position is ", first_position, ", must be in 0 .. ", Shape::max_numel});
    }
    Tensor<float> out = Tensor<float>::zeros(Shape{batch, heads, query_length, key_length});
    float* row = out.data();
    for (index_t b = 0; b < batch; ++b) {
      for (index_t h = 0; h < heads; ++h) {
        for (index_t i = 0; i < query_length; ++i, row += key_length) {
          for (index_t j = 0; j < key_length; ++j) row[j] = value(b, h, i, j, first_position + i);
        }
      }
    }
    return out;
  }

  /// Whether the window of a query contains a key, in absolute positions.
  bool reaches(index_t query_position, index_t key_position) const noexcept {
    return key_position >= query_position ? key_position - query_position <= right_
                                          : query_position - key_position <= left_;
  }

 private:
  // The shape (batch, 1, 1, keys) of key padding (batch, keys).
  static Shape keyed_shape(const Shape& s) {
    if (s.rank() == 2) return {s[0], 1, 1, s[1]};
    throw ShapeError("attention_mask", {"key padding of shape ", s, " must have the shape (batch, keys)"},
                     {s});
  }

  static AttentionMask dense(Kind kind, Tensor<bool> flags, Tensor<float> bias, bool keyed) {
    AttentionMask mask;
    mask.dense_.push_back(Dense{kind, std::move(flags), std::move(bias), keyed});
    const Shape& s = mask.dense_.back().shape();
    if (s.rank() < 2 || s.rank() > 4) {
      throw ShapeError("attention_mask",
                       {"mask of shape ", s.str(),
                        " must be (queries, keys), (batch, queries, keys) or "
                        "(batch or 1, heads or 1, queries or 1, keys)"},
                       {s});
    }
    return mask;
  }

  float value(index_t b, index_t h, index_t i, index_t j, index_t query_position) const {
    constexpr float forbidden = -std::numeric_limits<float>::infinity();
    if (!reaches(query_position, j)) return forbidden;
    for (const auto& lengths : prefixes_) {
      if (j > query_position && j >= lengths[static_cast<std::size_t>(b)]) return forbidden;
    }
    for (const Documents& d : documents_) {
      if (d.queries.at({b, i}) != d.keys.at({b, j})) return forbidden;
    }
    float sum = 0.0F;
    for (const Dense& mask : dense_) {
      const Strides s = strides(mask);
      const index_t at = b * s.b + h * s.h + i * s.i + j;
      if (mask.kind == Kind::additive) {
        sum += mask.bias.data()[at];
      } else if (mask.flags.data()[at] != (mask.kind == Kind::allow)) {
        return forbidden;
      }
    }
    return sum;
  }

  index_t left_ = unlimited;
  index_t right_ = unlimited;
  std::vector<Dense> dense_;
  std::vector<std::vector<index_t>> prefixes_;
  std::vector<Documents> documents_;
};

}  // namespace eigenformer
