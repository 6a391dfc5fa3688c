#include <doctest/doctest.h>

#include <cmath>

#include "search/search_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("coverage_log: sums over the rows of a head, means over the heads") {
  AttentionMaps maps;
  maps.memory.push_back(
      Tensor<float>::from({2, 3, 2}, {0.25F, 0, 0.25F, 0.5F, 0.125F, 0.25F, 0.25F, 0.5F, 0, 0.25F, 0.5F, 0}));
  CHECK(detail::coverage_log(maps, true) == doctest::Approx(std::log(0.6875) + std::log(0.75)));
  CHECK(detail::coverage_log(maps, false) == doctest::Approx(std::log(0.375) + std::log(0.625)));
}

TEST_CASE("generate: hypotheses come with the attention weights of every layer and head when asked to") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 9, 3}};
  SearchOptions options{.beam_size = 3, .max_length = 6, .num_hypotheses = 2};
  for (const auto& hypotheses : generate(model, ctx, std::span<const Ids>(sources), options)) {
    for (const Hypothesis& h : hypotheses) CHECK(h.attention == nullptr);
  }
  options.attention = true;
  const auto found = generate(model, ctx, std::span<const Ids>(sources), options);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    REQUIRE(found[s].size() == 2);
    for (const Hypothesis& h : found[s]) {
      REQUIRE(h.attention != nullptr);
      const AttentionMaps& maps = *h.attention;
      const auto source = static_cast<index_t>(sources[s].size()),
                 target = static_cast<index_t>(h.ids.size()) + 1;
      CHECK(maps.source.size() == 2);
      CHECK(maps.source[0].shape() == Shape{3, source, source});
      CHECK(maps.target[1].shape() == Shape{3, target, target});
      CHECK(maps.memory[1].shape() == Shape{3, target, source});
      // Step by step, the same rows.
      DecoderState<double> decoder = model.begin(ctx, encode(model, {sources[s]}));
      for (index_t t = 0; t < target; ++t) {
        DecoderMaps<double> step;
        (void)decoder.step(id_tensor({t == 0 ? options.begin_id : h.ids[static_cast<std::size_t>(t - 1)]}),
                           &step);
        for (index_t head = 0; head < 3; ++head) {
          for (index_t j = 0; j < source; ++j)
            CHECK(std::abs(step.memory[1].value().at({0, head, 0, j}) -
                           static_cast<double>(maps.memory[1].at({head, t, j}))) < 1e-6);
          for (index_t j = 0; j <= t; ++j)
            CHECK(std::abs(step.target[0].value().at({0, head, 0, j}) -
                           static_cast<double>(maps.target[0].at({head, t, j}))) < 1e-6);
        }
      }
    }
  }
}
