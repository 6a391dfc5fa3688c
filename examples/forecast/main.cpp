/// Forecasts a real-valued sequence: from 24 values of a damped oscillation of unknown amplitude, decay,
/// frequency and phase, a Transformer predicts the next 12. Prints its error and that of repeating the last
/// value, and fails if it is not below a quarter of that after at least 600 steps (the default).
///
///     forecast [STEPS]

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

namespace {

constexpr ef::index_t seen = 24, ahead = 12;

/// (count, seen + ahead) values.
ef::Tensor<float> damped_sines(ef::index_t count, ef::RandomGenerator& rng) {
  ef::Tensor<float> series({count, seen + ahead});
  for (ef::index_t i = 0; i < count; ++i) {
    const double amplitude = rng.uniform(0.5, 1.5), decay = rng.uniform(0.0, 0.03);
    const double frequency = rng.uniform(0.2, 0.6), phase = rng.uniform(0.0, 6.28);
    for (ef::index_t t = 0; t < seen + ahead; ++t) {
      const auto x = static_cast<double>(t);
      series.at({i, t}) =
          static_cast<float>(amplitude * std::exp(-decay * x) * std::sin(frequency * x + phase));
    }
  }
  return series;
}

/// Columns [begin, begin + count) as a sequence of one feature: (B, count, 1).
ef::Tensor<float> columns(const ef::Tensor<float>& series, ef::index_t begin, ef::index_t count) {
  ef::Tensor<float> part({series.dim(0), count, 1});
  for (ef::index_t i = 0; i < series.dim(0); ++i) {
    for (ef::index_t t = 0; t < count; ++t) part.at({i, t, 0}) = series.at({i, begin + t});
  }
  return part;
}

/// The model's forecast; each value is predicted from those before it: (B, ahead, 1).
ef::Tensor<float> forecast(const ef::SequenceRegressor<float>& model, const ef::Tensor<float>& series) {
  const auto ctx = ef::Context<float>::inference();
  ef::Tensor<float> path({series.dim(0), ahead + 1});  // begins with the last value seen
  for (ef::index_t i = 0; i < series.dim(0); ++i) path.at({i, 0}) = series.at({i, seen - 1});
  for (ef::index_t t = 0; t < ahead; ++t) {
    const ef::Tensor<float> next = model(ctx, columns(series, 0, seen), columns(path, 0, t + 1)).value();
    for (ef::index_t i = 0; i < series.dim(0); ++i) path.at({i, t + 1}) = next.at({i, t, 0});
  }
  return columns(path, 1, ahead);
}

/// Root of the mean squared difference.
double rms(const ef::Tensor<float>& a, const ef::Tensor<float>& b) {
  double sum = 0;
  for (ef::index_t i = 0; i < a.numel(); ++i)
    sum += std::pow(static_cast<double>(a.data()[i] - b.data()[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.numel()));
}

int train_and_forecast(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 600);
  const ef::index_t warmup = std::min<ef::index_t>(50, steps / 2);
  ef::RandomGenerator rng(1);
  ef::SequenceRegressor<float> model(
      {.layer = {.d_model = 48, .num_heads = 4, .dim_feedforward = 96, .dropout = {0}, .norm_first = true},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2}},
      rng);
  ef::Adam<float> optimizer(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  for (ef::index_t step = 1; step <= steps; ++step) {
    const ef::Tensor<float> series = damped_sines(32, rng);
    ef::Tape<float> tape;
    gradients.zero();
    const auto predicted = model(ef::Context<float>::training(tape, rng), columns(series, 0, seen),
                                 columns(series, seen - 1, ahead));
    const auto loss = ef::mean(ef::square(predicted - columns(series, seen, ahead)));
    tape.backward(loss, gradients);
    optimizer.step(gradients, ef::schedule::cosine(step, 3e-3, warmup, steps + 1),
                   ef::clip_factor(gradients, 1.0).factor);
    if (step % 100 == 0)
      std::printf("step %lld  loss %.5f\n", static_cast<long long>(step), static_cast<double>(loss.item()));
  }

  const ef::Tensor<float> series = damped_sines(200, rng);
  const ef::Tensor<float> truth = columns(series, seen, ahead);
  ef::Tensor<float> stays(truth.shape());
  for (ef::index_t i = 0; i < series.dim(0); ++i) {
    for (ef::index_t t = 0; t < ahead; ++t) stays.at({i, t, 0}) = series.at({i, seen - 1});
  }
  const double ours = rms(forecast(model, series), truth), naive = rms(stays, truth);
  std::printf("root mean square error over %lld steps ahead: %.4f; of repeating the last value: %.4f\n",
              static_cast<long long>(ahead), ours, naive);
  return steps < 600 || ours < naive / 4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, train_and_forecast); }
