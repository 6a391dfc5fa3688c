#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

/// An attention weight that should be large: that of a query for a key.
struct ExpectedAttention {
  index_t sequence = 0,  ///< the index of the sequence in the batch
      query = 0,         ///< the index of the query in its sequence
      key = 0;           ///< the index of the key in its sequence
  double share = 1;      ///< the query's probability for this key: 1 / n if it is aligned to n keys
};

/// The cross entropy between given alignments and attention weights, in nats: the sum over `expected` of
/// -share log(weight + 1e-6), divided by `divisor` (Chen et al. 2016, section 3.2; Garg et al. 2019, eq. 5).
///
/// weights: (B, H, Lq, Lk), as attention_weights() returns them. head: the head whose weights are used; -1:
/// their mean over the heads. Returns a scalar, 0 if nothing is expected. Throws ShapeError for weights of
/// another rank, IndexError for an entry outside the weights, ValueError for a head that does not exist and
/// for a divisor that is not positive and finite.
template <class T>
[[nodiscard]] Var<T> alignment_loss(const Var<T>& weights, std::vector<ExpectedAttention> expected,
                                    index_t head, double divisor) {
  constexpr const char* name = "alignment_loss";
  const OpScope scope = detail::scope_of(name, weights);
  if (weights.rank() != 4) {
    throw ShapeError(name,
                     {"weights of shape ", weights.shape(), " must be (sequences, heads, queries, keys)"},
                     {weights.shape()});
  }
  const index_t batch = weights.dim(0), heads = weights.dim(1), queries = weights.dim(2),
                keys = weights.dim(3);
  if (head < -1 || head >= heads) {
    throw ValueError(name, {"head is ", head, ", must be below ", heads,
                            ", the number of heads of the weights, or -1 for their mean"});
  }
  if (!(divisor > 0) || !std::isfinite(divisor))
    throw ValueError(name, {"divisor is ", divisor, ", must be positive"});
  constexpr double floor = 1e-6;  // keeps the logarithm and its slope finite for a weight of 0
  const index_t first = std::max<index_t>(head, 0), used = head < 0 ? heads : 1;
  // The first of the `used` weights of an entry; the others follow at this distance.
  const index_t stride = queries * keys;
  const auto place = [=](const ExpectedAttention& e) {
    return ((e.sequence * heads + first) * queries + e.query) * keys + e.key;
  };
  const auto mean = [=](const T* data, const ExpectedAttention& e) {
    double sum = 0;
    for (index_t h = 0; h < used; ++h) sum += static_cast<double>(data[place(e) + h * stride]);
    return sum / static_cast<double>(used);
  };
  double sum = 0;
  for (const ExpectedAttention& e : expected) {
    if (e.sequence < 0 || e.sequence >= batch || e.query < 0 || e.query >= queries || e.key < 0 ||
        e.key >= keys) {
      throw IndexError(name, {"query ", e.query, " and key ", e.key, " of sequence ", e.sequence,
                              " are outside weights of shape ", weights.shape()});
    }
    sum -= e.share * std::log(mean(weights.value().data(), e) + floor);
  }
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum / divisor));
  if (detail::not_recorded(y, weights)) return y;
  // dW[b, h, i, j] = -share / (divisor n (mean + floor)) for the n heads of the mean, 0 elsewhere.
  return detail::record_one(
      name, std::move(y), weights, SavedTensors(weights),
      [w = weights.value(), expected = std::move(expected), place, mean, used, stride, divisor](
          const auto& dw, const Tensor<T>& dy) {
        dw.start_sum();
        const double scale = static_cast<double>(dy.item()) / (divisor * static_cast<double>(used));
        for (const ExpectedAttention& e : expected) {
          const T slope = static_cast<T>(-scale * e.share / (mean(w.data(), e) + floor));
          for (index_t h = 0; h < used; ++h) dw.data[place(e) + h * stride] += slope;
        }
      });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> alignment_loss(const X& weights, std::vector<ExpectedAttention> expected,
                                               index_t head, double divisor) {
  return alignment_loss<element_t<X>>(weights, std::move(expected), head, divisor);
}

}  // namespace eigenformer
