#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/programs/program.hpp"
#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/autograd/tape/context.hpp"

namespace eigenformer::testing::programs {

/// A program run by the library's ops.
template <class T>
class LibraryRun {
 public:
  LibraryRun(const Program& program, const Context<T>& ctx, Tape<T>* tape)
      : program_(program), ctx_(ctx), tape_(tape) {
    for (const Node& node : program.nodes) {
      Var<T> y = node.leaf() ? leaf(node) : op(node);
      parameters_.resize(vars_.size() + 1);
      vars_.push_back(std::move(y));
    }
  }

  const Var<T>& var(int i) const { return vars_[static_cast<std::size_t>(i)]; }
  const std::shared_ptr<Parameter<T>>& parameter(int i) const {
    return parameters_[static_cast<std::size_t>(i)];
  }
  /// The unfrozen parameters.
  std::vector<ParameterHandle<T>> trained() const {
    std::vector<ParameterHandle<T>> handles;
    for (const auto& p : parameters_)
      if (p != nullptr && !p->frozen()) handles.push_back(p->handle());
    return handles;
  }
  /// Whether the memory around each leaf is as it was.
  bool surroundings_unchanged() const {
    for (const Block& block : blocks_) {
      for (index_t i = 0; i < static_cast<index_t>(block.memory->size()); ++i) {
        const bool outside = i < block.offset || i >= block.offset + block.numel;
        if (outside && !std::isnan((*block.memory)[static_cast<std::size_t>(i)])) return false;
      }
    }
    return true;
  }

 private:
  struct Block {
    std::shared_ptr<std::vector<T>> memory;
    index_t offset, numel;
  };

  Var<T> in(const Node& node, std::size_t i) const {
    return i < node.in.size() && node.in[i] >= 0 ? var(node.in[i]) : Var<T>();
  }
  const Parameter<T>& weight(const Node& node, std::size_t i) const {
    static const Parameter<T> absent{};
    return i < node.in.size() && node.in[i] >= 0 ? *parameter(node.in[i]) : absent;
  }

  // A tensor in the middle of a block of NaN, so that reading beside it changes a result.
  Var<T> leaf(const Node& node) {
    Tensor<T> value(node.shape);
    if (node.offset > 0) {
      const index_t n = node.shape.numel();
      auto memory = std::make_shared<std::vector<T>>(static_cast<std::size_t>(n + node.offset + 32),
                                                     std::numeric_limits<T>::quiet_NaN());
      value = Tensor<T>::borrow(memory->data() + node.offset, node.shape, memory);
      blocks_.push_back({std::move(memory), node.offset, n});
    }
    for (std::size_t i = 0; i < node.x.size(); ++i) value.data()[i] = static_cast<T>(node.x[i]);
    if (node.is_parameter()) {
      auto p = std::make_shared<Parameter<T>>(std::move(value));
      p->set_frozen(node.op == Op::frozen);
      parameters_.resize(vars_.size());
      parameters_.push_back(p);
      return ctx_.use(*p);
    }
    if (node.op == Op::variable && tape_ != nullptr) return tape_->variable(std::move(value));
    return Var<T>(std::move(value));
  }

  static Tensor<std::int32_t> ids(const Node& node, const Shape& shape) {
    return Tensor<std::int32_t>::from(shape, node.ids);
  }
  static Tensor<bool> flags(const Node& node, const Shape& shape) {
    Tensor<bool> t(shape);
    for (std::size_t i = 0; i < node.flags.size(); ++i) t.data()[i] = node.flags[i] != 0;
    return t;
  }
  static Shape rest(const std::vector<index_t>& n, std::size_t first) {
    return Shape(std::vector<index_t>(n.begin() + static_cast<std::ptrdiff_t>(first), n.end()));
  }

  Context<T> rows(const Node& node) const {
    return node.layouts.empty() ? ctx_ : ctx_.for_rows(node.layouts[0].library());
  }

  static AttentionMask mask(const Node& node) {
    const AttentionNumbers& a = node.attention;
    const Layout &queries = node.layouts[0], &keys = node.layouts.back();
    AttentionMask m;
    if (a.left >= 0 || a.right >= 0) {
      m = AttentionMask::window(a.left < 0 ? AttentionMask::unlimited : a.left,
                                a.right < 0 ? AttentionMask::unlimited : a.right);
    }
    if (a.prefix != 0) m &= AttentionMask::prefix(node.prefix);
    if (a.documents != 0) {
      const Shape of_queries{queries.batch(), queries.max_length()}, of_keys{keys.batch(), keys.max_length()};
      const auto middle = node.ids.begin() + static_cast<std::ptrdiff_t>(of_queries.numel());
      m &= AttentionMask::documents(
          Tensor<std::int32_t>::from(of_queries, std::vector<std::int32_t>(node.ids.begin(), middle)),
          Tensor<std::int32_t>::from(of_keys, std::vector<std::int32_t>(middle, node.ids.end())));
    }
    const Shape shape(node.mask_shape);
    switch (a.dense) {
      case 1:
        m &= AttentionMask::allow(flags(node, shape));
        break;
      case 2:
        m &= AttentionMask::block(flags(node, shape));
        break;
      case 3: {
        Tensor<float> bias(shape);
        for (std::size_t i = 0; i < node.flags.size(); ++i) {
          bias.data()[i] =
              node.flags[i] != 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(node.bias[i]);
        }
        m &= AttentionMask::additive(bias);
        break;
      }
      case 4:
        m &= AttentionMask::key_padding(flags(node, shape));
        break;
      default:
        break;
    }
    return m;
  }

  static eigenformer::detail::AttentionOp options(const Node& node) {
    eigenformer::detail::AttentionOp o;
    o.heads = node.attention.heads;
    o.key_value_heads = node.attention.key_heads;
    o.scale = node.x[0];
    o.dropout = node.x[1];
    o.key_sequence = node.key_sequence;
    if (node.attention.slopes != 0) o.slopes = node.slopes;
    return o;
  }

  Var<T> op(const Node& node) {
    const auto x = [&](std::size_t i) { return in(node, i); };
    const auto w = [&](std::size_t i) -> const Parameter<T>& { return weight(node, i); };
    const auto activation = [&] { return static_cast<Activation>(node.n[0]); };
    const auto axes = [&] { return std::vector<index_t>(node.n.begin() + 1, node.n.end()); };
    const auto all = [&] {
      std::vector<Var<T>> parts;
      for (std::size_t i = 0; i < node.in.size(); ++i) parts.push_back(x(i));
      return parts;
    };
    const auto layout = [&](std::size_t i) { return node.layouts[i].library(); };
    const auto norm = [&] {
      return eigenformer::detail::LayerNormOp{
          .eps = node.x[0],
          .formula = node.n[0] != 0 ? LayerNormFormula::teaching : LayerNormFormula::pytorch,
          .scalar_gain = node.n[1] != 0};
    };
    const auto loss = [&] {
      CrossEntropyOptions o;
      o.label_smoothing = node.x[0];
      o.divisor = node.x[1];
      o.reduction =
          node.n[0] == 1 ? CrossEntropyOptions::Reduction::sum : CrossEntropyOptions::Reduction::mean;
      return o;
    };
    // Where the mask is false -infinity, which softmax maps to exactly 0.
    const auto masked = [&] {
      return eigenformer::where(flags(node, node.shape), x(0), -std::numeric_limits<double>::infinity());
    };
    switch (node.op) {
      case Op::add:
        return x(0) + x(1);
      case Op::subtract:
        return x(0) - x(1);
      case Op::multiply:
        return x(0) * x(1);
      case Op::divide:
        return x(0) / x(1);
      case Op::scalar: {
        const double c = node.x[0];
        switch (node.n[0]) {
          case 0:
            return x(0) + c;
          case 1:
            return x(0) - c;
          case 2:
            return x(0) * c;
          case 3:
            return x(0) / c;
          case 4:
            return c - x(0);
          default:
            return c / x(0);
        }
      }
      case Op::negate:
        return -x(0);
      case Op::exp:
        return eigenformer::exp(x(0));
      case Op::log:
        return eigenformer::log(x(0));
      case Op::sqrt:
        return eigenformer::sqrt(x(0));
      case Op::square:
        return square(x(0));
      case Op::activate:
        return eigenformer::activate(x(0), activation());
      case Op::where:
        return node.in[1] < 0 ? eigenformer::where(flags(node, Shape(node.n)), x(0), node.x[0])
                              : eigenformer::where(flags(node, Shape(node.n)), x(0), x(1));
      case Op::where_above:
        return eigenformer::where(greater(x(0), x(1)), x(0), node.x[0]);
      case Op::dropout:
        return dropout(rows(node), x(0), node.x[0]);
      case Op::add_dropout:
        return add_dropout(rows(node), x(0), x(1), node.x[0]);
      case Op::stochastic_depth:
        return stochastic_depth(rows(node), x(0), node.x[0]);
      case Op::sum:
        return sum(x(0), axes(), node.n[0] != 0);
      case Op::mean:
        return mean(x(0), axes(), node.n[0] != 0);
      case Op::max:
        return eigenformer::max(x(0), axes(), node.n[0] != 0);
      case Op::reshape:
        return reshape(x(0), node.shape);
      case Op::permute:
        return permute(x(0), node.n);
      case Op::transpose:
        return transpose(x(0), node.n[0], node.n[1]);
      case Op::slice:
        return slice(x(0), node.n[0], node.n[1], node.n[2]);
      case Op::concat:
        return concat(all(), node.n[0]);
      case Op::stack:
        return stack(all(), node.n[0]);
      case Op::detach:
        return x(0).detach();
      case Op::embedding:
        return embedding(x(0), ids(node, rest(node.n, 1)), node.x[0], node.n[0]);
      case Op::gather:
        return gather(x(0), node.n[0], ids(node, node.shape));
      case Op::index_select:
        return index_select(x(0), ids(node, Shape{static_cast<index_t>(node.ids.size())}));
      case Op::pool:
        return pool(x(0), layout(0), node.n[0] != 0 ? Pooling::first : Pooling::mean);
      case Op::layer_norm:
        return layer_norm(x(0), x(1), x(2), norm());
      case Op::add_layer_norm:
        return add_layer_norm(rows(node), x(0), x(1), node.x[1], x(2), x(3), norm());
      case Op::rms_norm:
        return rms_norm(x(0), x(1), node.x[0]);
      case Op::add_rms_norm:
        return add_rms_norm(rows(node), x(0), x(1), node.x[1], x(2), node.x[0]);
      case Op::softmax:
        return softmax(x(0), node.n[0]);
      case Op::log_softmax:
        return log_softmax(x(0), node.n[0]);
      case Op::masked_softmax:
        return softmax(masked(), node.n[0]);
      case Op::masked_log_softmax:
        return eigenformer::where(flags(node, node.shape), log_softmax(masked(), node.n[0]), 0);
      case Op::cross_entropy:
        return cross_entropy(x(0), ids(node, x(0).shape().without(-1)), loss());
      case Op::linear_cross_entropy:
        return linear_cross_entropy(ctx_, x(0), w(1), w(2), ids(node, Shape{x(0).dim(0)}), loss());
      case Op::matmul:
        return matmul(x(0), x(1), node.n[0] != 0, node.n[1] != 0);
      case Op::linear:
        return linear(rows(node), x(0), w(1), w(2), activation(), node.x[0]);
      case Op::linear_slice:
        return linear_slice(ctx_, x(0), w(1), w(2), node.n[0], node.n[1]);
      case Op::feed_forward:
        return feed_forward(rows(node), x(0), w(1), w(2), w(3), w(4), activation(), node.x[0]);
      case Op::gated_feed_forward:
        return gated_feed_forward(rows(node), x(0), w(1), w(2), w(3), w(4), w(5), w(6), activation(),
                                  node.x[0]);
      case Op::glu:
        return glu(x(0), activation());
      case Op::attention:
        return attention(ctx_, x(0), x(1), x(2), layout(0), layout(1), mask(node), options(node),
                         {x(3), x(4), x(5)});
      case Op::self_attention:
        return self_attention(ctx_, x(0), layout(0), mask(node), options(node), {x(1), x(2), x(3)});
      case Op::cross_attention:
        return cross_attention(ctx_, x(0), x(1), layout(0), layout(1), mask(node), options(node),
                               {x(2), x(3), x(4)});
      case Op::attention_weights:
        return attention_weights(ctx_, x(0), x(1), layout(0), layout(1), mask(node), options(node),
                                 {x(2), x(3), {}});
      case Op::plain_attention:
        return attention(x(0), x(1), x(2), node.n[0] != 0 ? AttentionMask::causal() : AttentionMask());
      case Op::linear_attention: {
        eigenformer::detail::LinearAttentionOp o;
        o.heads = node.n[0];
        o.causal = node.n[1] != 0;
        o.key_sequence = node.key_sequence;
        if (node.n[2] != 0) o.admitted = flags(node, Shape{node.layouts.back().rows()});
        return linear_attention(x(0), x(1), x(2), layout(0), node.layouts.back().library(), o);
      }
      case Op::rotary:
        return rotary(x(0), layout(0), node.n[0], node.n[1],
                      eigenformer::detail::kernels::RotaryTable<T>(node.n[2], node.x[0]),
                      node.n[3] != 0 ? RotaryPairing::halves : RotaryPairing::adjacent);
      case Op::recurrence:
        return recurrence(x(0), x(1), layout(0));
      case Op::alignment_loss: {
        std::vector<ExpectedAttention> expected;
        for (std::size_t i = 1; i + 2 < node.n.size(); i += 3)
          expected.push_back({node.n[i], node.n[i + 1], node.n[i + 2], node.x[1 + i / 3]});
        return alignment_loss(x(0), expected, node.n[0], node.x[0]);
      }
      default:
        break;
    }
    return {};
  }

  const Program& program_;
  Context<T> ctx_;
  Tape<T>* tape_;
  std::vector<Var<T>> vars_;
  std::vector<std::shared_ptr<Parameter<T>>> parameters_;
  std::vector<Block> blocks_;
};

}  // namespace eigenformer::testing::programs
