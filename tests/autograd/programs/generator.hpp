#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "autograd/programs/reference_ops.hpp"

namespace eigenformer::testing::programs {

/// Makes the program of a seed: leaves, and ops that take earlier nodes where these fit and new leaves where
/// not. Each op is evaluated at once by the reference, so that a program has no overflow and no division by
/// 0.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed ^ 0x5851F42D4C957F2Du) {
    program_.seed = seed;
    program_.drops = chance(0.4);
    program_.key = {random_.next_u64(), static_cast<std::uint32_t>(below(9)),
                    static_cast<std::uint32_t>(below(9))};
    large_ = chance(0.02);
  }

  Program make() {
    Graph numbers;
    graph() = &numbers;
    Evaluation evaluation{program_.drops, program_.key, 0};
    const index_t wanted = 3 + below(10);
    index_t ops = 0;
    for (int attempt = 0; ops < wanted && attempt < 200; ++attempt) {
      const std::size_t nodes = program_.nodes.size();
      Node node;
      if (!fill(node,
                static_cast<Op>(static_cast<index_t>(Op::add) +
                                below(static_cast<index_t>(Op::count) - static_cast<index_t>(Op::add))))) {
        program_.nodes.resize(nodes);
        continue;
      }
      const std::size_t first = numbers.size();
      const std::size_t kinks = numbers.kinks().size();
      const Evaluation before = evaluation;
      const auto forget = [&] {
        program_.nodes.resize(nodes);
        values_.resize(nodes);
        numbers.truncate(first, kinks);
        evaluation = before;
      };
      for (std::size_t i = nodes; i < program_.nodes.size(); ++i)
        values_.push_back(reference::evaluate(program_.nodes[i], values_, evaluation));
      if (!in_domain(node)) {
        forget();
        continue;
      }
      Numbers y = reference::evaluate(node, values_, evaluation);
      if (!tame(y) || numbers.edges() > (large_ ? 3000000u : 400000u)) {
        forget();
        continue;
      }
      values_.push_back(std::move(y));
      program_.nodes.push_back(std::move(node));
      ++ops;
    }
    for (int i = 0; i < static_cast<int>(program_.nodes.size()); ++i) {
      const Node& node = program_.nodes[static_cast<std::size_t>(i)];
      if (!node.leaf() && (!program_.used(i) || chance(0.1))) program_.outputs.push_back(i);
    }
    graph() = nullptr;
    return program_;
  }

 private:
  index_t below(index_t n) { return n <= 1 ? 0 : random_.uniform_int(n); }
  bool chance(double p) { return random_.uniform() < p; }

  index_t size() {
    const double u = random_.uniform();
    if (u < 0.02) return 0;
    if (u < 0.15) return 1;
    if (u < 0.75) return 2 + below(6);
    if (u < 0.95) return 8 + below(12);
    return 20 + below(large_ ? 120 : 50);
  }
  /// Not 0.
  index_t positive() { return std::max<index_t>(1, size()); }
  index_t most() const { return large_ ? 20000 : 900; }
  Shape shape(index_t least = 0, index_t highest = 4) {
    for (;;) {
      std::vector<index_t> dims;
      for (index_t rank = least + below(highest - least + 1); rank > 0; --rank) dims.push_back(size());
      const Shape s(dims);
      if (s.numel() <= most()) return s;
    }
  }

  /// A new leaf; its values are floats.
  int leaf(const Shape& s, bool parameter, bool above_zero = false) {
    Node node;
    node.shape = s;
    node.op = parameter ? (chance(0.15) ? Op::frozen : Op::parameter)
                        : (chance(0.15)  ? Op::constant
                           : chance(0.2) ? Op::parameter
                                         : Op::variable);
    if (chance(0.5)) node.offset = 1 + below(16);
    const double scale = chance(0.1) ? 3 : 1;
    const bool coarse = chance(0.1);  // with many equal values
    for (index_t i = 0; i < s.numel(); ++i) {
      double v = scale * random_.normal();
      if (coarse) v = std::round(2 * v) / 2;
      if (above_zero) v = 0.3 + std::abs(v);
      node.x.push_back(static_cast<double>(static_cast<float>(v)));
    }
    program_.nodes.push_back(std::move(node));
    return static_cast<int>(program_.nodes.size()) - 1;
  }
  /// An existing node for which `fits`, or -1; later ones are likelier.
  int existing(const std::function<bool(const Node&)>& fits) {
    std::vector<int> found;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i)
      if (fits(program_.nodes[i])) found.push_back(static_cast<int>(i));
    if (found.empty()) return -1;
    const auto n = static_cast<index_t>(found.size());
    return found[static_cast<std::size_t>(std::max(below(n), below(n)))];
  }
  int any(index_t least_rank = 0, index_t highest = 4) {
    const auto fits = [&](const Node& n) {
      return n.shape.rank() >= least_rank && n.shape.rank() <= highest && n.shape.numel() <= most();
    };
    const int found = chance(0.8) ? existing(fits) : -1;
    return found >= 0 ? found : leaf(shape(least_rank, highest), false);
  }
  int of_shape(const Shape& s) {
    const int found = chance(0.6) ? existing([&](const Node& n) { return n.shape == s; }) : -1;
    return found >= 0 ? found : leaf(s, false);
  }
  int weight(const Shape& s) {
    const int found =
        chance(0.3) ? existing([&](const Node& n) { return n.is_parameter() && n.shape == s; }) : -1;
    return found >= 0 ? found : leaf(s, true);
  }
  int maybe_weight(const Shape& s) { return chance(0.25) ? -1 : weight(s); }
  int maybe(const Shape& s) { return chance(0.3) ? -1 : of_shape(s); }
  /// Rows as a matrix, or as (B, L, D) where the layout has a capacity.
  Shape rows_of(const Layout& l, index_t width) {
    if (l.kind != Layout::packed && chance(0.4)) return Shape{l.batch(), l.capacity, width};
    return Shape{l.rows(), width};
  }
  Shape shape_of(int i) const { return program_.nodes[static_cast<std::size_t>(i)].shape; }

  /// A shape that broadcasts with s.
  Shape partner(const Shape& s) {
    std::vector<index_t> dims(s.begin(), s.end());
    if (chance(0.4) && !dims.empty()) dims.erase(dims.begin(), dims.begin() + 1 + below(s.rank()));
    for (index_t& d : dims)
      if (chance(0.25)) d = 1;
    if (dims.size() == static_cast<std::size_t>(s.rank()) && s.rank() < 4 && chance(0.1))
      dims.insert(dims.begin(), 1 + below(3));
    return Shape(dims);
  }
  static Shape broadcast(const Shape& a, const Shape& b) {
    const index_t rank = std::max(a.rank(), b.rank());
    std::vector<index_t> dims(static_cast<std::size_t>(rank));
    for (index_t d = 1; d <= rank; ++d) {
      const index_t x = d <= a.rank() ? a[-d] : 1, y = d <= b.rank() ? b[-d] : 1;
      dims[static_cast<std::size_t>(rank - d)] = x == 1 ? y : x;
    }
    return Shape(dims);
  }

  std::vector<index_t> lengths(index_t batch, index_t most_tokens) {
    std::vector<index_t> result;
    for (index_t b = 0; b < batch; ++b)
      result.push_back(chance(0.1) ? 0 : chance(0.3) ? most_tokens : below(most_tokens + 1));
    return result;
  }
  Layout layout(index_t batch) {
    Layout l;
    l.kind = static_cast<Layout::Kind>(below(4));
    l.capacity = large_ ? 1 + below(90) : 1 + below(9);
    l.lengths = lengths(batch, l.capacity);
    if (l.kind == Layout::around) {
      for (const index_t n : l.lengths) l.leading.push_back(below(l.capacity - n + 1));
    }
    if (chance(0.2))
      for (index_t b = 0; b < batch; ++b) l.first.push_back(below(6));
    if (chance(0.3))
      for (index_t b = 0; b < batch; ++b) l.numbers.push_back(static_cast<std::uint32_t>(below(1000)));
    return l;
  }
  /// A layout of so many rows, for ops by rows; often none.
  void maybe_layout(Node& node, index_t rows) {
    if (rows < 1 || chance(0.6)) return;
    Layout l;
    l.kind = Layout::packed;
    for (index_t rest = rows; rest > 0;) {
      const index_t n = 1 + below(rest);
      l.lengths.push_back(n);
      rest -= n;
      l.numbers.push_back(static_cast<std::uint32_t>(below(100)));
      l.first.push_back(below(5));
    }
    node.layouts.push_back(l);
  }
  double rate() {
    static constexpr double rates[] = {0, 0.1, 0.25, 0.5, 0.9};
    return rates[below(5)];
  }
  void flags(Node& node, index_t n, double p) {
    for (index_t i = 0; i < n; ++i) node.flags.push_back(chance(p) ? 1 : 0);
  }
  index_t activation() { return below(static_cast<index_t>(Activation::elu_plus_one) + 1); }
  index_t either(index_t axis, index_t rank) { return chance(0.5) ? axis : axis - rank; }

  static bool tame(const Numbers& y) {
    for (const Scalar s : y.at)
      if (!(std::abs(s.value()) < 1e3)) return false;
    return true;
  }
  /// Whether the inputs are where an op is smooth and of moderate slope.
  bool in_domain(const Node& node) const {
    const auto least = [&](std::size_t i, bool absolute) {
      double m = 1e300;
      for (const Scalar s : values_[static_cast<std::size_t>(node.in[i])].at)
        m = std::min(m, absolute ? std::abs(s.value()) : s.value());
      return m;
    };
    switch (node.op) {
      case Op::divide:
        return least(1, true) > 0.1;
      case Op::log:
      case Op::sqrt:
        return least(0, false) > 0.01;
      case Op::scalar:
        return node.n[0] != 5 || least(0, true) > 0.1;
      case Op::alignment_loss:
        return least(0, false) > -1e-7;
      default:
        return true;
    }
  }

  void terms(Node& node, const Layout& queries, const Layout& keys, index_t heads, index_t groups);
  void relative(Node& node, index_t heads, index_t dk, index_t dv, bool values);
  void attention(Node& node);
  void targets(Node& node, index_t rows, index_t classes) {
    for (index_t i = 0; i < rows; ++i)
      node.ids.push_back(chance(0.2) ? -100 : static_cast<std::int32_t>(below(classes)));
    node.n = {below(2)};
    node.x = {chance(0.5) ? 0 : 0.1 + 0.4 * random_.uniform(), chance(0.2) ? 7.0 : 0.0};
    node.shape = Shape();
  }

  bool fill(Node& node, Op op);
  bool fill_shapes(Node& node);
  bool fill_layers(Node& node);

  Program program_;
  RandomGenerator random_;
  bool large_ = false;
  std::vector<Numbers> values_;
};

/// Chooses inputs and numbers of an op; false where it does not fit.
inline bool Generator::fill(Node& node, Op op) {
  node.op = op;
  switch (op) {
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::divide:
    case Op::where_above: {
      const int a = any();
      int b = chance(0.5) ? existing([&](const Node& n) { return n.shape == shape_of(a); }) : -1;
      if (b < 0)
        b = op == Op::divide ? leaf(partner(shape_of(a)), false, true) : of_shape(partner(shape_of(a)));
      node.in = {a, b};
      if (chance(0.3)) std::swap(node.in[0], node.in[1]);
      node.shape = broadcast(shape_of(a), shape_of(b));
      node.x = {0.25};
      return true;
    }
    case Op::where: {
      const int a = any();
      node.in = {a, chance(0.3) ? -1 : of_shape(partner(shape_of(a)))};
      const Shape both = node.in[1] < 0 ? shape_of(a) : broadcast(shape_of(a), shape_of(node.in[1]));
      const Shape mask = partner(both);
      node.n.assign(mask.begin(), mask.end());
      flags(node, mask.numel(), 0.5);
      node.x = {-0.75};
      node.shape = broadcast(mask, both);
      return true;
    }
    case Op::scalar:
      node.in = {any()};
      node.n = {below(6)};
      node.x = {chance(0.2) ? 1 : 0.5 + random_.uniform()};
      break;
    case Op::activate:
      node.in = {any()};
      node.n = {activation()};
      break;
    case Op::dropout:
    case Op::stochastic_depth:
      node.in = {any()};
      node.x = {rate()};
      maybe_layout(node, shape_of(node.in[0]).rows());
      break;
    case Op::add_dropout:
      node.in = {any()};
      node.in.push_back(of_shape(shape_of(node.in[0])));
      node.x = {rate()};
      maybe_layout(node, shape_of(node.in[0]).rows());
      break;
    case Op::negate:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::square:
    case Op::detach:
      node.in = {any()};
      break;
    default:
      return op < Op::layer_norm ? fill_shapes(node) : fill_layers(node);
  }
  node.shape = shape_of(node.in[0]);
  return true;
}

}  // namespace eigenformer::testing::programs
