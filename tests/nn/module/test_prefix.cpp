#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Lengths = std::vector<index_t>;

const Tokens input = random_tokens({B, S}, V, 11), output = random_tokens({B, S}, V, 12);
const SequenceLayout layout = SequenceLayout::padded({7, 4}, S);
const Lengths prefix = {4, 3};

/// Every kind of positions and heads; a window that some of the prefix is beyond.
std::vector<std::pair<std::string, LanguageModelOptions>> language_models() {
  const auto with = [](auto&& change) {
    LanguageModelOptions o{
        .vocab_size = V, .num_layers = 2, .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F}};
    change(o.layer);
    return o;
  };
  using O = LayerOptions;
  return {{"sinusoidal", with([](O&) {})},
          {"rotary, one head of keys", with([](O& o) {
             o.attention.positions = RotaryPositions{};
             o.attention.num_key_value_heads = 1;
           })},
          {"alibi", with([](O& o) { o.attention.positions = AlibiPositions{}; })},
          {"relative bias", with([](O& o) {
             o.attention.positions =
                 RelativeBiasPositions{.buckets = 8, .max_distance = 9, .bidirectional = true};
           })},
          {"shaw", with([](O& o) { o.attention.positions = ShawPositions{.max_distance = 2}; })},
          {"window", with([](O& o) { o.attention.window = 3; })}};
}

LanguageModel<double> make(const LanguageModelOptions& options) {
  RandomGenerator rng(1);
  LanguageModel<double> model(options, rng);
  randomise(model, 2);
  return model;
}

/// The same ids with their padding on the left.
Tokens moved_right(const Tokens& ids, const SequenceLayout& from) {
  Tokens moved = Tokens::zeros(ids.shape());
  for (index_t b = 0; b < ids.dim(0); ++b) {
    const index_t n = from.length(b);
    std::copy_n(ids.data() + from.offset(b), n, moved.data() + (b + 1) * ids.dim(1) - n);
  }
  return moved;
}

/// The prefix rule as a dense mask, element by element.
AttentionMask dense_prefix(const Lengths& lengths, index_t rows) {
  Tensor<bool> allowed({static_cast<index_t>(lengths.size()), rows, rows});
  for (index_t b = 0; b < allowed.dim(0); ++b) {
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < rows; ++j)
        allowed.at({b, i, j}) = j <= i || j < lengths[static_cast<std::size_t>(b)];
    }
  }
  return AttentionMask::allow(allowed);
}

}  // namespace

TEST_CASE("a prefix stands in place of the causal mask of a language model, in every layout") {
  const auto ctx = Context<double>::inference();
  const AttentionMask mask = AttentionMask::prefix(prefix);
  for (const auto& variant : language_models()) {
    CAPTURE(variant.first);
    const auto model = make(variant.second);
    const auto padded = model(ctx, input, layout, mask).value();
    const auto expected =
        model
            .logits(ctx, model.decoder(ctx, model.embed(ctx, input, layout), layout, dense_prefix(prefix, S)))
            .value();
    const SequenceLayout rows = detail::packed_layout(layout), left = SequenceLayout::padded_left({7, 4}, S);
    const auto packed = model(ctx, detail::pack_tokens(input, layout), rows, mask).value();
    const auto from_left = model(ctx, moved_right(input, layout), left, mask).value();
    const auto causal = model(ctx, input, layout).value();
    for (index_t b = 0; b < B; ++b) {
      check_close(sequence(padded, layout, b), sequence(expected, layout, b), 1e-12);
      check_close(sequence(packed, rows, b), sequence(expected, layout, b), 1e-12);
      check_close(sequence(from_left, left, b), sequence(expected, layout, b), 1e-12);
      CHECK(values(sequence(padded, layout, b)) != values(sequence(causal, layout, b)));
    }
  }
}

TEST_CASE("in a prefix a token sees the later ones, beyond it none, and other masks are joined") {
  const auto ctx = Context<double>::inference();
  const auto model = make(language_models().front().second);
  const AttentionMask mask = AttentionMask::prefix(prefix);
  const auto before = model.decode(ctx, input, layout, mask).value();
  const auto after_change_of = [&](index_t t) {
    auto ids = input.clone();
    ids.at({0, t}) = ids.at({0, t}) % static_cast<std::int32_t>(V - 1) + 1;
    return model.decode(ctx, ids, layout, mask).value();
  };
  const auto row = [](const Tensor<double>& x, index_t t) {
    return values(x.reshape({B * S, D}).rows(t, 1));
  };
  const auto third = after_change_of(3), fifth = after_change_of(5);
  for (index_t t = 0; t < S; ++t) {
    CHECK(row(third, t) != row(before, t));
    CHECK((row(fifth, t) == row(before, t)) == (t < 5));
  }
  const auto joined = model.decode(ctx, input, layout, mask & AttentionMask::causal()).value();
  CHECK(values(joined) == values(model.decode(ctx, input, layout).value()));
}

TEST_CASE("the loss of a prefix language model is of the tokens after the prefix") {
  const auto ctx = Context<double>::inference();
  for (const std::size_t which : {0, 2, 4, 5}) {
    auto model = make(language_models()[which].second);
    const auto p =
        model.log_probabilities(ctx, model.decode(ctx, input, layout, AttentionMask::prefix(prefix)));
    double sum = 0;
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = prefix[static_cast<std::size_t>(b)] - 1; t < layout.length(b); ++t)
        sum -= p.value().at({b, t, output.at({b, t})});
    }
    const double expected = sum / (4 + 2);
    CHECK(model.loss(ctx, input, layout, output, {}, prefix).item() ==
          doctest::Approx(expected).epsilon(1e-12));
    const auto left = SequenceLayout::padded_left({7, 4}, S);
    CHECK(model.loss(ctx, moved_right(input, layout), left, moved_right(output, layout), {}, prefix).item() ==
          doctest::Approx(expected).epsilon(1e-12));
    CHECK(model
              .loss(ctx, detail::pack_tokens(input, layout), detail::packed_layout(layout),
                    detail::pack_tokens(output, layout), {}, prefix)
              .item() == doctest::Approx(expected).epsilon(1e-12));
    check_backward(model, {}, [&](const Context<double>& c, const auto&) {
      return model.loss(c, input, layout, output, {}, prefix);
    });
  }
  const auto model = make(language_models().front().second);
  // A prefix of one token is no more than causal, and one beyond the end asks for nothing but the last token.
  CHECK(model.loss(ctx, input, layout, output, {}, {1, 0}).item() ==
        model.loss(ctx, input, layout, output).item());
  CHECK(model.loss(ctx, input, layout, output, {.reduction = CrossEntropyOptions::Reduction::sum}, {9, 9})
            .item() == 0);
}

TEST_CASE("after_prefix ignores what a prefix sees") {
  const auto targets = Tokens::from({7}, {5, 6, 7, 8, 9, 10, 11});
  const auto rows = SequenceLayout::packed({4, 3});
  CHECK(values(detail::after_prefix(targets, rows, {3, 1}, {.ignore_index = -7})) ==
        std::vector<std::int32_t>{-7, -7, 7, 8, 9, 10, 11});
  CHECK(values(targets) == std::vector<std::int32_t>{5, 6, 7, 8, 9, 10, 11});
  CHECK(values(detail::after_prefix(targets, rows, {}, {})) == values(targets));
}

TEST_CASE("a prefix in the decoder of an encoder-decoder") {
  const auto ctx = Context<double>::inference();
  const TokenBatch batch;
  const Lengths two = {2, 4};
  for (const bool relative : {false, true}) {
    auto options = small_seq2seq();
    if (relative) options.layer.attention.positions = RelativeBiasPositions{};
    auto model = make_seq2seq<double>(options);
    const Memory<double> memory(model.encode(ctx, batch.source, batch.source_layout), batch.source_layout);
    const auto decoded = model.decode(ctx, batch.target_in, batch.target_layout, memory,
                                      {.target = AttentionMask::prefix(two)});
    const auto expected =
        model.transformer.decoder(ctx, model.embed_target(ctx, batch.target_in, batch.target_layout),
                                  batch.target_layout, memory, {.target = dense_prefix(two, L)});
    for (index_t b = 0; b < B; ++b) {
      check_close(sequence(decoded.value(), batch.target_layout, b),
                  sequence(expected.value(), batch.target_layout, b), 1e-12);
    }
    const auto p = model.log_probabilities(ctx, decoded).value();
    double sum = 0;
    for (index_t b = 0; b < B; ++b) {
      for (index_t t = two[static_cast<std::size_t>(b)] - 1; t < batch.target_layout.length(b); ++t)
        sum -= p.at({b, t, batch.target_out.at({b, t})});
    }
    const auto loss = [&](const Context<double>& c) {
      return model.loss(c, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                        batch.target_out, {}, two);
    };
    CHECK(loss(ctx).item() == doctest::Approx(sum / 4).epsilon(1e-12));
    check_backward(model, {}, [&](const Context<double>& c, const auto&) { return loss(c); });
  }
}

TEST_CASE("prefixes that do not fit are refused") {
  const auto ctx = Context<double>::inference();
  const auto model = make(language_models().front().second);
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model.loss(ctx, input, layout, output, {}, {3, 2, 1});
                 }),
                 "3 prefix lengths must be 2, one for each sequence"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)detail::after_prefix(Tokens::zeros({5}), SequenceLayout::packed({5}), {3, 2}, {});
                 }),
                 "[prefix] 2 prefix lengths must be 1"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)model.loss(ctx, input, layout, output, {}, {3, -2});
                 }),
                 "prefix of sequence 1 is -2 long, must not be negative"));
  auto options = language_models().front().second;
  options.layer.attention.kind = AttentionKind::linear;
  CHECK(contains(
      message_of<ValueError>([&] { (void)make(options).loss(ctx, input, layout, output, {}, prefix); }),
      "linear attention supports only the masks causal()"));
}
