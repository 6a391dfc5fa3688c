#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/nn/attention/positional_encoding.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Nothing {
  using value_type = double;
  static void fields(auto&, auto&&) {}
};

}  // namespace

TEST_CASE_TEMPLATE("sinusoidal positions agree with PyTorch in every convention", T, float, double) {
  const Fixture fixture("layers/positions");
  const auto check = [&](const char* name, const SinusoidalPositions& options) {
    const SinusoidalPositionalEncoding<T> positions(D, options);
    const auto added =
        positions(Context<T>::inference(), Tensor<T>::zeros({1, 11, D}), SequenceLayout::padded(1, 11));
    check_close(added.value().reshape({11, D}), fixture.get<T>(std::string("out.") + name),
                output_tolerance<T>, name);
  };
  constexpr auto concatenated = SinusoidOrder::concatenated;
  constexpr auto tensor2tensor = SinusoidExponent::tensor2tensor;
  check("interleaved", {});
  check("interleaved_from_1", {.first_position = 1});
  check("interleaved_base_500", {.base = 500});
  check("concatenated", {.order = concatenated});
  check("concatenated_from_1", {.order = concatenated, .first_position = 1});
  check("tensor2tensor", {.order = concatenated, .exponent = tensor2tensor});
  check("tensor2tensor_from_1", {.order = concatenated, .exponent = tensor2tensor, .first_position = 1});

  const SinusoidalPositionalEncoding<T> positions(D);
  const auto far = SequenceLayout::packed({1}).with_first_position(5000);
  check_close(positions(Context<T>::inference(), Tensor<T>::zeros({1, D}), far).value(),
              fixture.get<T>("out.position_5000"), output_tolerance<T>, "position 5000");
}

TEST_CASE("positions come from the layout: padded, packed and continued sequences agree, at any length") {
  const SinusoidalPositionalEncoding<double> positions(D);
  const auto ctx = Context<double>::inference();
  const auto padded = SequenceLayout::padded({3, 5}, 5), packed = SequenceLayout::packed({3, 5});
  const auto a = positions(ctx, Tensor<double>::zeros({2, 5, D}), padded).value();
  const auto b = positions(ctx, Tensor<double>::zeros({8, D}), packed).value();
  for (index_t s = 0; s < 2; ++s) CHECK(values(sequence(a, padded, s)) == values(sequence(b, packed, s)));
  const auto rest =
      positions(ctx, Tensor<double>::zeros({2, D}), SequenceLayout::packed({2}).with_first_position(3))
          .value();
  CHECK(values(rest) == values(sequence(b, packed, 1).rows(3, 2)));

  // The table ends at 512; what is computed beyond goes on where it stops.
  const auto longer =
      positions(ctx, Tensor<double>::zeros({1, 600, D}), SequenceLayout::padded(1, 600)).value();
  for (index_t p = 0; p < 600; ++p) {
    for (index_t i = 0; i < D; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000, -static_cast<double>(i / 2 * 2) / D);
      CHECK(std::abs(longer.at({0, p, i}) - (i % 2 == 0 ? std::sin(angle) : std::cos(angle))) < 1e-12);
    }
  }
}

TEST_CASE("sinusoidal positions pass gradients on and refuse what does not fit") {
  Nothing nothing;
  const SinusoidalPositionalEncoding<double> positions(D);
  check_backward(nothing, {random_tensor<double>({B, L, D}, 1)},
                 [&](const Context<double>& ctx, const auto& x) {
                   return positions(ctx, x[0], SequenceLayout::padded(B, L));
                 });
  const auto ctx = Context<double>::inference();
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)positions(ctx, Tensor<double>::zeros({2, 5, 11}), SequenceLayout::padded(2, 5));
                 }),
                 "last dimension of input (2, 5, 11) must be 12"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)positions(ctx, Tensor<double>::zeros({9, D}), SequenceLayout::packed({3, 5}));
                 }),
                 "input of shape (9, 12) must fit its layout: 2 packed sequences in 8 rows"));
  CHECK(message_of<ValueError>([] {
          SinusoidalPositionalEncoding<float>(7, {.order = SinusoidOrder::concatenated});
        }) == "[positional_encoding] d_model is 7, must be even for concatenated sines and cosines");
  CHECK(contains(message_of<ValueError>([] { SinusoidalPositionalEncoding<float>(8, {.base = -2}); }),
                 "base is -2"));
  CHECK(contains(message_of<ValueError>([] { SinusoidalPositionalEncoding<float>(0); }), "d_model is 0"));
}

TEST_CASE("learned positions start normal(0, 0.02), are rows of a table, and end with it") {
  RandomGenerator rng(5);
  LearnedPositionalEmbedding<double> positions({.max_length = 300, .d_model = D}, rng);
  double square = 0;
  for (const double x : positions.weight.value().span()) square += x * x / (300 * D);
  CHECK(std::sqrt(square) == doctest::Approx(0.02).epsilon(0.05));

  LearnedPositionalEmbedding<double> small({.max_length = 5, .d_model = D}, rng);
  const auto layout = SequenceLayout::packed({3, 5});
  const auto y = small(Context<double>::inference(), Tensor<double>::ones({8, D}), layout).value();
  CHECK(y.at({1, 4}) == 1 + small.weight.value().at({1, 4}));
  CHECK(y.at({7, 4}) == 1 + small.weight.value().at({4, 4}));
  check_backward(small, {random_tensor<double>({8, D}, 6)},
                 [&](const Context<double>& ctx, const auto& x) { return small(ctx, x[0], layout); });

  const auto ctx = Context<double>::inference();
  CHECK(message_of<ValueError>([&] {
          (void)small(ctx, Tensor<double>::zeros({2, 7, D}), SequenceLayout::padded({4, 7}, 7));
        }) == "[positional_embedding] sequence 1 reaches position 6, but 'weight' has 5 positions");
  CHECK(small(ctx, Tensor<double>::zeros({2, 7, D}), SequenceLayout::padded({4, 5}, 7)).shape() ==
        Shape{2, 7, D});
  CHECK(contains(message_of<ValueError>([&] { LearnedPositionalEmbedding<float>({.d_model = D}, rng); }),
                 "max_length is 0"));
}
