/// How to write an op and a module of one's own: RMS normalisation (Zhang and Sennrich 2019) with a backward by hand, and the
/// gated feed-forward block of many recent models (Shazeer 2020) on top of it. grad_check compares with finite differences.

#include <cmath>
#include <cstdio>

#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

/// y = x / sqrt(mean(x^2) + eps) * gain over the last dimension. x: (..., n), gain: (n). Returns the shape of x.
template <class T>
[[nodiscard]] ef::Var<T> rms_norm(const ef::Var<T>& x, const ef::Var<T>& gain, double eps = 1e-6) {
  const ef::index_t n = x.dim(-1), rows = x.numel() / n;
  if (gain.shape() != ef::Shape{n}) {
    throw ef::ShapeError("rms_norm", "gain of shape " + gain.shape().str() + " must be " + ef::Shape{n}.str(), {gain.shape()});
  }
  ef::Tensor<T> y(x.shape()), scale({rows});
  for (ef::index_t r = 0; r < rows; ++r) {
    const T* xr = x.value().data() + r * n;
    T sum = 0;
    for (ef::index_t i = 0; i < n; ++i) sum += xr[i] * xr[i];
    scale.data()[r] = T(1) / std::sqrt(sum / static_cast<T>(n) + static_cast<T>(eps));
    for (ef::index_t i = 0; i < n; ++i) y.data()[r * n + i] = xr[i] * scale.data()[r] * gain.value().data()[i];
  }
  // With s = scale and g = gain: dx = s g dy - x s^3 mean(x g dy), dgain = sum over rows of x s dy. What the closure
  // captures is what is kept until backward. A slot's beta is 0 where nothing was written before, else 1.
  return ef::record("rms_norm", y, {x, gain}, [x = x.value(), g = gain.value(), scale, n, rows](ef::Backward<T>& back) {
    const T* dy = back.dy().data();
    if (const auto dx = back.grad(0)) {
      for (ef::index_t r = 0; r < rows; ++r) {
        const T s = scale.data()[r];
        const T* xr = x.data() + r * n;
        const T* dyr = dy + r * n;
        T dot = 0;
        for (ef::index_t i = 0; i < n; ++i) dot += xr[i] * g.data()[i] * dyr[i];
        for (ef::index_t i = 0; i < n; ++i) {
          T& out = dx.data[r * n + i];
          const T value = s * g.data()[i] * dyr[i] - xr[i] * s * s * s * dot / static_cast<T>(n);
          out = dx.beta == T(0) ? value : out + value;
        }
      }
    }
    if (const auto dgain = back.grad(1)) {
      for (ef::index_t i = 0; i < n; ++i) {
        T sum = 0;
        for (ef::index_t r = 0; r < rows; ++r) sum += x.data()[r * n + i] * scale.data()[r] * dy[r * n + i];
        dgain.data[i] = dgain.beta == T(0) ? sum : dgain.data[i] + sum;
      }
    }
  });
}

/// x + down(silu(gate(norm(x))) * up(norm(x))). A module is a struct that lists its fields: names, gradients, saving and
/// counting follow from that.
template <class T = float>
struct GatedFeedForward {
  using value_type = T;

  ef::Parameter<T> gain;  // (d)
  ef::Linear<T> gate, up, down;

  GatedFeedForward(ef::index_t d, ef::index_t hidden, ef::RandomGenerator& rng)
      : gain(ef::Tensor<T>::ones({d})), gate({d, hidden, false}, rng), up({d, hidden, false}, rng), down({hidden, d, false}, rng) {
    ef::name_parameters(*this);
  }

  ef::Var<T> operator()(const ef::Context<T>& ctx, const ef::Var<T>& x) const {
    const ef::Var<T> h = rms_norm(x, ctx.use(gain));
    return x + down(ctx, ef::silu(gate(ctx, h)) * up(ctx, h));
  }

  static void fields(auto& self, auto&& visit) {
    visit("gain", self.gain);
    visit("gate", self.gate);
    visit("up", self.up);
    visit("down", self.down);
  }
};

int main() {
  ef::RandomGenerator rng(1);
  GatedFeedForward<double> block(12, 20, rng);
  ef::Tensor<double> x({2, 5, 12});
  rng.fill_normal(x.data(), x.numel(), 0, 1);
  rng.fill_uniform(block.gain.value().data(), 12, 0.5, 1.5);

  const auto check = ef::grad_check(
      [&](ef::Tape<double>& tape, const std::vector<ef::Var<double>>& inputs) {
        return block(ef::Context<double>::checking(tape), inputs[0]);
      },
      {x}, ef::parameters(block));
  std::printf("%s\ngradients %s\n", ef::summary(block).c_str(), check.str().c_str());
  return check ? 0 : 1;
}
