#pragma once

#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/attention/attention_options.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

/// The linear maps to queries, keys and values: one fused weight if all three inputs have d_model features,
/// otherwise one each. Names and shapes as in PyTorch's nn.MultiheadAttention. H heads of queries, G of keys
/// and values. Part of MultiHeadAttention, which checks its options.
template <class T = float>
struct InProjection {
  using value_type = T;  ///< element type, float or double

  /// (W, D), W = (H + 2 G) head_dim: rows of queries, keys, values; absent if not fused().
  Parameter<T> weight;
  Parameter<T> query_weight;  ///< (H head_dim, D); absent if fused()
  Parameter<T> key_weight;    ///< (G head_dim, kdim); absent if fused()
  Parameter<T> value_weight;  ///< (G head_dim, vdim); absent if fused()
  Parameter<T> bias;          ///< (W); absent without bias

  /// Weights start Xavier uniform (the fused one with its own fans, as in PyTorch), biases zero. The options
  /// must be valid.
  InProjection(const MultiHeadAttentionOptions& o, RandomGenerator& rng)
      : query_width_(o.query_width()), key_width_(o.key_width()), cross_(o.cross) {
    const auto draw = [&](index_t out, index_t in) {
      return Parameter<T>(init::xavier_uniform<T>({out, in}, rng));
    };
    const index_t total = query_width_ + 2 * key_width_;
    const index_t kdim = o.kdim != 0 ? o.kdim : o.d_model, vdim = o.vdim != 0 ? o.vdim : o.d_model;
    if (kdim == o.d_model && vdim == o.d_model) {
      weight = draw(total, o.d_model);
    } else {
      query_weight = draw(query_width_, o.d_model);
      key_weight = draw(key_width_, kdim);
      value_weight = draw(key_width_, vdim);
    }
    if (o.bias) bias = Parameter<T>(Tensor<T>::zeros({total}));
  }

  /// Whether queries, keys and values share one weight matrix, because kdim and vdim are d_model.
  bool fused() const noexcept { return weight.defined(); }

  /// Queries of x (..., D): (..., H head_dim).
  [[nodiscard]] Var<T> query(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, query_weight, 0, query_width_);
  }
  /// Keys of x (..., kdim): (..., G head_dim).
  [[nodiscard]] Var<T> key(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, key_weight, query_width_, key_width_);
  }
  /// Values of x (..., vdim): (..., G head_dim).
  [[nodiscard]] Var<T> value(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, value_weight, query_width_ + key_width_, key_width_);
  }
  /// Keys and values of x (..., D) side by side, in one product: (..., 2 G head_dim). Throws ValueError if
  /// not fused().
  [[nodiscard]] Var<T> key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, weight, query_width_, 2 * key_width_);
  }
  /// Queries, keys and values of x (..., D) side by side, in one product: (..., (H + 2 G) head_dim). Throws
  /// ValueError if not fused().
  [[nodiscard]] Var<T> all(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, weight, 0, query_width_ + 2 * key_width_);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("in_proj_weight", self.weight);
    visit("q_proj_weight", self.query_weight);
    visit("k_proj_weight", self.key_weight);
    visit("v_proj_weight", self.value_weight);
    visit("in_proj_bias", self.bias);
  }
  /// Calls visit(weight, {rows}) for each matrix that pack_weights() packs; rows: how many rows make one
  /// product.
  static void products(auto& self, auto&& visit) {
    if (!self.fused()) {
      for (auto* w : {&self.query_weight, &self.key_weight, &self.value_weight}) visit(*w, {w->shape()[0]});
    } else if (self.cross_) {
      visit(self.weight, {self.query_width_, 2 * self.key_width_});
    } else {
      visit(self.weight, {self.weight.shape()[0]});
    }
  }
  /// Calls visit(weight, {rows}) for each matrix that adapters may change; rows: the rows of each part.
  static void adaptable(auto& self, auto&& visit) {
    if (self.fused()) return visit(self.weight, {self.query_width_, self.key_width_, self.key_width_});
    for (auto* w : {&self.query_weight, &self.key_weight, &self.value_weight}) visit(*w, {w->shape()[0]});
  }

 private:
  Var<T> project(const Context<T>& ctx, const Var<T>& x, const Parameter<T>& own, index_t begin,
                 index_t count) const {
    if (fused()) return linear_slice(ctx, x, weight, bias, begin, count);
    const Var<T> projected = linear(ctx, x, own, Parameter<T>());
    if (!bias.defined()) return projected;
    return add(projected, slice(ctx.use(bias), 0, begin, begin + count));
  }

  void require_fused() const {
    if (!fused()) {
      throw ValueError("in_projection",
                       "keys and values have separate weights, because kdim or vdim differs from d_model; "
                       "project each of them separately");
    }
  }

  index_t query_width_, key_width_;
  bool cross_;
};

static_assert(std::is_nothrow_move_constructible_v<InProjection<float>>);

EIGENFORMER_MODULE_INSTANCES(InProjection)

}  // namespace eigenformer
