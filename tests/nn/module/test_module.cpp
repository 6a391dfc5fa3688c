#include <doctest/doctest.h>

#include "eigenformer/nn/stacks/transformer.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// A user's own module of library layers, with a saved buffer.
struct Pair {
  using value_type = float;
  Linear<float> left, right;
  Buffer<float> scale;
  explicit Pair(RandomGenerator& rng)
      : left({.in_features = 2, .out_features = 3}, rng),
        right({.in_features = 3, .out_features = 2, .bias = false}, rng) {
    scale.value = Tensor<float>::ones({4});
    scale.persistent = true;
  }
  static void fields(auto& self, auto&& visit) {
    visit("left", self.left);
    visit("right", self.right);
    visit("scale", self.scale);
  }
};

struct Holder {
  using value_type = float;
  detail::OptionalModule<LayerNorm<float>> norm;
  static void fields(auto& self, auto&& visit) { visit("norm", self.norm); }
};

Encoder<float> small_encoder(std::uint64_t seed = 1) {
  RandomGenerator rng(seed);
  return Encoder<float>({.num_layers = 2, .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F}},
                        rng);
}

}  // namespace

TEST_CASE("a copy is deep with new ids, a move keeps ids, an assignment keeps ids and copies values") {
  auto model = small_encoder();
  const auto id = model.layers[1].norm2.bias.id();
  auto copy = model;
  CHECK(copy.layers[1].norm2.bias.id() != id);
  CHECK(copy.layers[1].norm2.bias.name() == "layers.1.norm2.bias");
  copy.layers[1].norm2.bias.value().fill(5);
  CHECK(model.layers[1].norm2.bias.value().at({3}) == 0);
  model = copy;
  CHECK(model.layers[1].norm2.bias.id() == id);
  CHECK(model.layers[1].norm2.bias.value().at({3}) == 5);
  CHECK(model.layers[1].norm2.bias.value().data() != copy.layers[1].norm2.bias.value().data());
  const auto moved = std::move(model);
  CHECK(moved.layers[1].norm2.bias.id() == id);
}

TEST_CASE("the most qualified name of a parameter wins") {
  RandomGenerator rng(1);
  Pair pair(rng);
  CHECK(pair.left.weight.name() == "weight");
  CHECK(parameters(pair).size() == 3);
  CHECK(pair.left.weight.name() == "left.weight");
  CHECK(parameters(pair.left).size() == 2);
  CHECK(pair.left.weight.name() == "left.weight");
}

TEST_CASE(
    "a state dict goes back and forth, buffers included; one that does not fit names all that is wrong and "
    "changes nothing") {
  RandomGenerator rng(1);
  Pair pair(rng), other(rng);
  CHECK(names_of(pair) == std::vector<std::string>{"left.weight (3, 2)", "left.bias (3,)",
                                                   "right.weight (2, 3)", "scale (4,)"});
  load_state_dict(other, state_dict(pair));
  CHECK(values(other.left.weight.value()) == values(pair.left.weight.value()));
  CHECK(other.left.weight.value().data() != pair.left.weight.value().data());

  auto entries = state_dict(pair);
  const auto before = values(pair.left.weight.value());
  entries[0] = {"left.weight", Tensor<float>::ones({3, 2}), {}};
  entries[1] = {"left.bais", Tensor<float>::ones({3}), {}};
  entries[2] = {"right.weight", Tensor<float>::ones({3, 2}), {}};
  CHECK(message_of<ValueError>([&] { load_state_dict(pair, entries); }) ==
        "[load_state_dict] missing: left.bias. unexpected: left.bais. wrong shape: right.weight is (3, 2), "
        "must be (2, 3).");
  CHECK(values(pair.left.weight.value()) == before);
}

TEST_CASE(
    "loading reports what is missing and unexpected instead of refusing it, but never takes a wrong shape") {
  RandomGenerator rng(1);
  Pair pair(rng);
  const auto bias = values(pair.left.bias.value());
  std::vector<StateEntry<float>> entries = {{"l.weight", Tensor<float>::ones({2, 3}), {}},
                                            {"r.weight", Tensor<float>::ones({2, 3}), {}},
                                            {"other", Tensor<float>::ones({1}), {}}};
  const LoadOptions options{
      .strict = false, .rename = [](const std::string& name) {
        return name[0] == 'l' ? "left" + name.substr(1) : name[0] == 'r' ? "right" + name.substr(1) : name;
      }};
  CHECK(message_of<ValueError>([&] { load_state_dict(pair, entries, options); }) ==
        "[load_state_dict] wrong shape: left.weight is (2, 3), must be (3, 2).");
  entries[0].value = Tensor<float>::ones({3, 2});
  const auto report = load_state_dict(pair, entries, options);
  CHECK(report.missing == std::vector<std::string>{"left.bias", "scale"});
  CHECK(report.unexpected == std::vector<std::string>{"other"});
  CHECK(values(pair.left.weight.value()) == std::vector<float>(6, 1.0F));
  CHECK(values(pair.left.bias.value()) == bias);
}

TEST_CASE("a tensor without memory is refused before another one changes") {
  RandomGenerator rng(1);
  Pair pair(rng), released(rng);
  released.right.weight.value() = Tensor<float>::without_storage({2, 3});
  const auto value = [](const Pair& p) { return p.left.weight.value().at({0, 0}); };
  const float own = value(pair), other = value(released);
  CHECK(message_of<ValueError>([&] { load_state_dict(pair, state_dict(released)); }) ==
        "[load_state_dict] the given 'right.weight' has no memory, which was released or never allocated");
  CHECK(value(pair) == own);
  CHECK(message_of<ValueError>([&] { load_state_dict(released, state_dict(pair)); }) ==
        "[load_state_dict] the module's 'right.weight' has no memory, which was released or never allocated");
  CHECK(value(released) == other);
}

TEST_CASE("the summary is a table of names, shapes and numbers") {
  RandomGenerator rng(1);
  const Pair pair(rng);
  CHECK(summary(pair) ==
        "parameter     shape         values\n"
        "left.weight   (3, 2)             6\n"
        "left.bias     (3,)               3\n"
        "right.weight  (2, 3)             6\n"
        "scale         (4,)               4\n"
        "\n"
        "left                             9\n"
        "right                            6\n"
        "scale                            4\n"
        "total                           15\n");
}

TEST_CASE("freezing stops a parameter's gradient and no other's") {
  auto model = small_encoder();
  const auto x = random_tensor<float>({B, S, D}, 2);
  const auto run = [&] {
    Tape<float> tape;
    Gradients<float> gradients(parameters(model));
    const auto y = model(Context<float>::checking(tape), x);
    tape.backward(y, Tensor<float>::ones(y.shape()), gradients);
    return gradients;
  };
  const auto all = run();
  model.layers[0].self_attn.in_proj.weight.set_frozen(true);
  const auto some = run();
  CHECK(!some.find(model.layers[0].self_attn.in_proj.weight.id())->written);
  CHECK(values(some.of(model.layers[0].feed_forward.linear1.weight)) ==
        values(all.of(model.layers[0].feed_forward.linear1.weight)));
  CHECK(values(some.of(model.layers[0].self_attn.in_proj.bias)) ==
        values(all.of(model.layers[0].self_attn.in_proj.bias)));
}

TEST_CASE("an optional module is listed under its own name, copied deep and assigned by value") {
  detail::OptionalModule<LayerNorm<float>> absent, present = LayerNorm<float>({.size = 5});
  CHECK(!absent);
  CHECK(names_of(Holder{absent}).empty());
  CHECK(names_of(Holder{present}) == std::vector<std::string>{"norm.weight (5,)", "norm.bias (5,)"});
  auto copy = present;
  CHECK(copy->weight.id() != present->weight.id());
  const auto id = copy->weight.id();
  present->weight.value().fill(3);
  copy = present;
  CHECK(copy->weight.id() == id);
  CHECK(copy->weight.value().at({2}) == 3);
  absent.emplace(NormOptions{.size = 4});
  CHECK(bool(absent));
  absent = {};
  CHECK(!absent);
}

TEST_CASE("a seed fixes a model") {
  const auto a = small_encoder(3), b = small_encoder(3), c = small_encoder(4);
  CHECK(values(a.layers[1].feed_forward.linear2.weight.value()) ==
        values(b.layers[1].feed_forward.linear2.weight.value()));
  CHECK(values(a.layers[1].feed_forward.linear2.weight.value()) !=
        values(c.layers[1].feed_forward.linear2.weight.value()));
}
