#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer::detail {

/// Dropout of an op's rows as the kernels take it; rate 0 outside training. Throws ValueError for a rate
/// outside [0, 1) and ShapeError when the context's layout does not have that many rows.
template <class T>
struct RowDropoutSite {
  double rate = 0;
  DropoutKey key;
  std::shared_ptr<const std::vector<RowKey>> rows;

  RowDropoutSite() = default;
  RowDropoutSite(const char* op, const Context<T>& ctx, double p, index_t row_count) {
    if (!(p >= 0 && p < 1)) throw ValueError(op, {"dropout rate is ", p, ", must be in [0, 1)"});
    if (!ctx.drops() || p == 0) return;
    rate = p;
    key = ctx.next_dropout();
    if (ctx.rows()) {
      rows = ctx.rows()->row_keys();
      if (static_cast<index_t>(rows->size()) != row_count) {
        throw ShapeError(op, {row_count, " rows do not fit the context's layout of ", rows->size(), " rows"});
      }
    }
  }
  const RowKey* keys() const noexcept { return rows == nullptr ? nullptr : rows->data(); }
  kernels::RowDropout view() const noexcept { return {rate, key, keys()}; }

  /// Dropout of the rows of x; x itself at rate 0.
  Tensor<T> apply(const Tensor<T>& x) const {
    if (rate == 0) return x;
    Tensor<T> y(x.shape());
    const index_t width = x.shape().cols();
    kernels::dropout_rows<T>(x.data(), y.data(), x.shape().rows(), width, width, view());
    return y;
  }
  /// The same in place, for the tile (count, width) at (row, column), whose rows are ld elements apart.
  void apply_tile(T* tile, index_t ld, index_t row, index_t count, index_t column, index_t width) const {
    if (rate > 0) kernels::dropout_tile<T>(tile, tile, row, count, column, width, ld, view());
  }
  /// dx = beta dx + dropout(dy), the masks drawn again; dx may be dy for a beta of 0.
  void backward(const Tensor<T>& dy, T* dx, T beta) const {
    const index_t width = dy.shape().cols();
    kernels::dropout_rows<T>(dy.data(), dx, dy.shape().rows(), width, width, view(),
                             beta == T(0) ? nullptr : dx);
  }
  /// Passes the gradient of the dropped rows on to input i, whose rows they were.
  void pass(Backward<T>& back, std::size_t i, const Tensor<T>& dy) const {
    if (rate == 0) {
      back.pass(i, dy);
    } else if (const auto dx = back.grad(i)) {
      backward(dy, dx.data, dx.beta);
    }
  }
};

// Throws ShapeError unless a residual has the shape of what it is added to.
template <class T>
void require_residual(const char* op, const Var<T>& x, const Var<T>& r) {
  if (x.shape() == r.shape()) return;
  throw ShapeError(op, {"residual of shape ", r.shape(), " must have the input's shape ", x.shape()},
                   {x.shape(), r.shape()});
}

// The terms of an adapter for an op that multiplies by rows [first_row, first_row + out) of a weight:
// y[part] += s B (A dropout(x)) for each of its parts.
template <class T>
class LowRankTerms {
 public:
  // Throws ValueError for a part of the adapter that is partly outside the op's rows.
  LowRankTerms(const char* op, const Context<T>& ctx, const Parameter<T>& weight, index_t first_row,
               index_t out, index_t rows) {
    const WeightAdapter<T>* adapter = ctx.adapter_of(weight);
    if (adapter == nullptr) return;
    for (const LowRankPart<T>& part : adapter->parts) {
      const index_t begin = part.first_row - first_row;
      if (begin + part.rows <= 0 || begin >= out) continue;
      if (begin < 0 || begin + part.rows > out) {
        throw ValueError(op, {"the adapter of '", part.module, "' covers rows of '", weight.name(),
                              "', and this product uses only some of them; expected all or none"});
      }
      terms_.push_back({begin, part.rows, part.rank(), static_cast<T>(part.scale()), ctx.use(part.a),
                        ctx.use(part.b), RowDropoutSite<T>(op, ctx, part.dropout, rows), Tensor<T>()});
    }
  }

  bool empty() const noexcept { return terms_.empty(); }
  bool recorded() const {
    for (const Term& t : terms_) {
      if (t.a.recorded() || t.b.recorded()) return true;
    }
    return false;
  }

  // x: rows of the op's input; y: (rows, out), which is added to.
  void add_to(const Tensor<T>& x, T* y, index_t rows, index_t out) {
    const index_t in = x.shape().cols();
    for (Term& t : terms_) {
      t.hidden = Tensor<T>(Shape{rows, t.rank});
      const Tensor<T> dropped = t.dropout.apply(x);
      kernels::gemm<T>(false, true, rows, t.rank, in, T(1), dropped.data(), in, t.a.value().data(), in, T(0),
                       t.hidden.data(), t.rank);
      kernels::gemm<T>(false, true, rows, t.count, t.rank, t.scale, t.hidden.data(), t.rank,
                       t.b.value().data(), t.rank, T(1), y + t.begin, out);
    }
  }

  // A and B of each term as inputs of the op.
  void add_inputs(std::vector<Var<T>>& inputs, SavedTensors& saved) const {
    for (const Term& t : terms_) {
      inputs.push_back(t.a);
      inputs.push_back(t.b);
      saved.add(t.a).add(t.b);
    }
  }

  // dB = s dy^T (A x'),  dA = (s dy B)^T x',  dx += dropout(s dy B A), x' = dropout(x). dz: (rows, out), the
  // gradient of y; first: the number of the first term's A among the op's inputs, of which x is number 0.
  void backward(Backward<T>& back, std::size_t first, const T* dz, const Tensor<T>& x, index_t rows,
                index_t out) const {
    const index_t in = x.shape().cols();
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const Term& t = terms_[i];
      if (auto db = back.grad(first + 2 * i + 1)) {
        kernels::gemm<T>(true, false, t.count, t.rank, rows, t.scale, dz + t.begin, out, t.hidden.data(),
                         t.rank, db.beta, db.data, t.rank);
      }
      if (!back.needs(first + 2 * i) && !back.needs(0)) continue;
      Tensor<T> dh(t.hidden.shape());
      kernels::gemm<T>(false, false, rows, t.rank, t.count, t.scale, dz + t.begin, out, t.b.value().data(),
                       t.rank, T(0), dh.data(), t.rank);
      if (auto da = back.grad(first + 2 * i)) {
        const Tensor<T> dropped = t.dropout.apply(x);
        kernels::gemm<T>(true, false, t.rank, in, rows, T(1), dh.data(), t.rank, dropped.data(), in, da.beta,
                         da.data, in);
      }
      if (auto dx = back.grad(0)) {
        if (t.dropout.rate == 0) {
          kernels::gemm<T>(false, false, rows, in, t.rank, T(1), dh.data(), t.rank, t.a.value().data(), in,
                           dx.beta, dx.data, in);
        } else {
          Tensor<T> dropped(x.shape());
          kernels::gemm<T>(false, false, rows, in, t.rank, T(1), dh.data(), t.rank, t.a.value().data(), in,
                           T(0), dropped.data(), in);
          t.dropout.backward(dropped, dx.data, dx.beta);
        }
      }
    }
  }

 private:
  struct Term {
    index_t begin, count, rank;
    T scale;
    Var<T> a, b;
    RowDropoutSite<T> dropout;
    Tensor<T> hidden;  // A dropout(x), (rows, r)
  };

  std::vector<Term> terms_;
};

}  // namespace eigenformer::detail

namespace eigenformer {

namespace detail {

// What follows a linear layer's product, dropout(activation(y)), or dropout(activation(y) * up) if that half
// of a gated layer is there: on each tile while it is in the cache.
template <class T>
struct LinearTail {
  Activation activation;
  RowDropoutSite<T> dropout;
  mutable Tensor<T> input{};  // of the activation, for a backward that reads it; kept by apply()
  Tensor<T> up{};             // of the shape of y

  bool empty() const noexcept { return activation == Activation::none && dropout.rate == 0; }
  // ReLU's gradient follows from its output, also for dropped entries, which are zero either way.
  bool relu() const noexcept { return activation == Activation::relu; }
  // Before the product of an op whose backward() will be called.
  void keep_input(const Shape& shape) {
    if (up.defined() || (activation != Activation::none && !relu())) input = Tensor<T>(shape);
  }

  // `context` is a LinearTail, the tile (rows, cols) is at (row, col) of y.
  static void apply(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                    index_t cols) {
    const auto& self = *static_cast<const LinearTail*>(context);
    if (self.input.defined()) {
      const index_t width = self.input.dim(-1);
      T* kept = self.input.data() + row * width + col;
      for (index_t r = 0; r < rows; ++r) std::copy(c + r * ldc, c + r * ldc + cols, kept + r * width);
    }
    if (self.up.defined()) {
      const index_t width = self.up.dim(-1);
      kernels::gated_tile<T>(self.activation, c, ldc, self.up.data() + row * width + col, width, c, ldc, rows,
                             cols);
    } else if (self.activation != Activation::none) {
      kernels::activation_tile<T>(self.activation, c, ldc, c, ldc, rows, cols);
    }
    self.dropout.apply_tile(c, ldc, row, rows, col, cols);
  }

  // y (rows, width), in place, when it is more than one product.
  void run(T* y, index_t rows, index_t width) const {
    if (empty()) return;
    parallel_for(rows, 64, [&](index_t begin, index_t end) {
      apply(this, y + begin * width, width, begin, end - begin, 0, width);
    });
  }

  // dz from dy, the gradients of the tail's input and output. y: the output, read for ReLU alone.
  Tensor<T> backward(const Tensor<T>& dy, const Tensor<T>& y) const {
    if (empty()) return dy;
    Tensor<T> dz(dy.shape());
    T* g = dz.data();
    const T* source = dy.data();
    if (relu()) {
      const T keep = static_cast<T>(1 / (1 - dropout.rate));
      const T* out = y.data();
      parallel_for(dz.numel(), 1 << 14, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) g[i] = out[i] > T(0) ? keep * source[i] : T(0);
      });
      return dz;
    }
    if (dropout.rate > 0) {
      dropout.backward(dy, g, T(0));
      source = g;
    }
    if (activation == Activation::none) return dz;
    // sigmoid and tanh need their output: apply them to the saved input again.
    Tensor<T> state = input;
    if (kernels::activation_backward_takes_output(activation)) {
      state = Tensor<T>(input.shape());
      kernels::activation_forward<T>(activation, input.data(), state.data(), input.numel());
    }
    kernels::activation_backward<T>(activation, state.data(), source, g, T(0), dz.numel());
    return dz;
  }
};

// Rows [first, first + count) of a weight with `all` rows, and these elements of its bias.
struct WeightRows {
  index_t first, count, all;

  // The part of a gradient of `width` columns that belongs to these rows. It is added to: the gradient of
  // other rows does not change, and is zero at the first write.
  template <class T>
  GradientSlot<T> part(const GradientSlot<T>& of, index_t width) const {
    if (!of || count == all) return of;
    of.start_sum();
    return {of.data + first * width, T(1), of.shape};
  }
};

// Throws ValueError for a weight whose memory was released when it was packed.
template <class T>
void require_memory(const char* op, const Parameter<T>& weight) {
  if (weight.value().defined() || weight.value().numel() == 0) return;
  throw ValueError(
      op, {"the memory of '", weight.name(), "' was released; run with the packed weights that replace ",
           "it (they serve decoding, but not training or attention maps)"});
}

// Throws ShapeError unless the bias is absent or has one element for each row of the weight.
template <class T>
void require_bias(const char* op, const Parameter<T>& bias, const Parameter<T>& weight) {
  if (!bias.defined() || bias.shape() == Shape{weight.shape()[0]}) return;
  throw ShapeError(op,
                   {"bias '", bias.name(), "' of shape ", bias.shape(), " must be (", weight.shape()[0],
                    ",), to match '", weight.name(), "' of shape ", weight.shape()},
                   {bias.shape(), weight.shape()});
}

// The products of an op with its weights, in forward and in backward.
template <class T>
struct WeightProducts {
  GemmPrecision precision;
  std::shared_ptr<kernels::WeightCache> cache;

  explicit WeightProducts(const Context<T>& ctx) : precision(ctx.precision()), cache(ctx.weight_cache()) {}

  // y = alpha x W^T + beta y with rows [first, first + count) of the weight, or alpha x W + beta y if
  // `transposed`. Rows of x are ldx elements apart; 0: they follow one another.
  void run(bool transposed, index_t rows, T alpha, const T* x, const Tensor<T>& weight, index_t first,
           index_t count, T beta, T* y, const kernels::GemmEpilogue<T>& epilogue = {},
           index_t ldx = 0) const {
    const index_t columns = weight.dim(1), in = transposed ? count : columns,
                  out = transposed ? columns : count;
    if (ldx == 0) ldx = in;
    if constexpr (std::is_same_v<T, float>) {
      if (cache != nullptr && precision == GemmPrecision::bf16) {
        kernels::gemm_packed(rows, x, ldx, cache->get(weight, first, count, transposed), beta, y, out,
                             epilogue, alpha);
        return;
      }
    }
    kernels::gemm<T>(false, !transposed, rows, out, in, alpha, x, ldx, weight.data() + first * columns,
                     columns, beta, y, out, epilogue, precision);
  }
  // dW = dz^T x and db = the sums of the columns of dz, for dz (rows, out) and x (rows, in).
  void add_gradients(index_t rows, const T* dz, index_t out, const T* x, index_t in,
                     const GradientSlot<T>& dw, const GradientSlot<T>& db) const {
    if (dw) {
      kernels::gemm<T>(true, false, out, in, rows, T(1), dz, out, x, in, dw.beta, dw.data, in, {}, precision);
    }
    if (db) kernels::sum_rows<T>(dz, db.data, db.beta, rows, out);
  }
};

// y = x W[first_row : first_row + out]^T + bias, with the packed rows if the context has them and nothing is
// recorded.
template <class T>
void weight_product(const char* op, const Context<T>& ctx, index_t rows, const T* x,
                    const Parameter<T>& weight, index_t first_row, index_t out, bool recorded, T* y,
                    const kernels::GemmEpilogue<T>& epilogue) {
  const index_t in = weight.shape()[1];
  if constexpr (std::is_same_v<T, float>) {
    const kernels::PackedMatrix* packed = nullptr;
    if (!recorded && ctx.packed_weights() != nullptr)
      packed = ctx.packed_weights()->find(weight.id(), first_row, out);
    if (packed != nullptr) return kernels::gemm_packed(rows, x, in, *packed, 0, y, out, epilogue);
  }
  require_memory(op, weight);
  WeightProducts<T>(ctx).run(false, rows, T(1), x, weight.value(), first_row, out, T(0), y, epilogue);
}

// linear() with some rows of the weight and the bias: for the fused in-projection of an attention whose
// queries and keys have different inputs. The product, the terms of adapters, and the tail follow one
// another; without adapters the tail is part of the product.
template <class T>
[[nodiscard]] Var<T> linear_rows(const char* op, const Context<T>& ctx, const Var<T>& x,
                                 const Parameter<T>& weight, const Parameter<T>& bias, const WeightRows& used,
                                 Activation activation, double dropout_rate) {
  const OpScope scope = scope_of(op, x);
  const index_t rows = x.shape().rows(), in = weight.shape()[1], out = used.count;
  if (x.rank() < 1 || x.dim(-1) != in) {
    throw ShapeError(op,
                     {"last dimension of input ", x.shape(), " must be ", in, ", to match '", weight.name(),
                      "' of shape ", weight.shape()},
                     {x.shape(), weight.shape()});
  }
  require_bias(op, bias, weight);
  Tensor<T> y(x.shape().with(-1, out));
  const Var<T> w = ctx.use(weight), b = ctx.use(bias);
  LowRankTerms<T> low(op, ctx, weight, used.first, out, rows);
  const bool recorded = x.recorded() || w.recorded() || b.recorded() || low.recorded();
  LinearTail<T> tail{activation, RowDropoutSite<T>(op, ctx, dropout_rate, rows)};
  if (recorded) tail.keep_input(y.shape());

  kernels::GemmEpilogue<T> epilogue;
  if (bias.defined()) epilogue.bias = bias.value().data() + used.first;
  if (!tail.empty() && low.empty()) {
    epilogue.apply = LinearTail<T>::apply;
    epilogue.context = &tail;
  }
  weight_product<T>(op, ctx, rows, x.value().data(), weight, used.first, out, recorded, y.data(), epilogue);
  if (!low.empty()) {
    low.add_to(x.value(), y.data(), rows, out);
    tail.run(y.data(), rows, out);
  }
  if (!recorded) {
    count_bytes<T>(x.shape().numel() + out * in + y.numel());
    return Var<T>(std::move(y));
  }

  // dz = dy through dropout and activation;  dx = dz W,  dW = dz^T x,  db = column sums of dz; an adapter's
  // terms add theirs (LowRankTerms).
  auto backward = [x = x.value(), w = w.value(), y = tail.relu() ? y : Tensor<T>(), tail, used, low,
                   products = WeightProducts<T>(ctx)](Backward<T>& back) {
    const index_t n = x.shape().rows(), columns = x.shape().cols();
    const Tensor<T> dz = tail.backward(back.dy(), y);
    if (auto dx = back.grad(0))
      products.run(true, n, T(1), dz.data(), w, used.first, used.count, dx.beta, dx.data);
    products.add_gradients(n, dz.data(), used.count, x.data(), columns, used.part(back.grad(1), columns),
                           used.part(back.grad(2), 1));
    low.backward(back, 3, dz.data(), x, n, used.count);
  };
  std::vector<Var<T>> inputs{x, w, b};
  SavedTensors saved =
      SavedTensors().add_if(w.recorded() || !low.empty(), x).add_if(x.recorded(), w).add_if(tail.relu(), y);
  low.add_inputs(inputs, saved);
  return record(op, y, inputs, saved, std::move(backward));
}

}  // namespace detail

/// y = dropout(activation(x W^T + b)), computed on the tiles of the product.
///
/// x: (..., in); weight: (out, in); bias: (out) or absent. Returns (..., out). Dropout applies only in
/// training contexts. Throws ShapeError, naming the parameter, when shapes do not fit, ValueError for a rate
/// outside [0, 1).
template <class T>
[[nodiscard]] Var<T> linear(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                            const Parameter<T>& weight, const Parameter<T>& bias,
                            Activation activation = Activation::none, double dropout_rate = 0) {
  if (weight.shape().rank() != 2) {
    throw ShapeError("linear",
                     {"weight '", weight.name(), "' of shape ", weight.shape(), " must be (out, in)"},
                     {weight.shape()});
  }
  return detail::linear_rows("linear", ctx, x, weight, bias, {0, weight.shape()[0], weight.shape()[0]},
                             activation, dropout_rate);
}

/// x W[begin : begin + count]^T + b[begin : begin + count]: a part of a fused projection, without copying the
/// weight.
///
/// x: (..., in); weight: (out, in); bias: (out) or absent. Returns (..., count). Throws IndexError when the
/// rows are not in the weight, ShapeError as linear does.
template <class T>
[[nodiscard]] Var<T> linear_slice(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                  const Parameter<T>& weight, const Parameter<T>& bias, index_t begin,
                                  index_t count) {
  if (weight.shape().rank() != 2 || begin < 0 || count < 0 || begin > weight.shape()[0] ||
      count > weight.shape()[0] - begin) {
    throw IndexError("linear_slice", {count, " rows starting at row ", begin, " are outside '", weight.name(),
                                      "' of shape ", weight.shape()});
  }
  return detail::linear_rows("linear_slice", ctx, x, weight, bias, {begin, count, weight.shape()[0]},
                             Activation::none, 0);
}

}  // namespace eigenformer
