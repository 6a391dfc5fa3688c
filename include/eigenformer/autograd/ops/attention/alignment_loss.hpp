#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

/// A weight of an attention that should be large: of a query's row of weights for a key, both counted within
/// their sequences. share: of the query's probability, 1 / n where n keys of it are right.
struct ExpectedAttention {
  index_t sequence = 0, query = 0, key = 0;
  double share = 1;
};

/// The cross entropy between given alignments and attention weights, in nats: the sum over `expected` of
/// -share log(weight + 1e-6), divided by `divisor` (Chen et al. 2016, section 3.2; Garg et al. 2019, eq. 5).
///
/// weights: (B, H, Lq, Lk), as attention_weights() gives them. head: whose weights, or -1: the mean over the
/// heads. Returns a scalar, 0 for nothing expected. Throws ShapeError for weights of another rank, IndexError
/// for a place outside, ValueError for a head that there is not and for a divisor that is not positive.
template <class T>
[[nodiscard]] Var<T> alignment_loss(const Var<T>& weights, std::vector<ExpectedAttention> expected,
                                    index_t head, double divisor) {
  constexpr const char* name = "alignment_loss";
  const OpScope scope(Runtime::instance().profiler(), name);
  if (weights.rank() != 4) {
    throw ShapeError(name,
                     "weights of shape " + weights.shape().str() +
                         " must be (B, H, Lq, Lk), those of each sequence and head",
                     {weights.shape()});
  }
  const index_t batch = weights.dim(0), heads = weights.dim(1), queries = weights.dim(2),
                keys = weights.dim(3);
  if (head < -1 || head >= heads) {
    throw ValueError(name, "head is " + std::to_string(head) + ", must be below " + std::to_string(heads) +
                               ", the heads of the weights, or -1 for all");
  }
  if (!(divisor > 0) || !std::isfinite(divisor))
    throw ValueError(name, "divisor is " + std::to_string(divisor) + ", must be positive");
  constexpr double floor = 1e-6;  // where a weight is 0, the logarithm and its slope stay finite
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
      throw IndexError(name, "query " + std::to_string(e.query) + " and key " + std::to_string(e.key) +
                                 " of sequence " + std::to_string(e.sequence) +
                                 " are outside weights of shape " + weights.shape().str());
    }
    sum -= e.share * std::log(mean(weights.value().data(), e) + floor);
  }
  Tensor<T> y = Tensor<T>::scalar(static_cast<T>(sum / divisor));
  if (detail::not_recorded<T>(y, weights)) return Var<T>(std::move(y));
  // dW[b, h, i, j] = -share / (divisor n (mean + floor)) for the n heads of the mean, 0 elsewhere.
  return record(name, std::move(y), {weights}, SavedTensors(weights),
                [w = weights.value(), expected = std::move(expected), place, mean, used, stride,
                 divisor](Backward<T>& b) {
                  const auto dw = b.grad(0);
                  if (!dw) return;
                  if (dw.beta == T(0)) std::fill_n(dw.data, w.numel(), T(0));
                  const double scale =
                      static_cast<double>(b.dy().item()) / (divisor * static_cast<double>(used));
                  for (const ExpectedAttention& e : expected) {
                    const T slope = static_cast<T>(-scale * e.share / (mean(w.data(), e) + floor));
                    for (index_t h = 0; h < used; ++h) dw.data[place(e) + h * stride] += slope;
                  }
                });
}

}  // namespace eigenformer
