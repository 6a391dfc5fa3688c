#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/linear/row_dropout.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"

namespace eigenformer::detail {

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
        throw ValueError(op, "the adapter of '" + part.module + "' covers rows of '" + weight.name() +
                                 "', and this product uses only some of them; expected all or none");
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
      const Tensor<T> dropped = t.dropped(x, rows);
      kernels::gemm<T>(false, true, rows, t.rank, in, T(1), dropped.data(), in, t.a.value().data(), in, T(0),
                       t.hidden.data(), t.rank, {}, kernels::GemmPrecision::full);
      kernels::gemm<T>(false, true, rows, t.count, t.rank, t.scale, t.hidden.data(), t.rank,
                       t.b.value().data(), t.rank, T(1), y + t.begin, out, {}, kernels::GemmPrecision::full);
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
                         t.rank, db.beta, db.data, t.rank, {}, kernels::GemmPrecision::full);
      }
      if (!back.needs(first + 2 * i) && !back.needs(0)) continue;
      Tensor<T> dh(t.hidden.shape());
      kernels::gemm<T>(false, false, rows, t.rank, t.count, t.scale, dz + t.begin, out, t.b.value().data(),
                       t.rank, T(0), dh.data(), t.rank, {}, kernels::GemmPrecision::full);
      if (auto da = back.grad(first + 2 * i)) {
        const Tensor<T> dropped = t.dropped(x, rows);
        kernels::gemm<T>(true, false, t.rank, in, rows, T(1), dh.data(), t.rank, dropped.data(), in, da.beta,
                         da.data, in, {}, kernels::GemmPrecision::full);
      }
      if (auto dx = back.grad(0)) {
        if (t.dropout.rate == 0) {
          kernels::gemm<T>(false, false, rows, in, t.rank, T(1), dh.data(), t.rank, t.a.value().data(), in,
                           dx.beta, dx.data, in, {}, kernels::GemmPrecision::full);
        } else {
          Tensor<T> dropped(x.shape());
          kernels::gemm<T>(false, false, rows, in, t.rank, T(1), dh.data(), t.rank, t.a.value().data(), in,
                           T(0), dropped.data(), in, {}, kernels::GemmPrecision::full);
          kernels::dropout_backward<T>(dropped.data(), dx.data, dx.beta, t.dropout.keys(), rows, in, in,
                                       t.dropout.rate, t.dropout.key);
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

    Tensor<T> dropped(const Tensor<T>& x, index_t rows) const {
      if (dropout.rate == 0) return x;
      Tensor<T> y(x.shape());
      const index_t in = x.shape().cols();
      kernels::dropout_rows<T>(x.data(), y.data(), dropout.keys(), rows, in, in, dropout.rate, dropout.key);
      return y;
    }
  };

  std::vector<Term> terms_;
};

}  // namespace eigenformer::detail
