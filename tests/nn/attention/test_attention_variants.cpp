#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "nn/attention_variants.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // a matrix, or the heads of one token

Row row_of(const Tensor<double>& t, index_t row) {
  const index_t n = t.dim(-1);
  return {t.data() + row * n, t.data() + (row + 1) * n};
}

// W[first : first + count] x + b[...].
Row product(const Tensor<double>& weight, const Tensor<double>& bias, index_t first, index_t count,
            const Row& x) {
  Row y;
  for (index_t i = first; i < first + count; ++i) {
    double sum = bias.at({i});
    for (std::size_t j = 0; j < x.size(); ++j) sum += weight.at({i, static_cast<index_t>(j)}) * x[j];
    y.push_back(sum);
  }
  return y;
}

Rows heads_of(const Row& x, index_t heads) {
  const auto n = static_cast<std::ptrdiff_t>(x.size()) / heads;
  Rows all;
  for (index_t h = 0; h < heads; ++h) all.emplace_back(x.begin() + h * n, x.begin() + (h + 1) * n);
  return all;
}

void normalise(Row& x, const Norm<double>& norm) {
  const Tensor<double>& gain = norm.weight.value();
  double mean = 0, variance = 0;  // of RMSNorm the mean counts as zero
  if (norm.options.kind == NormKind::layer_norm) {
    for (const double v : x) mean += v / static_cast<double>(x.size());
  }
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * gain.at({static_cast<index_t>(i)});
}

void turn(Row& x, index_t position, const RotaryPositions& o) {
  const std::size_t dim = o.dim != 0 ? static_cast<std::size_t>(o.dim) : x.size();
  const Row before = x;
  for (std::size_t i = 0; i < dim / 2; ++i) {
    const bool adjacent = o.pairing == RotaryPairing::adjacent;
    const std::size_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + dim / 2;
    const double angle = static_cast<double>(position) *
                         std::pow(o.base, -2 * static_cast<double>(i) / static_cast<double>(dim));
    x[a] = before[a] * std::cos(angle) - before[b] * std::sin(angle);
    x[b] = before[a] * std::sin(angle) + before[b] * std::cos(angle);
  }
}

// Multi-head attention by its definition, for one sequence of queries x (rows q_rows of X) and its keys: each
// variant as its paper has it.
Rows reference(const MultiHeadAttention<double>& m, const Rows& queries, const Rows& keys, bool self,
               bool causal, const Tensor<double>& bias = {}) {
  const auto& o = m.options;
  const auto* const shaw = std::get_if<ShawPositions>(&o.attention.positions);
  const index_t heads = o.num_heads, groups = o.key_value_heads(), hd = o.head_features();
  const auto& w = m.in_proj.weight.value();
  const auto& b = m.in_proj.bias.value();
  std::vector<Rows> q, k, v;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    q.push_back(heads_of(product(w, b, 0, heads * hd, queries[i]), heads));
    for (Row& head : q.back()) {
      if (m.query_norm) normalise(head, *m.query_norm);
      if (const auto* r = std::get_if<RotaryPositions>(&o.attention.positions); self && r != nullptr) {
        turn(head, static_cast<index_t>(i), *r);
      }
    }
  }
  for (std::size_t j = 0; j < keys.size(); ++j) {
    k.push_back(heads_of(product(w, b, heads * hd, groups * hd, keys[j]), groups));
    v.push_back(heads_of(product(w, b, (heads + groups) * hd, groups * hd, keys[j]), groups));
    for (Row& head : k.back()) {
      if (m.key_norm) normalise(head, *m.key_norm);
      if (const auto* r = std::get_if<RotaryPositions>(&o.attention.positions); self && r != nullptr) {
        turn(head, static_cast<index_t>(j), *r);
      }
    }
  }
  const double scale = o.attention.scale != 0 ? o.attention.scale : 1 / std::sqrt(static_cast<double>(hd));
  Rows out;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    Row joined;
    for (index_t h = 0; h < heads; ++h) {
      const auto hs = static_cast<std::size_t>(h), g = static_cast<std::size_t>(h / (heads / groups));
      Row p(keys.size()), sum(static_cast<std::size_t>(hd));
      double total = 0;
      const index_t reach = shaw != nullptr ? shaw->max_distance : bias.defined() ? bias.dim(1) / 2 : 0;
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const index_t distance = static_cast<index_t>(j) - static_cast<index_t>(i);
        const index_t entry = std::clamp(distance, -reach, reach) + reach;
        if (causal && distance > 0) continue;
        if (o.attention.window > 0 && std::abs(distance) >= o.attention.window) continue;
        double score = 0;
        for (std::size_t c = 0; c < static_cast<std::size_t>(hd); ++c) {
          double key = k[j][g][c];
          if (shaw != nullptr) key += m.shaw->keys.value().at({entry, static_cast<index_t>(c)});
          score += scale * q[i][hs][c] * key;
        }
        if (std::holds_alternative<AlibiPositions>(o.attention.positions))
          score -= detail::alibi_slopes(heads)[hs] * static_cast<double>(std::abs(distance));
        if (bias.defined()) score += bias.at({h, entry});
        p[j] = std::exp(score);
        total += p[j];
      }
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const index_t distance = static_cast<index_t>(j) - static_cast<index_t>(i);
        const index_t entry = std::clamp(distance, -reach, reach) + reach;
        for (std::size_t c = 0; c < static_cast<std::size_t>(hd) && p[j] > 0; ++c) {
          double value = v[j][g][c];
          if (shaw != nullptr) value += m.shaw->values.value().at({entry, static_cast<index_t>(c)});
          sum[c] += p[j] / total * value;
        }
      }
      joined.insert(joined.end(), sum.begin(), sum.end());
    }
    out.push_back(product(m.out_proj.weight.value(), m.out_proj.bias.value(), 0, o.d_model, joined));
  }
  return out;
}

double difference(const Rows& expected, const Tensor<double>& y, index_t first) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      const double got = y.data()[(first + static_cast<index_t>(i)) * y.dim(-1) + static_cast<index_t>(j)];
      worst = std::isfinite(got) ? std::max(worst, std::abs(got - expected[i][j]))
                                 : std::numeric_limits<double>::infinity();
    }
  }
  return worst;
}

double worst_difference(const Tensor<double>& a, const Tensor<double>& b) {
  double worst = a.numel() == b.numel() ? 0 : std::numeric_limits<double>::infinity();
  for (index_t i = 0; i < std::min(a.numel(), b.numel()); ++i) {
    const double d = std::abs(a.data()[i] - b.data()[i]);
    worst = std::isfinite(d) ? std::max(worst, d) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

Rows sequence(const Tensor<double>& x, const SequenceLayout& layout, index_t b) {
  Rows rows;
  for (index_t i = 0; i < layout.length(b); ++i) rows.push_back(row_of(x, layout.offset(b) + i));
  return rows;
}

// Rows of one layout in another; padding is NaN.
Tensor<double> moved(const Tensor<double>& x, const SequenceLayout& from, const SequenceLayout& to) {
  Tensor<double> y = Tensor<double>::full({to.rows(), x.dim(-1)}, std::nan(""));
  for (index_t b = 0; b < from.batch(); ++b)
    std::copy_n(x.data() + from.offset(b) * x.dim(-1), from.length(b) * x.dim(-1),
                y.data() + to.offset(b) * x.dim(-1));
  return y;
}

}  // namespace

TEST_CASE(
    "every variant of self- and cross-attention equals plain loops, packed and padded, with its weights") {
  const auto packed = SequenceLayout::packed({L, 9}), memory = SequenceLayout::packed({S, 2});
  const auto x = random_tensor<double>({L + 9, D}, 2), y = random_tensor<double>({S + 2, D}, 3);
  const auto ctx = Context<double>::inference();
  for (const auto& variant : attention_variants()) {
    const std::string& name = variant.first;
    const Seq2SeqOptions& o = variant.second;
    CAPTURE(name);
    RandomGenerator rng(1);
    DecoderLayer<double> layer(o.layer, rng);
    randomise(layer, 4);
    Var<double> bias;
    if (const auto* positions = std::get_if<RelativeBiasPositions>(&o.layer.attention.positions)) {
      detail::RelativeBias<double> table(*positions, o.layer.num_heads, false, rng);
      randomise(table, 5);
      bias = table(ctx);
    }
    const auto& self = *layer.self_attn;
    for (const bool causal : {true, false}) {
      const auto mask = causal ? AttentionMask::causal() : AttentionMask::none();
      const auto out = self(ctx, x, packed, x, x, packed, mask, {}, bias).value();
      for (index_t b = 0; b < 2; ++b) {
        const Rows rows = sequence(x, packed, b);
        const auto table = bias.defined() ? bias.value() : Tensor<double>();
        CHECK(difference(reference(self, rows, rows, true, causal, table), out, packed.offset(b)) < 1e-12);
      }
      for (const auto& padded :
           {SequenceLayout::padded({L, 9}, 11), SequenceLayout::padded_left({L, 9}, 11)}) {
        const auto z = moved(x, packed, padded);
        const auto spread = self(ctx, z, padded, z, z, padded, mask, {}, bias).value();
        CHECK(worst_difference(moved(spread, padded, packed), out) < 1e-13);
      }
      const auto with =
          self.with_weights(ctx, x, packed, x, x, packed, mask, HeadWeights::per_head, {}, bias);
      CHECK(worst_difference(with.output.value(), out) < 1e-13);
      // Weights of one query add up to one.
      double sum = 0;
      for (index_t j = 0; j < 9; ++j) sum += with.weights.value().at({1, 2, 7, j});
      CHECK(sum == doctest::Approx(1));
    }
    const auto& cross = layer.multihead_attn;
    const auto out = cross(ctx, x, packed, y, y, memory, {}).value();
    for (index_t b = 0; b < 2; ++b) {
      CHECK(difference(reference(cross, sequence(x, packed, b), sequence(y, memory, b), false, false), out,
                       packed.offset(b)) < 1e-12);
    }
  }
}

TEST_CASE("gradients of models of every variant, and packed = padded on either side") {
  const auto ids = [](const SequenceLayout& layout, index_t vocabulary, std::uint64_t seed) {
    RandomGenerator rng(seed);
    Tensor<std::int32_t> t({layout.rows()});
    for (auto& id : t.span())
      id = static_cast<std::int32_t>(rng.uniform_int(static_cast<std::uint64_t>(vocabulary)));
    return t;
  };
  const auto sources = SequenceLayout::packed({S, 3}), targets = SequenceLayout::packed({4, L});
  const auto source = ids(sources, 6, 1), target = ids(targets, 5, 2), next = ids(targets, 5, 3);
  const auto spread = [](const Tensor<std::int32_t>& t, const SequenceLayout& from,
                         const SequenceLayout& to) {
    Tensor<std::int32_t> all = Tensor<std::int32_t>::full({to.batch(), to.max_length()}, 0);
    for (index_t b = 0; b < from.batch(); ++b)
      std::copy_n(t.data() + from.offset(b), from.length(b), all.data() + to.offset(b));
    return all;
  };
  for (const auto& variant : attention_variants()) {
    const std::string& name = variant.first;
    Seq2SeqOptions o = variant.second;
    CAPTURE(name);
    RandomGenerator rng(1);
    o.source_vocab_size = 6;
    o.target_vocab_size = 5;
    o.max_length = 9;
    Seq2SeqTransformer<double> model(o, rng);
    randomise(model, 4);
    Seq2SeqOptions shallow = o;
    shallow.encoder.num_layers = shallow.decoder.num_layers = 1;
    shallow.layer.dim_feedforward = 3;
    Seq2SeqTransformer<double> small(shallow, rng);
    randomise(small, 5);
    check_backward(small, {}, [&](const Context<double>& ctx, const auto&) {
      return small.loss(ctx, source, sources, target, targets, next);
    });
    const auto ctx = Context<double>::inference();
    const auto packed = model(ctx, source, sources, target, targets).value();
    for (const bool left : {false, true}) {
      const auto s = left ? SequenceLayout::padded_left({S, 3}, 8) : SequenceLayout::padded({S, 3}, 8);
      const auto t = left ? SequenceLayout::padded_left({4, L}, 6) : SequenceLayout::padded({4, L}, 6);
      Seq2SeqMaps<double> maps;
      const auto padded =
          model(ctx, spread(source, sources, s), s, spread(target, targets, t), t, &maps).value();
      const auto rows = padded.reshape({t.rows(), 5});
      CHECK(worst_difference(moved(rows, t, targets), packed) < 1e-12);
      CHECK(maps.source.size() == 2);
      CHECK(maps.source[1].shape() == Shape{B, o.layer.num_heads, 8, 8});
      CHECK(maps.decoder.memory[0].shape() == Shape{B, o.layer.num_heads, 6, 8});
      // The first target token sees itself, and nothing stands before it.
      CHECK(maps.decoder.target[0].value().at({0, 0, t.offset(0), t.offset(0)}) == doctest::Approx(1));
      double before = 0;
      for (index_t j = 0; j < t.offset(0); ++j)
        before += maps.decoder.target[0].value().at({0, 0, t.offset(0), j});
      CHECK(before == 0);
    }
  }
}

TEST_CASE("slopes and buckets are those of the papers' code") {
  CHECK(detail::alibi_slopes(4) == std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625});
  // Of 6 heads, 4 as above and then the first and third of 8.
  CHECK(detail::alibi_slopes(6) == std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125});
  // Both directions: 16 buckets each, 8 of them exact.
  const std::map<index_t, index_t> both{{0, 0},   {-1, 1},    {-7, 7},    {-8, 8},    {-11, 8},
                                        {-12, 9}, {-127, 15}, {-128, 15}, {-500, 15}, {1, 17},
                                        {7, 23},  {8, 24},    {12, 25},   {500, 31}};
  for (const auto& [distance, bucket] : both)
    CHECK(detail::relative_bias_bucket(distance, 32, 128, true) == bucket);
  const std::map<index_t, index_t> one{{3, 0},    {0, 0},    {-1, 1},    {-15, 15},
                                       {-16, 16}, {-19, 17}, {-128, 31}, {-999, 31}};
  for (const auto& [distance, bucket] : one)
    CHECK(detail::relative_bias_bucket(distance, 32, 128, false) == bucket);
  for (const index_t buckets : {index_t{0}, index_t{-4}, index_t{3}, index_t{1} << 31})
    CHECK_THROWS_AS((void)detail::relative_bias_bucket(3, buckets, 128, true), ValueError);
  CHECK_THROWS_AS((void)detail::relative_bias_bucket(3, 1, 128, false), ValueError);
  for (const index_t reach : {0, -1})
    CHECK_THROWS_AS((void)detail::relative_bias_bucket(3, 32, reach, true), ValueError);
}

TEST_CASE("every number of buckets and distance has transformers' buckets where it has any") {
  const Fixture fixture("attention/relative_bias_buckets");
  index_t compared = 0, none = 0;
  for (const std::string& name : fixture.file().names()) {
    CAPTURE(name);
    const std::size_t dot = name.find('.'), last = name.rfind('.');
    const bool both = name.substr(0, dot) == "encoder";
    const index_t buckets = std::stoi(name.substr(dot + 1)), most = std::stoi(name.substr(last + 1));
    const auto expected = fixture.file().tensor<std::int32_t>(name);
    const index_t reach = detail::relative_bias_reach(buckets, most, both);
    for (index_t distance = -40; distance <= 40; ++distance) {
      CAPTURE(distance);
      const index_t bucket = detail::relative_bias_bucket(distance, buckets, most, both);
      CHECK(bucket >= 0);
      CHECK(bucket < buckets);
      CHECK(bucket == detail::relative_bias_bucket(std::clamp(distance, -reach, reach), buckets, most, both));
      if (expected.data()[distance + 40] < 0) {
        ++none;
      } else {
        CHECK(bucket == expected.data()[distance + 40]);
        ++compared;
      }
    }
  }
  CHECK(compared > 18'000);
  CHECK(none > 100);
}

TEST_CASE("buckets of any distance, however great") {
  constexpr index_t greatest = std::numeric_limits<index_t>::max();
  for (const index_t distance : {greatest, -greatest, std::numeric_limits<index_t>::min()}) {
    CHECK(detail::relative_bias_bucket(distance, 18, 37, true) == (distance > 0 ? 17 : 8));
    CHECK(detail::relative_bias_bucket(distance, 16, 8, false) == (distance > 0 ? 0 : 15));
    CHECK(detail::relative_bias_bucket(distance, 16, 3, true) == 0);
  }
  CHECK(detail::relative_bias_bucket(-1000, 32, greatest, true) == 8);
  CHECK(detail::relative_bias_reach(32, 128, true) == 128);
  CHECK(detail::relative_bias_reach(16, 8, false) == 8);
  CHECK(detail::relative_bias_reach(32, greatest, true) == index_t{1} << 20);
  CHECK(detail::relative_bias_reach(1'000'000, 1, true) == index_t{1} << 20);
  CHECK(detail::relative_bias_reach(2'147'483'647, 5, false) == index_t{1} << 20);
  // 0 from here on; transformers has no bucket from 23 on.
  CHECK(detail::relative_bias_bucket(-15, 8, 1, false) == 1);
  CHECK(detail::relative_bias_reach(8, 1, false) == 16);
}

TEST_CASE("a relative bias has the weights of its buckets at all distances") {
  RandomGenerator rng(3);
  for (const auto& [buckets, most] :
       {std::pair<index_t, index_t>{18, 37}, {6, 20}, {16, 8}, {9, 2}, {4, 1}}) {
    for (const bool both : {true, false}) {
      const detail::RelativeBias<double> bias({.buckets = buckets, .max_distance = most}, 3, both, rng);
      const index_t reach = detail::relative_bias_reach(buckets, most, both);
      const Tensor<double> table = bias(Context<double>::inference()).value();
      REQUIRE(table.shape() == Shape{3, 2 * reach + 1});
      for (index_t h = 0; h < 3; ++h) {
        for (index_t d = -reach; d <= reach; ++d) {
          CHECK(table.at({h, d + reach}) ==
                bias.weight.value().at({detail::relative_bias_bucket(d, buckets, most, both), h}));
        }
      }
    }
  }
}

TEST_CASE("names and shapes of parameters of variants; defaults have none of them") {
  RandomGenerator rng(1);
  std::map<std::string, Shape> shapes;
  const auto list = [&](auto& module) {
    shapes.clear();
    for_each_parameter(module, [&](const std::string& name, const auto& p) { shapes[name] = p.shape(); });
  };
  MultiHeadAttention<float> grouped({.d_model = D,
                                     .num_heads = 4,
                                     .attention = {.positions = ShawPositions{.max_distance = 5},
                                                   .num_key_value_heads = 2,
                                                   .head_dim = 7,
                                                   .query_key_norm = NormKind::layer_norm}},
                                    rng);
  list(grouped);
  CHECK(shapes.at("in_proj_weight") == Shape{56, D});
  CHECK(shapes.at("in_proj_bias") == Shape{56});
  CHECK(shapes.at("out_proj.weight") == Shape{D, 28});
  CHECK(shapes.at("query_norm.weight") == Shape{7});
  CHECK(shapes.at("key_norm.weight") == Shape{7});
  CHECK(shapes.at("relative_keys") == Shape{11, 7});
  CHECK(shapes.at("relative_values") == Shape{11, 7});
  CHECK(shapes.size() == 8);
  Encoder<float> encoder({.num_layers = 1,
                          .layer = {.d_model = D,
                                    .num_heads = H,
                                    .dim_feedforward = F,
                                    .attention = {.positions = RelativeBiasPositions{}}}},
                         rng);
  list(encoder);
  CHECK(shapes.at("relative_bias.weight") == Shape{32, H});
  MultiHeadAttention<float> plain({.d_model = D, .num_heads = H}, rng);
  list(plain);
  CHECK(shapes.size() == 4);
}

TEST_CASE("separate weights of queries, keys and values take every variant too") {
  RandomGenerator rng(1);
  const auto x = random_tensor<double>({B, L, D}, 2), key = random_tensor<double>({B, S, 9}, 3),
             value = random_tensor<double>({B, S, 8}, 4);
  for (const AttentionPositions& positions : std::vector<AttentionPositions>{
           RotaryPositions{}, AlibiPositions{}, ShawPositions{.max_distance = 2}}) {
    MultiHeadAttention<double> attention({.d_model = D,
                                          .num_heads = 4,
                                          .kdim = 9,
                                          .vdim = 8,
                                          .attention = {.positions = positions,
                                                        .num_key_value_heads = 2,
                                                        .head_dim = 4,
                                                        .query_key_norm = NormKind::layer_norm}},
                                         rng);
    randomise(attention, 5);
    check_backward(attention, {x, key, value}, [&](const Context<double>& ctx, const auto& in) {
      return attention(ctx, in[0], in[1], in[2]);
    });
  }
}

TEST_CASE("impossible options of attention are named") {
  const auto message = [](auto&& change) {
    MultiHeadAttentionOptions o{.d_model = D, .num_heads = 4};
    change(o);
    RandomGenerator rng(1);
    return message_of<ValueError>([&] { MultiHeadAttention<float>(o, rng); });
  };
  using O = MultiHeadAttentionOptions;
  CHECK(message([](O& o) { o.attention.num_key_value_heads = 3; }) ==
        "[multi_head_attention] num_heads is 4, must be divisible by num_key_value_heads, which is 3");
  CHECK(message([](O& o) { o.attention.positions = RotaryPositions{}; }) ==
        "[multi_head_attention] rotary_dim is 3, must be even, at least 2 and at most 3, the features of a "
        "head");
  CHECK(contains(message([](O& o) { o.attention.window = -1; }), "attention_window is -1"));
  CHECK(contains(message([](O& o) { o.attention.head_dim = -2; }), "head_dim is -2"));
  CHECK(contains(message([](O& o) { o.attention.scale = -1; }), "attention_scale"));
  CHECK(contains(message([](O& o) { o.attention.positions = ShawPositions{.max_distance = 0}; }),
                 "shaw_max_distance is 0"));
  Seq2SeqOptions o{
      .source_vocab_size = V,
      .layer = {.d_model = D, .num_heads = H, .attention = {.positions = RelativeBiasPositions{}}}};
  o.layer.attention.positions = RelativeBiasPositions{.buckets = 3};
  CHECK(contains(message_of<ValueError>([&] { o.validate("seq2seq_transformer"); }),
                 "relative_bias_buckets is 3, must be from 4 to 2147483647 (from 2 if "));
  o.layer.attention.positions = RelativeBiasPositions{.buckets = 1, .bidirectional = false};
  CHECK(contains(message_of<ValueError>([&] { o.validate("seq2seq_transformer"); }),
                 "relative_bias_buckets is 1, must be from 2 to"));
  o.layer.attention.positions = RelativeBiasPositions{.buckets = 8, .max_distance = 0};
  CHECK(contains(message_of<ValueError>([&] { o.validate("seq2seq_transformer"); }), "max_distance is 0"));
}
