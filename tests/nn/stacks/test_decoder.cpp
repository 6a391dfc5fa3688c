#include <doctest/doctest.h>

#include <utility>

#include "eigenformer/nn/stacks/decoder.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("the decoder layer agrees with PyTorch, post- and pre-norm", T, float, double) {
  for (const std::string order : {"post", "pre"}) {
    for (const std::string activation : {"relu", "gelu"}) {
      const Fixture fixture("stacks/decoder_layer_" + order + "_" + activation);
      RandomGenerator rng(1);
      DecoderLayer<T> layer(
          small_layer(order == "pre", activation == "relu" ? Activation::relu : Activation::gelu), rng);
      const auto lengths = fixture.lengths("in.tgt_lengths");
      const auto memory_layout = SequenceLayout::padded(fixture.lengths("in.memory_lengths"), S);
      const DecoderMasks masks{AttentionMask::block(fixture.get<bool>("in.tgt_mask")),
                               AttentionMask::block(fixture.get<bool>("in.memory_mask"))};
      check_parity<T>(fixture, layer, {"tgt", "memory"}, lengths, [&](const Context<T>& ctx, const auto& x) {
        return layer(ctx, x[0], SequenceLayout::padded(lengths, L), Memory<T>(x[1], memory_layout), masks);
      });
      const DecoderMasks padded{
          masks.target & AttentionMask::key_padding(fixture.get<bool>("in.tgt_key_padding")),
          masks.memory & AttentionMask::key_padding(fixture.get<bool>("in.memory_key_padding"))};
      check_parity<T>(fixture, layer, {"tgt", "memory"}, lengths, [&](const Context<T>& ctx, const auto& x) {
        return layer(ctx, x[0], Memory<T>(x[1]), padded);
      });
    }
  }
}

TEST_CASE("the decoder's gradients are right, and its names are PyTorch's") {
  RandomGenerator rng(1);
  for (const bool norm_first : {false, true}) {
    Decoder<double> decoder(
        {.num_layers = 2, .final_norm = norm_first, .layer = small_layer(norm_first, Activation::silu)}, rng);
    CHECK(values(decoder.layers[0].multihead_attn.in_proj.weight.value()) !=
          values(decoder.layers[1].multihead_attn.in_proj.weight.value()));
    randomise(decoder, 3);
    check_backward(decoder, {random_tensor<double>({B, L, D}, 4), random_tensor<double>({B, S, D}, 5)},
                   [&](const Context<double>& ctx, const auto& in) {
                     return decoder(ctx, in[0], SequenceLayout::padded({3, 5}, L),
                                    Memory<double>(in[1], SequenceLayout::padded({7, 4}, S)),
                                    {.target = AttentionMask::causal()});
                   });
  }
  const DecoderLayer<float> layer(small_layer(), rng);
  std::vector<std::string> expected;
  for (const std::string attention : {"self_attn.", "multihead_attn."}) {
    for (const char* name :
         {"in_proj_weight (36, 12)", "in_proj_bias (36,)", "out_proj.weight (12, 12)", "out_proj.bias (12,)"})
      expected.push_back(attention + name);
  }
  for (const char* name :
       {"linear1.weight (20, 12)", "linear1.bias (20,)", "linear2.weight (12, 20)", "linear2.bias (12,)"})
    expected.emplace_back(name);
  for (const std::string norm : {"norm1.", "norm2.", "norm3."})
    expected.insert(expected.end(), {norm + "weight (12,)", norm + "bias (12,)"});
  CHECK(names_of(layer) == expected);
}

namespace {

// A pass of the caller's own: the attentions by hand, with the keys and values of the memory made before.
class OwnPass final : public LayerPass<float> {
 public:
  OwnPass(SequenceLayout queries, SequenceLayout keys, Var<float> key_value)
      : queries_(std::move(queries)), keys_(std::move(keys)), key_value_(std::move(key_value)) {}
  const SequenceLayout& layout() const noexcept override { return queries_; }
  Var<float> self_attention(const Context<float>& c, const MultiHeadAttention<float>& attention,
                            const Var<float>& x) override {
    const auto heads = attention.project_self(c, x, queries_);
    return attention.out_proj(c,
                              attention.call(c, heads, queries_, queries_, AttentionMask::causal()).run(c));
  }
  Var<float> memory_attention(const Context<float>& c, const MultiHeadAttention<float>& attention,
                              const Var<float>& x, std::size_t) override {
    const auto heads = detail::AttentionHeads<float>::side_by_side(attention.project_query(c, x), key_value_);
    return attention.out_proj(c, attention.call(c, heads, queries_, keys_).run(c));
  }
  Var<float> window(const Context<float>&, const Var<float>& x, index_t) override { return x; }
  Var<float> recurrence(const Context<float>&, const Var<float>& forget, const Var<float>& input) override {
    return eigenformer::recurrence(forget, input, queries_);
  }
  void use_bias(const Context<float>&, const detail::RelativeBias<float>*) override {}

 private:
  SequenceLayout queries_, keys_;
  Var<float> key_value_;
};

}  // namespace

TEST_CASE("a layer takes any pass") {
  RandomGenerator rng(1);
  for (const auto& [norm_first, mixing] :
       {std::pair{false, SelfMixing::attention}, {true, SelfMixing::attention}, {true, SelfMixing::ssru}}) {
    LayerOptions options = small_layer(norm_first);
    options.self_mixing = mixing;
    const DecoderLayer<float> layer(options, rng);
    const auto ctx = Context<float>::inference();
    const Var<float> x = random_tensor<float>({B, L, D}, 2), memory = random_tensor<float>({B, S, D}, 3);
    const auto queries = SequenceLayout::padded(B, L), keys = SequenceLayout::padded({7, 4}, S);
    OwnPass pass(queries, keys, layer.multihead_attn.project_key_value(ctx, memory));
    CHECK(values(layer(ctx, x, pass).value()) ==
          values(layer(ctx, x, queries, Memory<float>(memory, keys), {.target = AttentionMask::causal()})
                     .value()));
  }
}

TEST_CASE("several targets share a memory, as beams do") {
  RandomGenerator rng(1);
  const Decoder<float> decoder({.num_layers = 2, .layer = small_layer()}, rng);
  const auto ctx = Context<float>::inference();
  const auto x = random_tensor<float>({4, L, D}, 2), memory = random_tensor<float>({B, S, D}, 3);
  const auto keys = SequenceLayout::padded({7, 4}, S);
  const auto y = decoder(ctx, x, SequenceLayout::padded(4, L), Memory<float>(memory, keys, {0, 0, 1, 1}),
                         {.target = AttentionMask::causal()})
                     .value();
  for (index_t b = 0; b < 4; ++b) {
    const Memory<float> own(memory.rows(b / 2, 1), SequenceLayout::padded({keys.length(b / 2)}, S));
    CHECK(values(decoder(ctx, x.rows(b, 1), own, {.target = AttentionMask::causal()}).value()) ==
          values(y.rows(b, 1)));
  }
}

TEST_CASE("attention maps on request and messages about what does not fit") {
  RandomGenerator rng(1);
  const Decoder<float> decoder({.num_layers = 2, .layer = small_layer()}, rng);
  const auto ctx = Context<float>::inference();
  const auto x = random_tensor<float>({B, L, D}, 2), memory = random_tensor<float>({B, S, D}, 3);
  DecoderMaps<float> maps;
  const auto y = decoder(ctx, x, SequenceLayout::padded(B, L), Memory<float>(memory),
                         {.target = AttentionMask::causal()}, &maps);
  check_close(y.value(), decoder(ctx, x, Memory<float>(memory), {.target = AttentionMask::causal()}).value(),
              1e-6);
  REQUIRE(maps.target.size() == 2);
  REQUIRE(maps.memory.size() == 2);
  CHECK(maps.target[1].shape() == Shape{B, H, L, L});
  CHECK(maps.memory[1].shape() == Shape{B, H, L, S});
  CHECK(maps.target[0].value().at({0, 1, 2, 3}) == 0);

  const auto zeros = [](const Shape& shape) { return Tensor<float>::zeros(shape); };
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder(ctx, zeros({2, 5, 11}), Memory<float>(zeros({2, 7, 12})));
                 }),
                 "to match 'layers.0.self_attn.in_proj_weight'"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder(ctx, zeros({2, 5, 12}), Memory<float>(zeros({2, 7, 11})));
                 }),
                 "memory of shape (2, 7, 11)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder(ctx, zeros({2, 5, 12}), Memory<float>(zeros({3, 7, 12})));
                 }),
                 "2 sequences of queries and 3 of keys"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder(ctx, zeros({2, 5, 12}),
                                 Memory<float>(zeros({2, 7, 12}), SequenceLayout::packed({7, 8})));
                 }),
                 "[attention] memory of shape (2, 7, 12) must fit its layout"));
  CHECK(message_of<ValueError>([&] { Decoder<float>({.num_layers = -1}, rng); }) ==
        "[decoder] num_layers is -1, must be positive");
}
