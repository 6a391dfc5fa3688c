/// How to write an operation and a module of your own: ScaleNorm (Nguyen and Salazar 2019) with a handwritten
/// backward, and a gated feed-forward block (Shazeer 2020) that uses it. grad_check compares the gradients
/// with finite differences.

#include <cmath>
#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

/// y = gain * x / sqrt(sum(x^2) + eps) over the last dimension. x: (..., n), gain: (1). Returns the shape of
/// x.
template <class T>
[[nodiscard]] ef::Var<T> scale_norm(const ef::Var<T>& x, const ef::Var<T>& gain, double eps = 1e-6) {
  const ef::index_t n = x.dim(-1), rows = x.numel() / n;
  if (gain.shape() != ef::Shape{1}) {
    throw ef::ShapeError("scale_norm", {"gain of shape ", gain.shape(), " must be (1,)"}, {gain.shape()});
  }
  ef::Tensor<T> y(x.shape()), scale({rows});
  for (ef::index_t r = 0; r < rows; ++r) {
    const T* xr = x.value().data() + r * n;
    T sum = 0;
    for (ef::index_t i = 0; i < n; ++i) sum += xr[i] * xr[i];
    scale.data()[r] = T(1) / std::sqrt(sum + static_cast<T>(eps));
    for (ef::index_t i = 0; i < n; ++i)
      y.data()[r * n + i] = xr[i] * scale.data()[r] * gain.value().data()[0];
  }
  // With s = scale and g = gain: dx = g (s dy - x s^3 <x, dy>), dgain = sum over rows of s <x, dy>. The
  // closure's captures are kept until backward. A slot's beta is 0 at the first write, else 1.
  return ef::record("scale_norm", y, {x, gain},
                    [x = x.value(), g = gain.value(), scale, n, rows](ef::Backward<T>& back) {
                      const auto dx = back.grad(0), dgain = back.grad(1);
                      T total = 0;
                      for (ef::index_t r = 0; r < rows; ++r) {
                        const T s = scale.data()[r];
                        const T *xr = x.data() + r * n, *dy = back.dy().data() + r * n;
                        T dot = 0;
                        for (ef::index_t i = 0; i < n; ++i) dot += xr[i] * dy[i];
                        total += s * dot;
                        for (ef::index_t i = 0; dx && i < n; ++i) {
                          T& out = dx.data[r * n + i];
                          const T value = g.data()[0] * (s * dy[i] - xr[i] * s * s * s * dot);
                          out = dx.beta == T(0) ? value : out + value;
                        }
                      }
                      if (dgain) dgain.data[0] = dgain.beta == T(0) ? total : dgain.data[0] + total;
                    });
}

/// x + down(silu(gate(norm(x))) * up(norm(x))). A module is a struct that lists its fields; names, gradients,
/// saving and counting use this list.
template <class T = float>
struct GatedFeedForward {
  using value_type = T;

  ef::Parameter<T> gain;  // (1)
  ef::Linear<T> gate, up, down;

  GatedFeedForward(ef::index_t d, ef::index_t hidden, ef::RandomGenerator& rng)
      : gain(ef::Tensor<T>::full({1}, std::sqrt(static_cast<T>(d)))),
        gate({d, hidden, false}, rng),
        up({d, hidden, false}, rng),
        down({hidden, d, false}, rng) {
    ef::name_parameters(*this);
  }

  ef::Var<T> operator()(const ef::Context<T>& ctx, const ef::Var<T>& x) const {
    const ef::Var<T> h = scale_norm(x, ctx.use(gain));
    return x + down(ctx, ef::silu(gate(ctx, h)) * up(ctx, h));
  }

  static void fields(auto& self, auto&& visit) {
    visit("gain", self.gain);
    visit("gate", self.gate);
    visit("up", self.up);
    visit("down", self.down);
  }
};

int check_gradients(const example::Arguments&) {
  ef::RandomGenerator rng(1);
  GatedFeedForward<double> block(12, 20, rng);
  ef::Tensor<double> x({2, 5, 12});
  rng.fill_normal(x.data(), x.numel(), 0, 1);

  const auto check = ef::grad_check(
      [&](ef::Tape<double>& tape, const std::vector<ef::Var<double>>& inputs) {
        return block(ef::Context<double>::checking(tape), inputs[0]);
      },
      {x}, ef::parameters(block));
  std::printf("%s\ngradients %s\n", ef::summary(block).c_str(), check.str().c_str());
  return check ? 0 : 1;
}

int main(int argc, char** argv) { return example::run(argc, argv, {}, check_gradients); }
