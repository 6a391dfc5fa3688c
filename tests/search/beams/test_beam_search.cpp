#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "eigenformer/core/runtime/runtime.hpp"
#include "search/search_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Scored {
  Ids ids;
  double log_probability = 0;
  double score = -std::numeric_limits<double>::infinity();
};

// As Wu et al. 2016, section 7, divide scores.
double length_penalty(index_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

// The best of all finished sentences of at most max_length tokens, end included, found by trying every one.
void exhaust(const Seq2SeqTransformer<double>& model, const Memory<double>& memory,
             const SearchOptions& options, Ids prefix, double log_probability, Scored& best) {
  const Tensor<double> p = uncached_log_probabilities(model, memory, prefix);
  const index_t vocabulary = p.dim(1), row = p.dim(0) - 1;
  const index_t length = static_cast<index_t>(prefix.size());  // begin counts for the token to come
  for (std::int32_t id = 0; id < vocabulary; ++id) {
    const double total = log_probability + p.at({row, id});
    if (id == options.end_id) {
      const double score = total / length_penalty(length, options.length_penalty);
      if (length - 1 >= options.min_length && score > best.score)
        best = {Ids(prefix.begin() + 1, prefix.end()), total, score};
    } else if (id > 2 && length < options.max_length) {
      Ids longer = prefix;
      longer.push_back(id);
      exhaust(model, memory, options, longer, total, best);
    }
  }
}

}  // namespace

TEST_CASE("a beam as wide as the tree finds what exhaustive search finds") {
  for (const double alpha : {0.0, 0.6, 1.5}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const auto model = small_model(7, false, seed);
      const std::vector<Ids> sources = {{5, 6, 7, 3}};
      const auto memory = encode(model, sources);
      const SearchOptions options{.beam_size = 64, .max_length = 4, .length_penalty = alpha};
      Scored best;
      exhaust(model, memory, options, {2}, 0, best);
      const auto found = generate(model, Context<double>::inference(), sources, options);
      REQUIRE(found.size() == 1);
      CHECK(found[0][0].ids == best.ids);
      CHECK(found[0][0].finished);
      CHECK(found[0][0].log_probability == doctest::Approx(best.log_probability).epsilon(1e-12));
      CHECK(found[0][0].score == doctest::Approx(best.score).epsilon(1e-12));
    }
  }
}

TEST_CASE("with no_repeat_ngram_size no n tokens in a row come twice, begin and prefix counted") {
  const auto model = small_model(7, false, 5);
  const std::vector<Ids> sources = {{5, 6, 3}, {4, 4, 6, 5, 3}};
  bool repeats = false;
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
    for (const index_t n : {1, 2, 3}) {
      for (const index_t beam : {1, 3}) {
        SearchOptions options{.beam_size = beam, .max_length = 12, .rule = rule};
        options.prefix_ids = {5, 5};
        options.forbidden_ids = {0, 2};
        const auto longest_repeat = [&](index_t size) {
          for (const auto& found : generate(model, Context<double>::inference(), sources, options)) {
            Ids all = {2, 5, 5};
            all.insert(all.end(), found[0].ids.begin(), found[0].ids.end());
            std::set<Ids> seen;
            for (std::size_t i = 0; i + static_cast<std::size_t>(size) <= all.size(); ++i) {
              const Ids gram(all.begin() + static_cast<std::ptrdiff_t>(i),
                             all.begin() + static_cast<std::ptrdiff_t>(i) + size);
              if (!seen.insert(gram).second && i + static_cast<std::size_t>(size) > 3) return true;
            }
          }
          return false;
        };
        repeats = repeats || longest_repeat(n);
        options.no_repeat_ngram_size = n;
        CAPTURE(n);
        CAPTURE(beam);
        CHECK_FALSE(longest_repeat(n));
      }
    }
  }
  CHECK(repeats);  // else this test shows nothing
}

TEST_CASE("a search that forbids everything ends with what it has") {
  const auto model = small_model(7, false, 5);
  const std::vector<Ids> sources = {{5, 6, 3}};
  SearchOptions options{.beam_size = 2, .max_length = 12};
  options.min_length = 12;  // no end before
  options.no_repeat_ngram_size = 1;
  const auto found = generate(model, Context<double>::inference(), sources, options);
  REQUIRE(found[0].size() == 1);
  CHECK(found[0][0].ids.size() < 7);
  CHECK_FALSE(found[0][0].finished);
  options.no_repeat_ngram_size = -1;
  CHECK_THROWS_AS((void)generate(model, Context<double>::inference(), sources, options), ValueError);
}

TEST_CASE("beam size 1 takes the best token each time") {
  const auto model = small_model(19);
  const std::vector<Ids> sources = {{5, 6, 7, 3}};
  const auto memory = encode(model, sources);
  const auto found =
      generate(model, Context<double>::inference(), sources, {.beam_size = 1, .max_length = 30});
  Ids prefix = {2};
  double total = 0;
  for (int t = 0; t < 30; ++t) {
    const auto p = uncached_log_probabilities(model, memory, prefix);
    std::int32_t best = 3;
    for (std::int32_t id = 3; id < 19; ++id) {
      if (p.at({-1, id}) > p.at({-1, best})) best = id;
    }
    total += p.at({-1, best});
    if (best == 3) break;
    prefix.push_back(best);
  }
  CHECK(found[0][0].ids == Ids(prefix.begin() + 1, prefix.end()));
  CHECK(found[0][0].log_probability == doctest::Approx(total).epsilon(1e-12));
}

TEST_CASE("a hypothesis's log-probability is that of a forced decoding") {
  const auto model = small_model(19);
  const std::vector<Ids> sources = {{5, 6, 7, 3}};
  const auto memory = encode(model, sources);
  const auto found = generate(model, Context<double>::inference(), sources,
                              {.beam_size = 5, .max_length = 9, .num_hypotheses = 5});
  REQUIRE(found[0].size() == 5);
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    const Hypothesis& h = found[0][i];
    Ids target = {2};
    target.insert(target.end(), h.ids.begin(), h.ids.end());
    const auto p = uncached_log_probabilities(model, memory, target);
    double total = h.finished ? p.at({-1, 3}) : 0;
    for (std::size_t t = 0; t < h.ids.size(); ++t) total += p.at({static_cast<index_t>(t), h.ids[t]});
    CHECK(h.log_probability == doctest::Approx(total).epsilon(1e-12));
    const auto length = static_cast<index_t>(h.ids.size()) + (h.finished ? 1 : 0);
    CHECK(h.score == doctest::Approx(total / length_penalty(length, 1.0)).epsilon(1e-12));
    for (std::size_t j = 0; j < i; ++j) CHECK(found[0][j].ids != h.ids);
  }
}

TEST_CASE("a sentence gets the same result alone, in any batch and with any number of threads") {
  const auto model = small_model(19, true);
  RandomGenerator rng(3);
  std::vector<Ids> sources;
  for (int i = 0; i < 37; ++i) {
    Ids s(static_cast<std::size_t>(rng.uniform_int(11)));
    for (auto& id : s) id = static_cast<std::int32_t>(4 + rng.uniform_int(19));
    s.push_back(3);
    sources.push_back(s);
  }
  const auto ctx = Context<double>::inference();
  const SearchOptions options{.beam_size = 3, .max_length = 13};
  const auto run = [&](const std::vector<Ids>& given, index_t batch, int threads) {
    const ThreadScope scope(threads);
    return generate(model, ctx, std::span<const Ids>(given), options, {.batch_size = batch});
  };
  const auto together = run(sources, 64, 1);
  for (const int threads : {1, 2, 3}) {
    for (const index_t batch : {1, 5}) {
      const auto apart = run(sources, batch, threads);
      for (std::size_t i = 0; i < sources.size(); ++i) {
        CHECK(apart[i][0].ids == together[i][0].ids);
        CHECK(apart[i][0].log_probability == together[i][0].log_probability);
      }
    }
  }
}

TEST_CASE("length limits hold") {
  const auto model = small_model(19);
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {9, 3}};
  const auto ctx = Context<double>::inference();
  for (const index_t beam : {1, 3}) {
    for (const auto& h :
         generate(model, ctx, sources, {.beam_size = beam, .max_length = 8, .min_length = 8})) {
      CHECK(h[0].ids.size() == 8);
      CHECK_FALSE(h[0].finished);
    }
    for (const auto& h :
         generate(model, ctx, sources, {.beam_size = beam, .max_length = 12, .min_length = 5})) {
      CHECK(h[0].ids.size() >= 5);
    }
    for (const auto& h : generate(model, ctx, sources, {.beam_size = beam, .max_length = 1})) {
      CHECK(h[0].ids.size() <= 1);
    }
  }
}

TEST_CASE("forbidden ids never come, a beam may exceed the vocabulary, and no input gives no sentence") {
  const auto model = small_model(5);
  const std::vector<Ids> sources = {{5, 6, 7, 3}};
  const auto memory = encode(model, sources);
  const auto ctx = Context<double>::inference();
  const auto found =
      generate(model, ctx, sources,
               {.beam_size = 9, .max_length = 6, .num_hypotheses = 9, .forbidden_ids = {0, 1, 2}});
  REQUIRE(!found[0].empty());
  for (const auto& h : found[0]) {
    for (const auto id : h.ids) CHECK(id == 4);
  }
  CHECK(generate(model, ctx, std::span<const Ids>(), {}).empty());
}

TEST_CASE("a larger length penalty favours longer sentences") {
  double shorter = 0, longer = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto model = small_model(7, false, seed);
    const std::vector<Ids> sources = {{5, 6, 7, 3}};
    const auto length = [&](double alpha) {
      return static_cast<double>(generate(model, Context<double>::inference(), sources,
                                          {.beam_size = 64, .max_length = 4, .length_penalty = alpha})[0][0]
                                     .ids.size());
    };
    shorter += length(0);
    longer += length(3);
  }
  CHECK(longer > shorter);
}

TEST_CASE("impossible options are refused by name") {
  const auto model = small_model(19);
  const std::vector<Ids> sources = {{5, 3}};
  const auto refuse = [&](const SearchOptions& options, const char* message) {
    CHECK_THROWS_WITH_AS((void)generate(model, Context<double>::inference(), sources, options), message,
                         ValueError);
  };
  refuse({.beam_size = 0}, "[search] beam_size is 0, must be positive");
  refuse({.max_length = -1}, "[search] max_length is -1, must be positive");
  refuse({.beam_size = 2, .num_hypotheses = 3},
         "[search] num_hypotheses is 3, must be at most beam_size, which is 2");
  refuse({.max_length = 4, .min_length = 5},
         "[search] min_length is 5, must be at most max_length, which is 4");
  refuse({.length_penalty = -1}, "[search] length_penalty is -1, must not be negative");
  refuse({.end_id = 19}, "[search] end_id is 19, must be below the vocabulary's size 19");
  CHECK_THROWS_AS(
      (void)generate(model, Context<double>::inference(), std::span<const Ids>(), {}, {.batch_size = 0}),
      ValueError);
}

TEST_CASE("a step of three layers takes memory for fewer than 50 tensors") {
  const ThreadScope scope(1);
  RandomGenerator rng(4);
  Seq2SeqTransformer<float> model({.source_vocab_size = 30,
                                   .layer = {.d_model = 16, .num_heads = 2, .dim_feedforward = 32},
                                   .encoder = {.num_layers = 3},
                                   .decoder = {.num_layers = 3}},
                                  rng);
  const std::vector<std::vector<std::int32_t>> source = {{7, 8, 9, 3}};
  const auto tensors = [&](index_t length) {
    const SearchOptions options{.beam_size = 1, .max_length = length, .min_length = length};
    const auto requests = [] {
      const PoolStatistics now = Runtime::instance().pool().statistics();
      return now.reuses + now.system_allocations;
    };
    const auto before = requests();
    REQUIRE(generate(model, Context<float>::inference(), source, options)[0][0].ids.size() ==
            static_cast<std::size_t>(length));
    return static_cast<double>(requests() - before);
  };
  CHECK((tensors(30) - tensors(10)) / 20 < 50);
}
