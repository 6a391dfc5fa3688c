#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/programs/program.hpp"
#include "autograd/programs/scalar_graph.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

// Ops as plain loops over numbers of a graph.

namespace eigenformer::testing::programs {

/// A tensor of numbers, row-major.
struct Numbers {
  Shape shape;
  Scalars at;

  Scalar operator[](index_t i) const { return at[static_cast<std::size_t>(i)]; }
  Scalar& operator[](index_t i) { return at[static_cast<std::size_t>(i)]; }
  index_t cols() const { return shape.rank() == 0 ? 1 : shape[-1]; }
  index_t rows() const {
    index_t n = 1;
    for (index_t d = 0; d + 1 < shape.rank(); ++d) n *= shape[d];
    return n;
  }
};

/// What ops share in one evaluation: the number of the next dropout.
struct Evaluation {
  bool drops = false;
  eigenformer::detail::DropoutKey key{};
  std::uint32_t site = 0;

  eigenformer::detail::DropoutKey next() {
    eigenformer::detail::DropoutKey k = key;
    k.site += site++;
    return k;
  }
};

namespace reference {

/// The strides of a shape, 0 for dimensions that broadcast to `rank` dimensions.
inline std::vector<index_t> strides(const Shape& shape, index_t rank) {
  std::vector<index_t> result(static_cast<std::size_t>(rank), 0);
  index_t stride = 1;
  for (index_t d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] != 1) result[static_cast<std::size_t>(rank - shape.rank() + d)] = stride;
    stride *= shape[d];
  }
  return result;
}

/// Calls f(flat index, position by given strides...) for every element of a shape.
template <class F>
void each(const Shape& shape, const std::vector<index_t>& a, const std::vector<index_t>& b, F&& f) {
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::vector<index_t> at(rank, 0);
  const index_t total = shape.numel();
  for (index_t i = 0; i < total; ++i) {
    index_t in_a = 0, in_b = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      in_a += at[d] * a[d];
      in_b += at[d] * b[d];
    }
    f(i, in_a, in_b);
    for (std::size_t d = rank; d-- > 0;) {
      if (++at[d] < shape[static_cast<index_t>(d)]) break;
      at[d] = 0;
    }
  }
}

/// A number of a dropout mask: 0 or 1 / (1 - rate).
inline double kept(const eigenformer::detail::DropoutKey& key, double rate, std::uint32_t c0,
                   std::uint32_t c1, std::uint32_t c2, std::uint32_t c3, std::size_t word) {
  const auto words = eigenformer::detail::Philox4x32::generate({c0, c1, c2, c3}, key.philox_key());
  return static_cast<double>(words[word]) >= std::floor(rate * 0x1p32 + 0.5) ? 1 / (1 - rate) : 0;
}

/// Dropout of rows: element j of a row takes word j % 64 / 16 of counter (sequence, position, 0, j / 64 * 16
/// + j % 16).
inline Numbers drop(const eigenformer::detail::DropoutKey& key, double rate,
                    const std::vector<eigenformer::detail::RowKey>& keys, const Numbers& x) {
  Numbers y = x;
  for (index_t r = 0; r < x.rows(); ++r) {
    const eigenformer::detail::RowKey row =
        keys.empty() ? eigenformer::detail::RowKey{0, static_cast<std::uint32_t>(r)}
                     : keys[static_cast<std::size_t>(r)];
    for (index_t j = 0; j < x.cols(); ++j) {
      y[r * x.cols() + j] = x[r * x.cols() + j] * kept(key, rate, row.sequence, row.position, 0,
                                                       static_cast<std::uint32_t>(j / 64 * 16 + j % 16),
                                                       static_cast<std::size_t>(j % 64 / 16));
    }
  }
  return y;
}

inline Numbers maybe_drop(Evaluation& e, const Node& node, double rate, const Numbers& x) {
  if (!e.drops || rate == 0) return x;
  return drop(e.next(), rate,
              node.layouts.empty() ? std::vector<eigenformer::detail::RowKey>{} : node.layouts[0].keys(), x);
}

inline Scalar activate(Activation f, Scalar s) {
  const double x = s.value();
  // Derivatives are computed from rounded results: 1 - y^2 loses digits where y is near 1.
  const auto rounded = [](double y) { return y * graph()->rounding(); };
  const double sigmoid = rounded(1 / (1 + std::exp(-x)));
  switch (f) {
    case Activation::none:
      return s;
    case Activation::relu:
      graph()->kink(x);
      return x > 0 ? function(s, x, 1, true) : function(s, 0, 0, true);
    case Activation::relu_squared:
      return x > 0 ? function(s, x * x, 2 * x) : function(s, 0, 0, true);
    case Activation::gelu: {
      const double phi = 0.5 * (1 + rounded(std::erf(x / std::sqrt(2.0))));
      return function(s, x * phi, phi + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI));
    }
    case Activation::gelu_tanh: {
      const double c = std::sqrt(2 / M_PI), t = rounded(std::tanh(c * (x + 0.044715 * x * x * x)));
      return function(s, 0.5 * x * (1 + t),
                      0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x));
    }
    case Activation::silu:
      return function(s, x * sigmoid, sigmoid * (1 + x * (1 - sigmoid)));
    case Activation::sigmoid:
      return function(s, sigmoid, sigmoid * (1 - sigmoid));
    case Activation::tanh: {
      const double y = rounded(std::tanh(x));
      return function(s, y, 1 - y * y);
    }
    case Activation::elu_plus_one:
      return x > 0 ? function(s, x + 1, 1) : function(s, std::exp(x), std::exp(x));
  }
  return s;
}

inline Numbers activate(Activation f, Numbers x) {
  for (Scalar& s : x.at) s = activate(f, s);
  return x;
}

/// exp(x - m) for the largest value m, which is the same as exp(x) in a quotient.
inline Scalars exponentials(const Scalars& x) {
  double most = -std::numeric_limits<double>::infinity();
  for (const Scalar s : x) most = std::max(most, s.value());
  Scalars e;
  for (const Scalar s : x) e.push_back(exp(s + -most));
  return e;
}

inline Scalar total(const Scalars& x) {
  Sum sum;
  for (const Scalar s : x) sum.add(s);
  return sum.done();
}

inline Scalars softmax(const Scalars& x) {
  Scalars e = exponentials(x);
  if (e.empty()) return e;
  const Scalar sum = total(e);
  for (Scalar& s : e) s = s / sum;
  return e;
}

inline Scalars log_softmax(const Scalars& x) {
  if (x.empty()) return x;
  double most = -std::numeric_limits<double>::infinity();
  for (const Scalar s : x) most = std::max(most, s.value());
  const Scalar sum = log(total(exponentials(x)));
  Scalars y;
  for (const Scalar s : x) y.push_back((s + -most) - sum);
  return y;
}

/// Calls f(positions) for every line of elements along an axis.
template <class F>
void lines(const Shape& shape, index_t axis, F&& f) {
  const index_t a = axis < 0 ? axis + shape.rank() : axis;
  index_t outer = 1, inner = 1;
  for (index_t d = 0; d < shape.rank(); ++d) (d < a ? outer : inner) *= d == a ? 1 : shape[d];
  for (index_t o = 0; o < outer; ++o) {
    for (index_t i = 0; i < inner; ++i) {
      std::vector<index_t> at;
      for (index_t k = 0; k < shape[a]; ++k) at.push_back((o * shape[a] + k) * inner + i);
      f(at);
    }
  }
}

inline Numbers normalize(const Node& node, const Numbers& x, const Numbers* gamma, const Numbers* beta) {
  const bool rms = node.op == Op::rms_norm || node.op == Op::add_rms_norm;
  const bool teaching = !rms && node.n[0] != 0, scalar = !rms && node.n[1] != 0;
  const double eps = node.x[0];
  const index_t n = x.cols();
  Numbers y = x;
  for (index_t r = 0; r < x.rows(); ++r) {
    Sum squares, values;
    Scalars centred;
    for (index_t i = 0; i < n; ++i) values.add(x[r * n + i], 1 / static_cast<double>(n));
    const Scalar mean = values.done();
    for (index_t i = 0; i < n; ++i) centred.push_back(rms ? x[r * n + i] : x[r * n + i] - mean);
    for (const Scalar c : centred) squares.add(c, c, 1 / static_cast<double>(teaching ? n - 1 : n));
    const Scalar variance = squares.done();
    if (teaching && variance.value() < 1e-3) {  // no gradient at 0: the generator takes another op
      for (index_t i = 0; i < n; ++i) y[r * n + i] = constant(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const Scalar divisor = teaching ? sqrt(variance) + eps : sqrt(variance + eps);
    for (index_t i = 0; i < n; ++i) {
      Scalar h = centred[static_cast<std::size_t>(i)] / divisor;
      if (gamma != nullptr) h = h * (*gamma)[scalar ? 0 : i];
      if (beta != nullptr) h = h + (*beta)[scalar ? 0 : i];
      y[r * n + i] = h;
    }
  }
  return y;
}

/// The sum of the losses of rows (..., V), with weights by their number.
inline Scalar cross_entropy(const Node& node, const Numbers& logits) {
  const double smoothing = node.x[0], divisor = node.x[1];
  const index_t classes = logits.cols();
  index_t targets = 0;
  for (const std::int32_t id : node.ids) targets += id != -100 ? 1 : 0;
  const double scale = divisor > 0      ? 1 / divisor
                       : node.n[0] == 1 ? 1
                       : targets == 0   ? 0
                                        : 1 / static_cast<double>(targets);
  Sum sum;
  for (std::size_t r = 0; r < node.ids.size(); ++r) {
    if (node.ids[r] == -100) continue;
    const auto begin = logits.at.begin() + static_cast<std::ptrdiff_t>(r) * classes;
    const Scalars p = log_softmax(Scalars(begin, begin + classes));
    sum.add(p[static_cast<std::size_t>(node.ids[r])], -(1 - smoothing) * scale);
    if (smoothing > 0) {
      for (const Scalar s : p) sum.add(s, -smoothing * scale / static_cast<double>(classes));
    }
  }
  return sum.done();
}

/// x W^T + b with rows [begin, begin + count) of W and b.
inline Numbers linear(const Numbers& x, const Numbers& w, const Numbers* b, index_t begin, index_t count) {
  const index_t in = w.shape[1];
  Numbers y{x.shape.with(-1, count), {}};
  for (index_t r = 0; r < x.rows(); ++r) {
    for (index_t o = begin; o < begin + count; ++o) {
      Sum sum;
      for (index_t i = 0; i < in; ++i) sum.add(x[r * in + i], w[o * in + i]);
      if (b != nullptr) sum.add((*b)[o]);
      y.at.push_back(sum.done());
    }
  }
  return y;
}

inline Numbers matmul(const Node& node, const Numbers& a, const Numbers& b) {
  const bool ta = node.n[0] != 0, tb = node.n[1] != 0;
  const index_t m = a.shape[ta ? -1 : -2], k = a.shape[ta ? -2 : -1], n = b.shape[tb ? -2 : -1];
  const Shape batch = node.shape.without(-1).without(-1);
  const auto matrices = [&](const Shape& s) { return strides(s.without(-1).without(-1), batch.rank()); };
  Numbers y{node.shape, {}};
  each(batch, matrices(a.shape), matrices(b.shape), [&](index_t, index_t in_a, index_t in_b) {
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; ++j) {
        Sum sum;
        for (index_t c = 0; c < k; ++c) {
          sum.add(a[in_a * m * k + (ta ? c * m + i : i * k + c)],
                  b[in_b * k * n + (tb ? j * k + c : c * n + j)]);
        }
        y.at.push_back(sum.done());
      }
    }
  });
  return y;
}

inline Numbers reduce(const Node& node, const Numbers& x) {
  const auto rank = static_cast<std::size_t>(x.shape.rank());
  std::vector<bool> reduced(rank, node.n.size() == 1);
  for (std::size_t i = 1; i < node.n.size(); ++i)
    reduced[static_cast<std::size_t>(node.n[i] < 0 ? node.n[i] + x.shape.rank() : node.n[i])] = true;
  std::vector<index_t> to(rank, 0);
  index_t stride = 1;
  for (std::size_t d = rank; d-- > 0;) {
    if (reduced[d]) continue;
    to[d] = stride;
    stride *= x.shape[static_cast<index_t>(d)];
  }
  std::vector<Scalars> groups(static_cast<std::size_t>(node.shape.numel()));
  each(x.shape, to, to,
       [&](index_t i, index_t at, index_t) { groups[static_cast<std::size_t>(at)].push_back(x[i]); });
  Numbers y{node.shape, {}};
  for (const Scalars& group : groups) {
    if (node.op != Op::max) {
      Sum sum;
      for (const Scalar s : group)
        sum.add(s, node.op == Op::mean ? 1 / static_cast<double>(group.size()) : 1);
      y.at.push_back(sum.done());
      continue;
    }
    double most = -std::numeric_limits<double>::infinity();
    for (const Scalar s : group) most = std::max(most, s.value());
    double ties = 0;
    for (const Scalar s : group) {
      ties += s.value() == most ? 1 : 0;
      graph()->kink(most - s.value());
    }
    for (const Scalar s : group)
      if (s.value() == most) graph()->edge(s.id, 1 / ties);
    y.at.push_back({graph()->finish(most, true)});
  }
  return y;
}

/// The key of each row, for rotary positions.
inline Numbers rotary(const Node& node, const Numbers& x) {
  const index_t heads = node.n[0], head_dim = node.n[1], dim = node.n[2];
  const bool halves = node.n[3] != 0;
  const auto keys = node.layouts[0].keys();
  Numbers y = x;
  for (index_t r = 0; r < x.rows(); ++r) {
    const double position = keys[static_cast<std::size_t>(r)].position;
    for (index_t h = 0; h < heads; ++h) {
      for (index_t i = 0; i < dim / 2; ++i) {
        const double angle =
            position * std::pow(node.x[0], -2 * static_cast<double>(i) / static_cast<double>(dim));
        const index_t head = r * x.cols() + h * head_dim;
        const index_t a = head + (halves ? i : 2 * i), b = head + (halves ? i + dim / 2 : 2 * i + 1);
        y[a] = Sum().add(x[a], std::cos(angle)).add(x[b], -std::sin(angle)).done();
        y[b] = Sum().add(x[a], std::sin(angle)).add(x[b], std::cos(angle)).done();
      }
    }
  }
  return y;
}

}  // namespace reference

}  // namespace eigenformer::testing::programs
