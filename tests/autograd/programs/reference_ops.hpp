#pragma once

#include <cstddef>
#include <vector>

#include "autograd/programs/reference_attention.hpp"

namespace eigenformer::testing::programs::reference {

/// The result of one node, from those before it.
inline Numbers evaluate(const Node& node, const std::vector<Numbers>& all, Evaluation& e) {
  const auto optional = [&](std::size_t i) -> const Numbers* {
    return i < node.in.size() && node.in[i] >= 0 ? &all[static_cast<std::size_t>(node.in[i])] : nullptr;
  };
  const auto in = [&](std::size_t i) -> const Numbers& { return *optional(i); };
  const auto one_by_one = [&](auto&& f) {
    Numbers y{node.shape, {}};
    for (const Scalar s : in(0).at) y.at.push_back(f(s));
    return y;
  };
  const auto pairs = [&](auto&& f) {
    Numbers y{node.shape, {}};
    const Numbers &a = in(0), &b = in(1);
    each(node.shape, strides(a.shape, node.shape.rank()), strides(b.shape, node.shape.rank()),
         [&](index_t, index_t i, index_t j) { y.at.push_back(f(a[i], b[j])); });
    return y;
  };
  // Element i of the result is element f(i) of the input.
  const auto taken = [&](auto&& f) {
    Numbers y{node.shape, {}};
    for (index_t i = 0; i < node.shape.numel(); ++i) y.at.push_back(in(0)[f(i)]);
    return y;
  };
  const auto activation = [&] { return static_cast<Activation>(node.n[0]); };

  switch (node.op) {
    case Op::variable:
    case Op::constant:
    case Op::parameter:
    case Op::frozen: {
      Numbers y{node.shape, {}};
      for (const double x : node.x) y.at.push_back(constant(x));
      return y;
    }
    case Op::add:
      return pairs([](Scalar a, Scalar b) { return a + b; });
    case Op::subtract:
      return pairs([](Scalar a, Scalar b) { return a - b; });
    case Op::multiply:
      return pairs([](Scalar a, Scalar b) { return a * b; });
    case Op::divide:
      return pairs([](Scalar a, Scalar b) { return a / b; });
    case Op::scalar:
      return one_by_one([&](Scalar s) {
        const double c = node.x[0];
        switch (node.n[0]) {
          case 0:
            return s + c;
          case 1:
            return s + -c;
          case 2:
            return s * c;
          case 3:
            return s / constant(c);
          case 4:
            return constant(c) - s;
          default:
            return constant(c) / s;
        }
      });
    case Op::negate:
      return one_by_one([](Scalar s) { return s * -1; });
    case Op::exp:
      return one_by_one([](Scalar s) { return exp(s); });
    case Op::log:
      return one_by_one([](Scalar s) { return log(s); });
    case Op::sqrt:
      return one_by_one([](Scalar s) { return sqrt(s); });
    case Op::square:
      return one_by_one([](Scalar s) { return s * s; });
    case Op::activate:
      return activate(activation(), in(0));
    case Op::where: {
      Numbers y{node.shape, {}};
      const Shape mask(node.n);
      const Scalar c = optional(1) == nullptr ? constant(node.x[0]) : Scalar{};
      const Numbers* b = optional(1);
      const index_t rank = node.shape.rank();
      std::vector<std::uint8_t> flags;
      each(node.shape, strides(mask, rank), strides(mask, rank),
           [&](index_t, index_t m, index_t) { flags.push_back(node.flags[static_cast<std::size_t>(m)]); });
      each(node.shape, strides(in(0).shape, rank), strides(b == nullptr ? Shape() : b->shape, rank),
           [&](index_t i, index_t at_a, index_t at_b) {
             const bool first = flags[static_cast<std::size_t>(i)] != 0;
             y.at.push_back(first ? in(0)[at_a] : b == nullptr ? c : (*b)[at_b]);
           });
      return y;
    }
    case Op::where_above: {
      const Scalar c = constant(node.x[0]);
      return pairs([&](Scalar a, Scalar b) {
        graph()->kink(a.value() - b.value());
        return a.value() > b.value() ? a : c;
      });
    }
    case Op::dropout:
      return maybe_drop(e, node, node.x[0], in(0));
    case Op::add_dropout: {
      const Numbers r = maybe_drop(e, node, node.x[0], in(1));
      Numbers y = in(0);
      for (std::size_t i = 0; i < y.at.size(); ++i) y.at[i] = y.at[i] + r.at[i];
      return y;
    }
    case Op::stochastic_depth: {
      if (!e.drops || node.x[0] == 0) return in(0);
      const eigenformer::detail::DropoutKey key = e.next();
      const auto keys =
          node.layouts.empty() ? std::vector<eigenformer::detail::RowKey>{} : node.layouts[0].keys();
      Numbers y = in(0);
      for (index_t r = 0; r < y.rows(); ++r) {
        const std::uint32_t sequence = keys.empty() ? 0 : keys[static_cast<std::size_t>(r)].sequence;
        const double factor = kept(key, node.x[0], sequence, 0, 0, 0, 0);
        for (index_t i = 0; i < y.cols(); ++i) y[r * y.cols() + i] = y[r * y.cols() + i] * factor;
      }
      return y;
    }
    case Op::sum:
    case Op::mean:
    case Op::max:
      return reduce(node, in(0));
    case Op::reshape:
    case Op::detach: {
      Numbers y{node.shape, in(0).at};
      if (node.op == Op::detach)
        for (Scalar& s : y.at) s = constant(s.value());
      return y;
    }
    case Op::permute:
    case Op::transpose: {
      std::vector<index_t> order(static_cast<std::size_t>(node.shape.rank()));
      const auto front = [&](index_t d) {
        return static_cast<std::size_t>(d < 0 ? d + node.shape.rank() : d);
      };
      for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<index_t>(d);
      if (node.op == Op::transpose) {
        std::swap(order[front(node.n[0])], order[front(node.n[1])]);
      } else {
        for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<index_t>(front(node.n[d]));
      }
      const auto from = strides(in(0).shape, node.shape.rank());
      std::vector<index_t> to;
      for (const index_t d : order) to.push_back(from[static_cast<std::size_t>(d)]);
      Numbers y{node.shape, {}};
      each(node.shape, to, to, [&](index_t, index_t at, index_t) { y.at.push_back(in(0)[at]); });
      return y;
    }
    case Op::slice: {
      Numbers y{node.shape, Scalars(static_cast<std::size_t>(node.shape.numel()))};
      std::vector<std::vector<index_t>> to;
      lines(node.shape, node.n[0], [&](const std::vector<index_t>& at) { to.push_back(at); });
      std::size_t line = 0;
      lines(in(0).shape, node.n[0], [&](const std::vector<index_t>& at) {
        for (std::size_t i = 0; i < to[line].size(); ++i)
          y[to[line][i]] = in(0)[at[static_cast<std::size_t>(node.n[1]) + i]];
        ++line;
      });
      return y;
    }
    case Op::concat:
    case Op::stack: {
      const bool stacks = node.op == Op::stack;
      const index_t rank = node.shape.rank(), a = node.n[0] < 0 ? node.n[0] + rank : node.n[0];
      Numbers y{node.shape, Scalars(static_cast<std::size_t>(node.shape.numel()))};
      std::vector<std::vector<index_t>> to;
      lines(node.shape, a, [&](const std::vector<index_t>& at) { to.push_back(at); });
      std::size_t done = 0;
      for (std::size_t part = 0; part < node.in.size(); ++part) {
        const Shape shape = stacks ? in(part).shape.inserted(a, 1) : in(part).shape;
        std::size_t line = 0;
        lines(shape, a, [&](const std::vector<index_t>& at) {
          for (std::size_t i = 0; i < at.size(); ++i) y[to[line][done + i]] = in(part)[at[i]];
          ++line;
        });
        done += static_cast<std::size_t>(shape[a]);
      }
      return y;
    }
    case Op::embedding: {
      const index_t d = in(0).cols();
      Numbers y{node.shape, {}};
      for (const std::int32_t id : node.ids) {
        for (index_t i = 0; i < d; ++i) {
          const Scalar s = in(0)[id * d + i];
          y.at.push_back((id == node.n[0] ? constant(s.value()) : s) * node.x[0]);
        }
      }
      return y;
    }
    case Op::gather: {
      const index_t rank = node.shape.rank(), a = node.n[0] < 0 ? node.n[0] + rank : node.n[0];
      auto from = strides(in(0).shape, rank);
      const index_t step = from[static_cast<std::size_t>(a)];
      from[static_cast<std::size_t>(a)] = 0;
      Numbers y{node.shape, {}};
      each(node.shape, from, from, [&](index_t i, index_t at, index_t) {
        y.at.push_back(in(0)[at + step * node.ids[static_cast<std::size_t>(i)]]);
      });
      return y;
    }
    case Op::index_select: {
      const index_t width = in(0).shape[0] == 0 ? 0 : in(0).shape.numel() / in(0).shape[0];
      return taken(
          [&](index_t i) { return node.ids[static_cast<std::size_t>(i / width)] * width + i % width; });
    }
    case Op::pool: {
      const Layout& layout = node.layouts[0];
      const index_t d = in(0).cols();
      Numbers y{node.shape, {}};
      for (index_t b = 0; b < layout.batch(); ++b) {
        const index_t n = node.n[0] != 0 ? std::min<index_t>(1, layout.length(b)) : layout.length(b);
        for (index_t i = 0; i < d; ++i) {
          Sum sum;
          for (index_t r = 0; r < n; ++r)
            sum.add(in(0)[layout.row(b, r) * d + i], 1 / static_cast<double>(n));
          y.at.push_back(sum.done());
        }
      }
      return y;
    }
    case Op::layer_norm:
    case Op::rms_norm:
      return normalize(node, in(0), optional(1), optional(2));
    case Op::add_layer_norm:
    case Op::add_rms_norm: {
      const Numbers r = maybe_drop(e, node, node.x[1], in(1));
      Numbers s = in(0);
      for (std::size_t i = 0; i < s.at.size(); ++i) s.at[i] = s.at[i] + r.at[i];
      return normalize(node, s, optional(2), optional(3));
    }
    case Op::softmax:
    case Op::log_softmax: {
      Numbers y = in(0);
      lines(node.shape, node.n[0], [&](const std::vector<index_t>& at) {
        Scalars line;
        for (const index_t i : at) line.push_back(in(0)[i]);
        line = node.op == Op::softmax ? softmax(line) : log_softmax(line);
        for (std::size_t i = 0; i < at.size(); ++i) y[at[i]] = line[i];
      });
      return y;
    }
    case Op::masked_softmax:
    case Op::masked_log_softmax: {
      const Scalar zero = constant(0);
      Numbers y{node.shape, Scalars(in(0).at.size(), zero)};
      lines(node.shape, node.n[0], [&](const std::vector<index_t>& at) {
        Scalars line;
        for (const index_t i : at)
          if (node.flags[static_cast<std::size_t>(i)] != 0) line.push_back(in(0)[i]);
        line = node.op == Op::masked_softmax ? softmax(line) : log_softmax(line);
        std::size_t next = 0;
        for (const index_t i : at)
          if (node.flags[static_cast<std::size_t>(i)] != 0) y[i] = line[next++];
      });
      return y;
    }
    case Op::cross_entropy:
      return {node.shape, {cross_entropy(node, in(0))}};
    case Op::linear_cross_entropy:
      return {node.shape, {cross_entropy(node, linear(in(0), in(1), optional(2), 0, in(1).shape[0]))}};
    case Op::matmul:
      return matmul(node, in(0), in(1));
    case Op::linear:
      return maybe_drop(e, node, node.x[0],
                        activate(activation(), linear(in(0), in(1), optional(2), 0, in(1).shape[0])));
    case Op::linear_slice:
      return linear(in(0), in(1), optional(2), node.n[0], node.n[1]);
    case Op::feed_forward: {
      const Numbers hidden = maybe_drop(
          e, node, node.x[0], activate(activation(), linear(in(0), in(1), optional(2), 0, in(1).shape[0])));
      return linear(hidden, in(3), optional(4), 0, in(3).shape[0]);
    }
    case Op::gated_feed_forward: {
      const Numbers gate = activate(activation(), linear(in(0), in(1), optional(2), 0, in(1).shape[0]));
      Numbers up = linear(in(0), in(3), optional(4), 0, in(3).shape[0]);
      for (std::size_t i = 0; i < up.at.size(); ++i) up.at[i] = gate.at[i] * up.at[i];
      return linear(maybe_drop(e, node, node.x[0], up), in(5), optional(6), 0, in(5).shape[0]);
    }
    case Op::glu: {
      const index_t n = node.shape[-1];
      Numbers y{node.shape, {}};
      for (index_t r = 0; r < y.rows(); ++r) {
        for (index_t i = 0; i < n; ++i)
          y.at.push_back(in(0)[r * 2 * n + i] * activate(activation(), in(0)[r * 2 * n + n + i]));
      }
      return y;
    }
    case Op::attention:
      return attention(e, node, {&in(0), 0, in(0).cols()}, {&in(1), 0, in(1).cols()},
                       {&in(2), 0, in(2).cols()}, optional(3), optional(4), optional(5));
    case Op::self_attention: {
      const index_t heads = node.attention.heads, groups = node.attention.key_heads;
      const index_t head = in(0).cols() / (heads + 2 * groups), width = head * heads, side = head * groups;
      return attention(e, node, {&in(0), 0, width}, {&in(0), width, side}, {&in(0), width + side, side},
                       optional(1), optional(2), optional(3));
    }
    case Op::cross_attention: {
      const index_t width = in(1).cols() / 2;
      return attention(e, node, {&in(0), 0, in(0).cols()}, {&in(1), 0, width}, {&in(1), width, width},
                       optional(2), optional(3), optional(4));
    }
    case Op::attention_weights:
      return attention(e, node, {&in(0), 0, in(0).cols()}, {&in(1), 0, in(1).cols()}, {}, optional(2),
                       optional(3), nullptr);
    case Op::plain_attention:
      return plain_attention(node, in(0), in(1), in(2));
    case Op::linear_attention:
      return linear_attention(node, in(0), in(1), in(2));
    case Op::rotary:
      return rotary(node, in(0));
    case Op::recurrence:
      return recurrence(node, in(0), in(1));
    case Op::alignment_loss: {
      const Shape& s = in(0).shape;
      const index_t heads = node.n[0] < 0 ? s[1] : 1, first = std::max<index_t>(0, node.n[0]);
      Sum loss;
      for (std::size_t i = 1; i + 2 < node.n.size(); i += 3) {
        Sum mean;
        for (index_t h = first; h < first + heads; ++h) {
          mean.add(in(0)[((node.n[i] * s[1] + h) * s[2] + node.n[i + 1]) * s[3] + node.n[i + 2]],
                   1 / static_cast<double>(heads));
        }
        loss.add(log(mean.done() + 1e-6), -node.x[1 + i / 3] / node.x[0]);
      }
      return {node.shape, {loss.done()}};
    }
    case Op::count:
      break;
  }
  return {};
}

}  // namespace eigenformer::testing::programs::reference
