#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/stacks/decoder.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "fixtures.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;

// The likeliest allowed token each time, until the end symbol.
template <class Next>
Ids greedy(Next&& next, index_t max_length) {
  Ids ids;
  for (index_t t = 0; t < max_length; ++t) {
    const std::vector<double> x = next(ids);
    std::size_t best = 3;
    for (std::size_t id = 3; id < x.size(); ++id) best = x[id] > x[best] ? id : best;
    if (best == 3) break;
    ids.push_back(static_cast<std::int32_t>(best));
  }
  return ids;
}

/// Two encoders, one decoder that looks at both: a layer, a model and a state of the caller's own.
struct TwoMemoryLayer {
  using value_type = double;
  using Options = LayerOptions;
  DecoderLayer<double> layer;
  MultiHeadAttention<double> second;
  TwoMemoryLayer(const Options& options, RandomGenerator& rng)
      : layer(options, rng),
        second({.d_model = options.d_model, .num_heads = options.num_heads, .cross = true}, rng) {}
  Var<double> operator()(const Context<double>& ctx, const Var<double>& x, LayerPass<double>& pass) const {
    const Var<double> y = layer(ctx, x, pass);
    return add(y, pass.memory_attention(ctx, second, y, 1));
  }
  index_t d_model() const { return layer.d_model(); }
  static void fields(auto& self, auto&& visit) {
    visit("", self.layer);
    visit("second", self.second);
  }
};

/// A TableModel whose logits are its table, without a copy; for one sequence at a time.
struct BorrowedTableModel : TableModel<double> {
  using TableModel<double>::TableModel;
  Var<double> logits(const Context<double>&, const Var<double>& decoded) const {
    const auto row = static_cast<index_t>(decoded.value().item());
    auto* const from = const_cast<double*>(table.data() + row * vocabulary);
    return Var<double>(Tensor<double>::borrow(from, Shape{1, vocabulary}));
  }
};

struct TwoSources {
  using value_type = double;
  using Input = std::pair<Ids, Ids>;
  using Tokens = Tensor<std::int32_t>;

  Embedding<double> table;
  Encoder<double> first, second;
  Stack<TwoMemoryLayer> decoder;
  Linear<double> projection;

  static LayerOptions layer() { return {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}; }
  explicit TwoSources(RandomGenerator& rng)
      : table({.num_embeddings = 17, .embedding_dim = 12}, rng),
        first({.num_layers = 1, .layer = layer()}, rng),
        second({.num_layers = 2, .layer = layer()}, rng),
        decoder({.num_layers = 2, .layer = layer()}, rng),
        projection({.in_features = 12, .out_features = 17}, rng) {
    for (double& w : projection.weight.value().span()) w *= 5;
  }

  index_t vocabulary_size() const { return 17; }
  index_t input_length(const Input& input) const {
    return static_cast<index_t>(input.first.size() + input.second.size());
  }
  Memory<double> encode(const Context<double>& ctx, const Encoder<double>& encoder,
                        std::span<const Input> inputs, Ids Input::*side) const {
    Ids ids;
    std::vector<index_t> lengths;
    for (const Input& input : inputs) {
      ids.insert(ids.end(), (input.*side).begin(), (input.*side).end());
      lengths.push_back(static_cast<index_t>((input.*side).size()));
    }
    const auto layout = SequenceLayout::packed(lengths);
    const auto tokens = Tokens::from(Shape{static_cast<index_t>(ids.size())}, ids);
    return {encoder(ctx, table(ctx, tokens, 3.0), layout), layout};
  }
  Var<double> decode(const Context<double>& ctx, const Tokens& ids, LayerPass<double>& pass) const {
    return decoder(ctx, table(ctx, ids, 3.0), pass);
  }
  DecoderState<double> begin(const Context<double>& ctx, std::span<const Input> inputs) const& {
    return {ctx,
            static_cast<index_t>(inputs.size()),
            {encode(ctx, first, inputs, &Input::first), encode(ctx, second, inputs, &Input::second)},
            [this](const auto& c, const auto& ids, auto& pass) { return decode(c, ids, pass); }};
  }
  Var<double> logits(const Context<double>& ctx, const Var<double>& rows) const {
    return projection(ctx, rows);
  }
  static void fields(auto& self, auto&& visit) {
    visit("table", self.table);
    visit("first", self.first);
    visit("second", self.second);
    visit("decoder", self.decoder);
    visit("projection", self.projection);
  }
};

}  // namespace

static_assert(GenerativeModel<TableModel<double>>);
static_assert(GenerativeModel<TwoSources>);
static_assert(GenerativeModel<Seq2SeqTransformer<float>>);
static_assert(GenerativeModel<LanguageModel<float>>);
static_assert(!GenerativeModel<int>);

TEST_CASE("logits that a model borrows are not written") {
  const TableModel<double> copies(9, 3, 1.5);
  const BorrowedTableModel borrows(9, 3, 1.5);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> inputs = {{2, 3}};
  const SearchOptions options{.beam_size = 1, .max_length = 8, .min_length = 4, .repetition_penalty = 1.5};
  const SearchOptions sampling{
      .sampling = Sampling{}, .max_length = 8, .min_length = 4, .repetition_penalty = 1.5};
  CHECK(generate(borrows, ctx, inputs, options)[0][0].ids ==
        generate(copies, ctx, inputs, options)[0][0].ids);
  CHECK(draw(borrows, ctx, inputs, sampling)[0].ids == draw(copies, ctx, inputs, sampling)[0].ids);
  CHECK(borrows.table == copies.table);
}

TEST_CASE("a model that is a table is searched and sampled: greedy as the table says, in any batch") {
  const TableModel<float> model(13, 3, 2);
  const auto ctx = Context<float>::inference();
  std::vector<Ids> inputs;
  for (std::int32_t i = 0; i < 30; ++i) inputs.push_back(Ids(static_cast<std::size_t>(1 + i % 4), i));
  const auto beam = generate(model, ctx, inputs, {.beam_size = 1, .max_length = 12}, {.batch_size = 4});
  const auto together = generate(model, ctx, inputs, {.beam_size = 3, .max_length = 12});
  const auto apart = generate(model, ctx, inputs, {.beam_size = 3, .max_length = 12}, {.batch_size = 2});
  const auto drawn = draw(model, ctx, inputs, {.sampling = Sampling{.temperature = 0}, .max_length = 12});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Ids expected = greedy(
        [&](Ids ids) {
          ids.insert(ids.begin(), 2);
          return model.next(inputs[i], ids);
        },
        12);
    CHECK(beam[i][0].ids == expected);
    CHECK(drawn[i].ids == expected);
    CHECK(together[i][0].ids == apart[i][0].ids);
    CHECK(together[i][0].log_probability == apart[i][0].log_probability);
  }
}

TEST_CASE(
    "a decoder-only model goes on from prompts of different lengths, and beams find at least what greedy "
    "finds") {
  for (const auto& options : language_models()) {
    const auto model = small_language_model(options);
    const auto ctx = Context<double>::inference();
    const std::vector<Ids> prompts = {{2, 7, 8, 9}, {2}, {2, 5, 5, 4, 4, 10, 11}};
    const auto log_probabilities = [&](const Ids& ids) {
      const auto layout = SequenceLayout::packed({static_cast<index_t>(ids.size())});
      return model
          .log_probabilities(
              ctx, model.decode(ctx, Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids),
                                layout))
          .value();
    };
    const auto one = generate(model, ctx, prompts, {.beam_size = 1, .max_length = 9});
    const auto found = generate(model, ctx, prompts,
                                {.beam_size = 4, .max_length = 9, .length_penalty = 0, .num_hypotheses = 2});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Ids expected = greedy(
          [&](const Ids& ids) {
            Ids all = prompts[i];
            all.insert(all.end(), ids.begin(), ids.end());
            const auto p = log_probabilities(all);
            return std::vector<double>(p.data() + p.numel() - 19, p.data() + p.numel());
          },
          9);
      CHECK(one[i][0].ids == expected);
      for (const Hypothesis& h : found[i]) {
        Ids all = prompts[i];
        all.insert(all.end(), h.ids.begin(), h.ids.end());
        const auto p = log_probabilities(all);
        double sum = h.finished ? p.at({p.dim(0) - 1, 3}) : 0;
        for (std::size_t t = 0; t < h.ids.size(); ++t)
          sum += p.at({static_cast<index_t>(prompts[i].size() + t) - 1, h.ids[t]});
        CHECK(h.log_probability == doctest::Approx(sum).epsilon(1e-10));
      }
    }
  }
}

TEST_CASE(
    "a model with two encoders is searched and sampled: as without a cache, and either source matters") {
  RandomGenerator rng(4);
  const TwoSources model(rng);
  const auto ctx = Context<double>::inference();
  const std::vector<TwoSources::Input> inputs = {
      {{5, 6, 3}, {7, 3}}, {{5, 6, 3}, {9, 10, 3}}, {{11, 3}, {7, 3}}};
  const auto found = generate(model, ctx, inputs, {.beam_size = 3, .max_length = 8});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Hypothesis& h = found[i][0];
    Ids target = {2};
    target.insert(target.end(), h.ids.begin(), h.ids.end());
    const auto n = static_cast<index_t>(target.size());
    const std::span<const TwoSources::Input> one(&inputs[i], 1);
    SequencePass<double> pass(SequenceLayout::packed({n}), AttentionMask::causal(),
                              {model.encode(ctx, model.first, one, &TwoSources::Input::first),
                               model.encode(ctx, model.second, one, &TwoSources::Input::second)});
    const auto decoded = model.decode(ctx, Tensor<std::int32_t>::from(Shape{n}, target), pass);
    const auto p = log_softmax(model.logits(ctx, decoded)).value();
    double sum = h.finished ? p.at({n - 1, 3}) : 0;
    for (index_t t = 1; t < n; ++t) sum += p.at({t - 1, target[static_cast<std::size_t>(t)]});
    CHECK(h.log_probability == doctest::Approx(sum).epsilon(1e-10));
  }
  CHECK(found[0][0].log_probability != found[1][0].log_probability);
  CHECK(found[0][0].log_probability != found[2][0].log_probability);
  const auto drawn = draw(model, ctx, inputs, {.sampling = Sampling{.temperature = 0}, .max_length = 8});
  const auto greedy_beam = generate(model, ctx, inputs, {.beam_size = 1, .max_length = 8});
  for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(drawn[i].ids == greedy_beam[i][0].ids);
  CHECK(contains(
      message_of<ValueError>([&] { (void)generate(model, ctx, inputs, {.attention = true}); }),
      "there is no function attention_maps(model, ctx, input, target, begin_id, prefix) for this model"));
}

TEST_CASE("a derived model's own encode and readout are what search and sampling use") {
  struct Louder : Seq2SeqTransformer<double> {
    using Seq2SeqTransformer<double>::Seq2SeqTransformer;
    Var<double> readout(const Context<double>&, const Var<double>& decoded) const override {
      return multiply(decoded, -1.0);
    }
  };
  RandomGenerator rng(1), same(1);
  const Seq2SeqOptions options{.source_vocab_size = 23,
                               .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                               .encoder = {.num_layers = 1},
                               .decoder = {.num_layers = 1}};
  const Louder louder(options, rng);
  const Seq2SeqTransformer<double> plain(options, same);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 3}, {7, 8, 9, 3}};
  const auto a = generate(louder, ctx, sources, {.max_length = 6}),
             b = generate(plain, ctx, sources, {.max_length = 6});
  CHECK(a[0][0].log_probability != b[0][0].log_probability);
  CHECK(draw(louder, ctx, sources, {.sampling = Sampling{.temperature = 0}, .max_length = 6})[0].ids !=
        draw(plain, ctx, sources, {.sampling = Sampling{.temperature = 0}, .max_length = 6})[0].ids);
}

namespace {

// A table whose logits have the wrong shape, or whose state has the wrong number of sequences.
struct WrongShape : TableModel<double> {
  using TableModel<double>::TableModel;
  index_t vocabulary_size() const { return vocabulary + 1; }
};
struct WrongState : TableModel<double> {
  using TableModel<double>::TableModel;
  State begin(const Context<double>& ctx, std::span<const Input>) const {
    const std::vector<Ids> none;
    return TableModel<double>::begin(ctx, none);
  }
};

}  // namespace

TEST_CASE("a model that returns wrong shapes or sizes is refused") {
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> inputs = {{4}, {5}};
  CHECK(contains(message_of<ShapeError>([&] { (void)generate(WrongShape(7, 1), ctx, inputs); }),
                 "[search] the model's logits have shape (2, 7), must be (2, 8)"));
  CHECK(contains(message_of<ValueError>([&] { (void)draw(WrongState(7, 1), ctx, inputs); }),
                 "[search] the model's begin() returned a state of 0 sequences, must be 2"));
}

TEST_CASE("logits that are not numbers are an error that says where; -infinity forbids a token") {
  const auto ctx = Context<float>::inference();
  const std::vector<Ids> inputs = {{4}, {5}, {6}};
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  TableModel<float> model(7, 1);
  for (const auto& [bad, word] : {std::pair{nan, "NaN"}, std::pair{inf, "+infinity"}}) {
    model = TableModel<float>(7, 1);
    // Only input 1 reads this row, at its first step.
    const auto row = static_cast<std::size_t>(model.row_of(2 + 3 * 5));
    model.table[row * 7 + 4] = bad;
    const std::string expected = "the model's logits are not numbers, for input 1 at step 0, " +
                                 std::string(word) + " for id 4; check that its weights are finite";
    for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
      for (const index_t beam : {1, 3}) {
        CHECK(contains(message_of<ValueError>([&] {
                         (void)generate(model, ctx, inputs,
                                        {.beam_size = beam, .max_length = 4, .rule = rule});
                       }),
                       "[search] " + expected));
      }
    }
    for (const double temperature : {0.0, 1.0}) {
      CHECK(contains(message_of<ValueError>([&] {
                       (void)draw(model, ctx, inputs,
                                  {.sampling = Sampling{.temperature = temperature}, .max_length = 4});
                     }),
                     "[search] " + expected));
    }
  }
  model = TableModel<float>(7, 1);
  for (std::size_t r = 0; r < model.table.size() / 7; ++r) model.table[r * 7 + 4] = -inf;
  for (const auto& found :
       generate(model, ctx, inputs, {.beam_size = 2, .max_length = 6, .num_hypotheses = 2})) {
    for (const Hypothesis& h : found) CHECK(std::count(h.ids.begin(), h.ids.end(), 4) == 0);
  }
  // Nothing is left: texts end where they are.
  std::fill(model.table.begin(), model.table.end(), -inf);
  CHECK(generate(model, ctx, inputs)[0][0].ids.empty());
  CHECK(draw(model, ctx, inputs)[0].ids.empty());
}

TEST_CASE("a weight that is NaN is an error of searching and sampling, whichever it is") {
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 3}, {7, 8, 9, 3}};
  RandomGenerator rng(1);
  Seq2SeqTransformer<double> model({.source_vocab_size = 23,
                                    .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                    .encoder = {.num_layers = 1},
                                    .decoder = {.num_layers = 1}},
                                   rng);
  for_each_parameter(model, [&](const std::string& name, auto& parameter) {
    const Tensor<double> saved = parameter.value().clone();
    parameter.value().fill(std::numeric_limits<double>::quiet_NaN());
    CAPTURE(name);
    CHECK(contains(message_of<ValueError>([&] { (void)generate(model, ctx, sources, {.max_length = 4}); }),
                   "the model's logits are not numbers, for input "));
    CHECK(contains(message_of<ValueError>(
                       [&] { (void)draw(model, ctx, sources, {.sampling = Sampling{}, .max_length = 4}); }),
                   "the model's logits are not numbers, for input "));
    parameter.value().copy_from(saved);
  });
  CHECK_NOTHROW((void)generate(model, ctx, sources, {.max_length = 4}));
}
