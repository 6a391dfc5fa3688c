#include "eigenformer/nn/stacks/stack.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "eigenformer/kernels/packed/packed_weights.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/train/objectives/loss.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// A layer of the caller's own: a convolution over two rows and a memory that it reads twice.
struct OwnLayer {
  using value_type = float;
  using Options = LayerOptions;
  static constexpr const char* stack_name = "decoder";
  static constexpr bool is_decoder = true;

  Linear<float> mix;
  MultiHeadAttention<float> attention;

  OwnLayer(const LayerOptions& o, RandomGenerator& rng)
      : mix({2 * o.d_model, o.d_model}, rng), attention(detail::memory_attention_options(o), rng) {
    name_parameters(*this);
  }
  Var<float> operator()(const Context<float>& ctx, const Var<float>& x, LayerPass<float>& pass) const {
    const Var<float> w = pass.window(ctx, x, 2);
    const Var<float> h = dropout(ctx, mix(ctx, reshape(w, Shape{w.dim(0), w.dim(1) * w.dim(2)})), 0.2);
    const Var<float> y = add(x, pass.memory_attention(ctx, attention, h));
    return add(y, pass.memory_attention(ctx, attention, y));
  }
  index_t d_model() const { return mix.weight.shape()[0]; }
  static void fields(auto& self, auto&& visit) {
    visit("mix", self.mix);
    visit("attention", self.attention);
  }
};

struct Result {
  float loss = 0;
  std::vector<std::vector<float>> gradients;
  std::size_t nodes = 0;
};

using LossOf = std::function<Var<float>(const Context<float>&)>;

Result run(const std::vector<ParameterHandle<float>>& parameters, const LossOf& loss_of, bool checkpoints,
           GemmPrecision precision, int threads) {
  const ThreadScope scope(threads);
  Gradients<float> gradients(parameters);
  const auto cache = std::make_shared<detail::kernels::WeightCache>();
  Result result;
  Tape<float> tape;
  tape.set_checkpoints_layers(checkpoints);
  for (std::uint32_t batch = 0; batch < 2; ++batch) {  // gradients add up
    const Var<float> loss = loss_of(Context<float>::training(tape, detail::DropoutKey{11, batch, 0})
                                        .with_precision(precision)
                                        .with_weight_cache(cache));
    result.loss += loss.item();
    result.nodes = tape.size();
    tape.backward(loss, gradients);
  }
  for (const auto& e : gradients.entries()) {
    CHECK(e.written);
    result.gradients.push_back(values(e.value));
  }
  return result;
}

// CHECKs that checkpoints change neither loss nor gradients by a bit, in float and in bf16, with one thread
// and with three. Returns whether there were any.
template <class M>
bool same_bits(const std::string& what, M& model, const LossOf& loss_of) {
  const auto handles = parameters(model);
  bool fewer = true;
  for (const auto precision : {GemmPrecision::full, GemmPrecision::bf16}) {
    const Result kept = run(handles, loss_of, false, precision, 1);
    for (const int threads : {1, 3}) {
      const Result again = run(handles, loss_of, true, precision, threads);
      INFO(what << ", threads: " << threads);
      CHECK(std::memcmp(&again.loss, &kept.loss, sizeof(float)) == 0);
      CHECK(again.gradients == kept.gradients);
      fewer = fewer && again.nodes < kept.nodes;
    }
  }
  return fewer;
}

Tensor<std::int32_t> ids(index_t count, index_t vocabulary, std::uint64_t seed) {
  RandomGenerator rng(seed);
  Tensor<std::int32_t> result(Shape{count});
  for (index_t i = 0; i < count; ++i)
    result.data()[i] = 4 + static_cast<std::int32_t>(rng.uniform_int(vocabulary - 4));
  return result;
}

Seq2SeqOptions options(const LayerOptions& layer) {
  return {.source_vocab_size = 19,
          .target_vocab_size = 23,
          .layer = layer,
          .encoder = {.num_layers = 2},
          .decoder = {.num_layers = 3}};
}

LayerOptions layer_options() {
  return {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {0.1}, .layer_drop = 0.3};
}

const SequenceLayout& sources() {
  static const auto layout = SequenceLayout::packed({5, 3, 7});
  return layout;
}
const SequenceLayout& targets() {
  static const auto layout = SequenceLayout::packed({4, 6, 2});
  return layout;
}

template <class M>
LossOf loss_of(const M& model) {
  return [&model](const Context<float>& ctx) {
    return model.loss(ctx, ids(15, 19, 1), sources(), ids(12, 23, 2), targets(), ids(12, 23, 3),
                      {.label_smoothing = 0.1});
  };
}

}  // namespace

TEST_CASE("layers that are run again in backward have the same bits") {
  std::vector<std::pair<std::string, LayerOptions>> kinds(6, {"", layer_options()});
  kinds[0].first = "post-norm";
  kinds[1].first = "pre-norm";
  kinds[1].second.norm_first = true;
  kinds[2].first = "ssru";
  kinds[3].first = "relative bias";
  kinds[3].second.attention.positions = RelativeBiasPositions{};
  kinds[4].first = "gated";
  kinds[4].second.gated = true;
  kinds[4].second.activation = Activation::gelu;
  kinds[5].first = "sandwich";
  kinds[5].second.sandwich_norm = true;
  for (const auto& kind : kinds) {
    const std::string& what = kind.first;
    const LayerOptions& layer = kind.second;
    Seq2SeqOptions o = options(layer);
    if (what == "ssru") {
      LayerOptions decoder = layer;
      decoder.self_mixing = SelfMixing::ssru;
      o.decoder.layer = decoder;
    }
    RandomGenerator rng(3);
    Seq2SeqTransformer<float> model(o, rng);
    CHECK_MESSAGE(same_bits(what, model, loss_of(model)), what);
  }
}

TEST_CASE("so have layers of the caller's own, and a language model's") {
  RandomGenerator rng(4);
  Seq2SeqTransformer<float, EncoderLayer<float>, OwnLayer> own(options(layer_options()), rng);
  CHECK(same_bits("own layers", own, loss_of(own)));
  LanguageModel<float> model({.vocab_size = 23, .num_layers = 3, .layer = layer_options()}, rng);
  CHECK(same_bits("language model", model, [&](const Context<float>& ctx) {
    return model.loss(ctx, ids(12, 23, 2), targets(), ids(12, 23, 3));
  }));
}

TEST_CASE("so has a training by alignments, whose layer of attention is kept") {
  RandomGenerator rng(5);
  Seq2SeqTransformer<float> model(options(layer_options()), rng);
  Batch batch;
  const auto list = [](const Tensor<std::int32_t>& t) {
    return std::vector<std::int32_t>(t.data(), t.data() + t.numel());
  };
  batch.source = list(ids(15, 19, 1));
  batch.target_input = list(ids(12, 23, 2));
  batch.target_output = list(ids(12, 23, 3));
  batch.source_layout = sources();
  batch.target_layout = targets();
  batch.alignment = {{{0, 1}, {2, 3}}, {{1, 0}}, {{6, 1}}};
  for (const index_t layer : {0, 1, 2}) {
    GuidedAlignmentOptions guided;
    guided.weight = 0.5;
    guided.layer = layer;
    CHECK(
        same_bits("guided alignment, layer " + std::to_string(layer), model, [&](const Context<float>& ctx) {
          return detail::guided_alignment_loss(model, ctx, batch, {.label_smoothing = 0.1}, guided);
        }));
  }
}

TEST_CASE("weights that are asked for are recorded: those layers are kept") {
  RandomGenerator rng(6);
  Seq2SeqTransformer<float> model(options(layer_options()), rng);
  Tape<float> tape;
  tape.set_checkpoints_layers(true);
  const auto ctx = Context<float>::checking(tape);
  Seq2SeqMaps<float> maps;
  const auto logits = model(ctx, ids(15, 19, 1), sources(), ids(12, 23, 2), targets(), &maps);
  REQUIRE(maps.decoder.memory.size() == 3);
  CHECK(maps.decoder.memory[0].recorded());
  Gradients<float> gradients(parameters(model));
  tape.backward(sum(maps.decoder.memory[0]), gradients);
}

TEST_CASE("layers that are run again take less memory") {
  RandomGenerator rng(7);
  Seq2SeqOptions o = options({.d_model = 64, .num_heads = 4, .dim_feedforward = 256, .dropout = {0.1}});
  o.encoder.num_layers = o.decoder.num_layers = 4;
  const Seq2SeqTransformer<float> model(o, rng);
  const auto layout = SequenceLayout::packed(std::vector<index_t>(64, 20));
  const auto kept = [&](bool checkpoints) {
    Tape<float> tape;
    tape.set_checkpoints_layers(checkpoints);
    const std::size_t before = Runtime::instance().pool().statistics().bytes_in_use;
    const auto loss = model.loss(Context<float>::training(tape, detail::DropoutKey{1, 1, 0}),
                                 ids(1280, 19, 1), layout, ids(1280, 23, 2), layout, ids(1280, 23, 3));
    return Runtime::instance().pool().statistics().bytes_in_use - before;
  };
  const std::size_t all = kept(false), inputs = kept(true);
  MESSAGE("bytes after the forward pass: " << all << ", with checkpoints " << inputs);
  CHECK(4 * inputs < all);
}

namespace {

// Options that convert to LayerOptions but do not derive from them.
struct ConvertibleOptions {
  index_t width = 12;
  operator LayerOptions() const {
    return {.d_model = width,
            .num_heads = 3,
            .layer_drop = 0.4,
            .norm = {.kind = NormKind::rms_norm},
            .attention = {.positions = RelativeBiasPositions{}}};
  }
};
struct DerivedOptions : LayerOptions {};

template <class O>
struct PlainLayer {
  using value_type = float;
  using Options = O;
  Linear<float> linear;
  double layer_drop;
  PlainLayer(const O& o, RandomGenerator& rng)
      : linear({12, 12}, rng), layer_drop(static_cast<LayerOptions>(o).layer_drop) {
    name_parameters(*this);
  }
  Var<float> operator()(const Context<float>& ctx, const Var<float>& x, LayerPass<float>&) const {
    return linear(ctx, x);
  }
  index_t d_model() const { return 12; }
  static void fields(auto& self, auto&& visit) { visit("linear", self.linear); }
};

}  // namespace

TEST_CASE(
    "a stack takes norm, depth and relative bias from options that derive from LayerOptions, and no others") {
  RandomGenerator rng(8);
  DerivedOptions options;
  static_cast<LayerOptions&>(options) = ConvertibleOptions{};
  const Stack<PlainLayer<DerivedOptions>> derived({.num_layers = 2, .final_norm = true, .layer = options},
                                                  rng);
  CHECK(bool(derived.relative_bias));
  CHECK(derived.norm->options.kind == NormKind::rms_norm);
  CHECK(derived.layers[0].layer_drop == 0.2);
  CHECK(derived.layers[1].layer_drop == 0.4);
  const Stack<PlainLayer<ConvertibleOptions>> other({.num_layers = 2, .final_norm = true, .layer = {}}, rng);
  CHECK(!other.relative_bias);
  CHECK(other.norm->options.kind == NormKind::layer_norm);
  CHECK(other.layers[0].layer_drop == 0.4);
}
