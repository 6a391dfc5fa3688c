// The layers of a Transformer, forward alone (inference) and forward with backward (training, with dropout),
// on packed sentences that all have --length tokens.
#include "../shared/bench_options.hpp"

namespace ef = eigenformer;
using ef::index_t;
using Var = ef::Var<float>;

namespace {

struct Flags {
  ef::bench::ModelFlags model;
  index_t tokens = 2048;
  index_t length = 16;
  double dropout = 0.1;
  bool bf16 = false;

  ef::SequenceLayout layout() const {
    const auto sentences = static_cast<std::size_t>(std::max<index_t>(1, tokens / length));
    return ef::SequenceLayout::packed(std::vector<index_t>(sentences, length));
  }
};

// f(ctx, layout, x, memory) is the layer's output for rows x, and memory for those that attend to one.
template <class Layer, class F>
void add(const char* name, const Flags& flags, Layer layer, F f) {
  const auto precision =
      flags.bf16 ? ef::detail::kernels::faster_precision(ef::GemmPrecision::bf16) : ef::GemmPrecision::full;
  const auto measure = [=](benchmark::State& state, auto&& call) {
    const double flops = ef::bench::product_flops(call);
    auto& pool = ef::Runtime::instance().pool();
    pool.trim();
    pool.reset_peak();
    const auto before = static_cast<double>(pool.statistics().bytes_in_use);
    const double seconds = ef::bench::seconds_per_call(state, call);
    state.counters["tokens/s"] = static_cast<double>(flags.layout().tokens()) / seconds;
    state.counters["GFLOP/s"] = flops * 1e-9 / seconds;
    // Beyond parameters, their gradients and the inputs.
    const double most = static_cast<double>(pool.statistics().peak_bytes) - before;
    state.counters["work MiB"] = most / (1024.0 * 1024.0);
  };
  const auto add_one = [](const std::string& full_name, auto function) {
    benchmark::RegisterBenchmark(full_name.c_str(), function)->UseRealTime()->Unit(benchmark::kMillisecond);
  };
  const ef::Shape shape{flags.layout().rows(), flags.model.d_model};
  add_one(std::string(name) + "/forward", [=](benchmark::State& state) {
    const auto layout = flags.layout();
    const auto ctx = ef::Context<float>::inference().with_precision(precision).for_rows(layout);
    const Var x(ef::bench::random_tensor(shape, 2)), memory(ef::bench::random_tensor(shape, 3));
    measure(state, [&] { benchmark::DoNotOptimize(f(layer, ctx, layout, x, memory)); });
  });
  add_one(std::string(name) + "/forward+backward", [=](benchmark::State& state) {
    const auto layout = flags.layout();
    const auto x = ef::bench::random_tensor(shape, 2), memory = ef::bench::random_tensor(shape, 3);
    const auto dy = ef::bench::random_tensor(shape, 4);
    ef::RandomGenerator rng(5);
    ef::Gradients<float> gradients(ef::parameters(layer));
    ef::Tape<float> tape;
    measure(state, [&] {
      const auto ctx = ef::Context<float>::training(tape, rng).with_precision(precision).for_rows(layout);
      const Var y = f(layer, ctx, layout, tape.variable(x), tape.variable(memory));
      gradients.zero();
      tape.backward(y, dy, gradients);
    });
  });
}

void add_all(const Flags& flags) {
  using Context = ef::Context<float>;
  using Layout = ef::SequenceLayout;
  ef::RandomGenerator rng(1);
  const auto options = flags.model.layer(flags.dropout);
  add("multi_head_attention", flags,
      ef::MultiHeadAttention<float>(
          {.d_model = options.d_model, .num_heads = options.num_heads, .dropout = options.dropout.rate}, rng),
      [](const auto& layer, const Context& ctx, const Layout& layout, const Var& x, const Var&) {
        return layer.self(ctx, x, layout, {});
      });
  add("feed_forward", flags,
      ef::FeedForward<float>({.d_model = options.d_model,
                              .dim_feedforward = options.dim_feedforward,
                              .dropout = options.dropout.rate},
                             rng),
      [](const auto& layer, const Context& ctx, const Layout&, const Var& x, const Var&) {
        return layer(ctx, x);
      });
  add("encoder_layer", flags, ef::EncoderLayer<float>(options, rng),
      [](const auto& layer, const Context& ctx, const Layout& layout, const Var& x, const Var&) {
        return layer(ctx, x, layout);
      });
  add("decoder_layer", flags, ef::DecoderLayer<float>(options, rng),
      [](const auto& layer, const Context& ctx, const Layout& layout, const Var& x, const Var& memory) {
        return layer(ctx, x, layout, ef::Memory<float>(memory, layout),
                     {.target = ef::AttentionMask::causal()});
      });
}

}  // namespace

int main(int argc, char** argv) {
  Flags f;
  CLI::App app{"Speed of the Transformer's layers"};
  const auto positive = ef::bench::ModelFlags::minimum(1);
  app.add_option("--d_model", f.model.d_model, "model width")->capture_default_str();
  f.model.add_layer_to(app);
  app.add_option("--tokens", f.tokens, "rows (tokens of all sentences)")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--length", f.length, "tokens per sentence")->check(positive)->capture_default_str();
  app.add_option("--dropout", f.dropout, "dropout rate of forward+backward")->capture_default_str();
  app.add_flag("--bf16", f.bf16, "bfloat16 products where they are faster");
  if (const int code = ef::bench::parse(app, argc, argv); code >= 0) return code;
  return ef::bench::run("bench_layers", [&] {
    ef::bench::use_threads(f.model.threads);
    add_all(f);
  });
}
