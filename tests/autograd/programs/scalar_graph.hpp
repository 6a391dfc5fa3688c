#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

// Numbers in double whose graph is kept, one node for each number: the gradient of any formula follows by the
// chain rule, without a backward written by hand.

namespace eigenformer::testing::programs {

/// All numbers of one evaluation, each with its derivatives by the numbers that it was computed from.
///
/// With a noise u, each result and each derivative is multiplied by 1 + u x, x random in [-1, 1]: what
/// differs between an evaluation with noise and one without tells how rounding errors grow in a program.
class Graph {
 public:
  explicit Graph(double noise = 0, std::uint64_t seed = 1) : noise_(noise), random_(seed * 2 + 1) {}

  double value(std::int32_t n) const { return values_[static_cast<std::size_t>(n)]; }
  std::size_t size() const { return values_.size(); }
  std::size_t edges() const { return edges_.size(); }

  /// A factor 1 + weight u x.
  double rounding(double weight = 1) {
    if (noise_ == 0) return 1;
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return 1 + weight * noise_ * (static_cast<double>(random_ >> 11) * 0x1p-52 - 1);
  }

  /// A derivative of the number that finish() makes next.
  void edge(std::int32_t from, double derivative) { edges_.push_back({from, derivative * rounding()}); }
  /// The number itself. Exact ones (leaves, copies) have no noise.
  std::int32_t finish(double value, bool exact = false) {
    values_.push_back(exact ? value : value * rounding());
    ends_.push_back(edges_.size());
    return static_cast<std::int32_t>(values_.size()) - 1;
  }

  /// A function was evaluated at this distance from a point where it is not smooth.
  void kink(double distance) { kinks_.push_back(distance); }
  const std::vector<double>& kinks() const { return kinks_; }

  /// The derivatives by all numbers of the sum of numbers times their cotangents.
  std::vector<double> backward(const std::vector<std::pair<std::int32_t, double>>& cotangents) {
    std::vector<double> adjoints(values_.size(), 0.0);
    for (const auto& [n, c] : cotangents) adjoints[static_cast<std::size_t>(n)] += c * rounding();
    for (std::size_t n = values_.size(); n-- > 0;) {
      if (adjoints[n] == 0) continue;
      const double adjoint = adjoints[n] * rounding();
      for (std::size_t e = n == 0 ? 0 : ends_[n - 1]; e < ends_[n]; ++e)
        adjoints[static_cast<std::size_t>(edges_[e].from)] += adjoint * edges_[e].derivative;
    }
    return adjoints;
  }

  /// Forgets all numbers and kinks but the first ones.
  void truncate(std::size_t numbers, std::size_t kinks) {
    values_.resize(numbers);
    ends_.resize(numbers);
    edges_.resize(numbers == 0 ? 0 : ends_.back());
    kinks_.resize(kinks);
  }

 private:
  struct Edge {
    std::int32_t from;
    double derivative;
  };
  double noise_;
  std::uint64_t random_;
  std::vector<double> kinks_;
  std::vector<double> values_;
  std::vector<std::size_t> ends_;
  std::vector<Edge> edges_;
};

/// The graph in use; the tests of programs run on one thread.
inline Graph*& graph() {
  static Graph* current = nullptr;
  return current;
}

/// A number of the graph in use.
struct Scalar {
  std::int32_t id = -1;
  double value() const { return graph()->value(id); }
};

using Scalars = std::vector<Scalar>;

/// A number without derivatives.
inline Scalar constant(double value) { return {graph()->finish(value, true)}; }

/// f(x) = value, f'(x) = derivative.
inline Scalar function(Scalar x, double value, double derivative, bool exact = false) {
  graph()->edge(x.id, derivative);
  return {graph()->finish(value, exact)};
}

inline Scalar operator+(Scalar a, Scalar b) {
  graph()->edge(a.id, 1);
  graph()->edge(b.id, 1);
  return {graph()->finish(a.value() + b.value())};
}
inline Scalar operator-(Scalar a, Scalar b) {
  graph()->edge(a.id, 1);
  graph()->edge(b.id, -1);
  return {graph()->finish(a.value() - b.value())};
}
inline Scalar operator*(Scalar a, Scalar b) {
  graph()->edge(a.id, b.value());
  graph()->edge(b.id, a.value());
  return {graph()->finish(a.value() * b.value())};
}
inline Scalar operator/(Scalar a, Scalar b) {
  const double x = a.value(), y = b.value();
  graph()->edge(a.id, 1 / y);
  graph()->edge(b.id, -x / (y * y));
  return {graph()->finish(x / y)};
}
inline Scalar operator+(Scalar a, double c) { return function(a, a.value() + c, 1); }
inline Scalar operator*(Scalar a, double c) { return function(a, a.value() * c, c); }

inline Scalar exp(Scalar x) {
  const double y = std::exp(x.value());
  return function(x, y, y);
}
inline Scalar log(Scalar x) { return function(x, std::log(x.value()), 1 / x.value()); }
inline Scalar sqrt(Scalar x) {
  const double y = std::sqrt(x.value());
  return function(x, y, 0.5 / y);
}

/// A sum of numbers and of products, as one node.
class Sum {
 public:
  Sum& add(Scalar a, double factor = 1) {
    value_ += a.value() * factor * graph()->rounding();
    terms_.push_back({a.id, factor});
    return *this;
  }
  Sum& add(Scalar a, Scalar b, double factor = 1) {
    value_ += a.value() * b.value() * factor * graph()->rounding();
    terms_.push_back({a.id, b.value() * factor});
    terms_.push_back({b.id, a.value() * factor});
    return *this;
  }
  Scalar done() {
    // Sums of many equal numbers are always rounded the same way.
    const double steps = std::max(1.0, static_cast<double>(terms_.size()) / 16);
    for (const auto& [id, derivative] : terms_) graph()->edge(id, derivative);
    return {graph()->finish(static_cast<double>(value_) * graph()->rounding(steps))};
  }

 private:
  long double value_ = 0;
  std::vector<std::pair<std::int32_t, double>> terms_;
};

}  // namespace eigenformer::testing::programs
