#pragma once

#include "autograd/programs/generator_attention.hpp"

namespace eigenformer::testing::programs {

inline bool Generator::fill_layers(Node& node) {
  const auto columns = [&] { return shape_of(node.in[0])[-1]; };
  switch (node.op) {
    case Op::layer_norm:
    case Op::rms_norm:
    case Op::add_layer_norm:
    case Op::add_rms_norm: {
      const bool rms = node.op == Op::rms_norm || node.op == Op::add_rms_norm;
      const bool adds = node.op == Op::add_layer_norm || node.op == Op::add_rms_norm;
      node.in = {any(1)};
      node.shape = shape_of(node.in[0]);
      if (adds) {
        node.in.push_back(of_shape(node.shape));
        maybe_layout(node, node.shape.rows());
      }
      node.n = {!rms && columns() > 2 && chance(0.3), !rms && chance(0.2)};
      node.x = {chance(0.5) ? 1e-3 : 0.1, rate()};
      const Shape gain{node.n[1] != 0 ? 1 : columns()};
      node.in.push_back(maybe(gain));
      if (!rms) node.in.push_back(maybe(gain));
      return true;
    }
    case Op::softmax:
    case Op::log_softmax:
    case Op::masked_softmax:
    case Op::masked_log_softmax: {
      node.in = {any(1)};
      node.shape = shape_of(node.in[0]);
      node.n = {chance(0.6) ? -1 : either(below(node.shape.rank()), node.shape.rank())};
      if (node.op < Op::masked_softmax) return true;
      flags(node, node.shape.numel(), 0.6);
      if (node.op == Op::masked_log_softmax) {  // of a line without elements it is NaN
        reference::lines(node.shape, node.n[0], [&](const std::vector<index_t>& at) {
          if (!at.empty()) node.flags[static_cast<std::size_t>(at[at.size() / 2])] = 1;
        });
      }
      return true;
    }
    case Op::cross_entropy: {
      node.in = {any(1)};
      const Shape s = shape_of(node.in[0]);
      if (s[-1] == 0) return false;
      targets(node, s.rows(), s[-1]);
      return true;
    }
    case Op::linear_cross_entropy: {
      node.in = {any(2, 2)};
      const Shape s = shape_of(node.in[0]);
      const index_t classes = positive();
      node.in.push_back(weight({classes, s[1]}));
      node.in.push_back(maybe_weight({classes}));
      targets(node, s[0], classes);
      return true;
    }
    case Op::matmul: {
      const int a = any(2);
      const Shape s = shape_of(a);
      const bool ta = chance(0.4), tb = chance(0.4);
      const index_t m = s[ta ? -1 : -2], k = s[ta ? -2 : -1];
      const Shape batch = s.without(-1).without(-1);
      Shape other = chance(0.5) ? batch : partner(batch);
      if (other.rank() > 3) return false;
      const index_t n = size();
      other = tb ? other.inserted(-1, n).inserted(-1, k) : other.inserted(-1, k).inserted(-1, n);
      if (other.numel() > most()) return false;
      int b = chance(0.5) ? existing([&](const Node& node_b) {
        const Shape& x = node_b.shape;
        if (x.rank() < 2 || x.rank() != s.rank() || x[tb ? -1 : -2] != k) return false;
        return x.without(-1).without(-1) == batch;
      })
                          : -1;
      if (b < 0) b = of_shape(other);
      const Shape x = shape_of(b);
      const Shape both = broadcast(batch, x.without(-1).without(-1));
      node.shape = both.inserted(-1, m).inserted(-1, x[tb ? -2 : -1]);
      if (node.shape.numel() > most() || node.shape.numel() * k > 40 * most()) return false;
      node.in = {a, b};
      node.n = {ta, tb};
      return true;
    }
    case Op::linear: {
      node.in = {any(1)};
      const index_t out = size();
      node.in.push_back(weight({out, columns()}));
      node.in.push_back(maybe_weight({out}));
      node.n = {chance(0.4) ? static_cast<index_t>(Activation::none) : activation()};
      node.x = {rate()};
      node.shape = shape_of(node.in[0]).with(-1, out);
      maybe_layout(node, node.shape.rows());
      return node.shape.numel() <= most();
    }
    case Op::linear_slice: {
      node.in = {any(1)};
      const index_t out = size(), begin = below(out + 1), count = below(out - begin + 1);
      node.in.push_back(weight({out, columns()}));
      node.in.push_back(maybe_weight({out}));
      node.n = {begin, count};
      node.shape = shape_of(node.in[0]).with(-1, count);
      return node.shape.numel() <= most();
    }
    case Op::feed_forward:
    case Op::gated_feed_forward: {
      node.in = {any(1)};
      const index_t ff = size(), out = chance(0.5) ? columns() : size();
      for (int half = node.op == Op::feed_forward ? 1 : 0; half < 2; ++half) {
        node.in.push_back(weight({ff, columns()}));
        node.in.push_back(maybe_weight({ff}));
      }
      node.in.push_back(weight({out, ff}));
      node.in.push_back(maybe_weight({out}));
      node.n = {activation()};
      node.x = {rate()};
      node.shape = shape_of(node.in[0]).with(-1, out);
      maybe_layout(node, node.shape.rows());
      return node.shape.numel() <= most() && shape_of(node.in[0]).rows() * ff <= most();
    }
    case Op::glu:
      node.in = {existing([](const Node& n) { return n.shape.rank() > 0 && n.shape[-1] % 2 == 0; })};
      if (node.in[0] < 0) node.in[0] = leaf(shape(0, 2).inserted(-1, 2 * size()), false);
      node.n = {activation()};
      node.shape = shape_of(node.in[0]).with(-1, columns() / 2);
      return true;
    case Op::attention:
    case Op::self_attention:
    case Op::cross_attention:
    case Op::attention_weights:
      attention(node);
      return true;
    case Op::plain_attention: {
      const index_t batch = below(3), heads = 1 + below(3), lq = below(6), lk = below(6), d = 1 + below(6),
                    dv = 1 + below(6);
      const auto make = [&](index_t l, index_t width, bool four) {
        return four ? Shape{batch, heads, l, width} : Shape{batch, l, width};
      };
      const bool four = chance(0.5);
      node.in = {of_shape(make(lq, d, four)), of_shape(make(lk, d, four)), of_shape(make(lk, dv, four))};
      node.n = {below(2)};
      node.shape = make(lq, dv, four);
      return true;
    }
    case Op::linear_attention: {
      const index_t heads = 1 + below(3), d = 1 + below(8), dv = 1 + below(20), batch = below(4);
      const Layout queries = layout(batch);
      Layout keys = queries;
      const bool causal = chance(0.4);
      if (!causal && chance(0.6)) {
        keys = layout(1 + below(3));
        for (index_t b = 0; b < batch; ++b)
          node.key_sequence.push_back(static_cast<std::int32_t>(below(keys.batch())));
        if (batch == 0) keys = queries;
      }
      node.layouts = {queries, keys};
      const bool admitted = chance(0.3);
      if (admitted) flags(node, keys.rows(), 0.7);
      node.n = {heads, causal, admitted};
      const Shape q = rows_of(queries, heads * d);
      node.in = {of_shape(q), of_shape(rows_of(keys, heads * d)), of_shape(rows_of(keys, heads * dv))};
      node.shape = q.with(-1, heads * dv);
      return true;
    }
    case Op::rotary: {
      const index_t heads = 1 + below(3), head_dim = 2 + below(7), dim = 2 * (1 + below(head_dim / 2));
      node.layouts = {layout(1 + below(3))};
      node.in = {of_shape(rows_of(node.layouts[0], heads * head_dim + below(4)))};
      node.n = {heads, head_dim, dim, below(2)};
      node.x = {chance(0.5) ? 10000.0 : 100.0};
      node.shape = shape_of(node.in[0]);
      return true;
    }
    case Op::recurrence: {
      node.layouts = {layout(below(4))};
      const Shape s = rows_of(node.layouts[0], size());
      node.in = {of_shape(s), of_shape(s)};
      node.shape = s;
      return true;
    }
    case Op::alignment_loss: {
      node.in = {
          existing([](const Node& n) { return n.op == Op::attention_weights && n.shape.numel() > 0; })};
      if (node.in[0] < 0) return false;
      const Shape s = shape_of(node.in[0]);
      node.n = {below(s[1] + 1) - 1};
      node.x = {1 + random_.uniform()};
      for (index_t i = 1 + below(4); i > 0; --i) {
        node.n.insert(node.n.end(), {below(s[0]), below(s[2]), below(s[3])});
        node.x.push_back(chance(0.5) ? 1 : 0.5);
      }
      node.shape = Shape();
      return true;
    }
    default:
      return false;
  }
}

}  // namespace eigenformer::testing::programs
