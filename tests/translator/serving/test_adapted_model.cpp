#include "translator/serving/adapted_model.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "folders.hpp"
#include "nn/seq2seq_test_tools.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

auto logits_of(const Seq2SeqTransformer<float>& model,
               const Context<float>& ctx = Context<float>::inference()) {
  const TokenBatch batch;
  return values(model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value());
}

}  // namespace

TEST_CASE("a packed model is loaded with several adapters, one of which a context chooses") {
  const TemporaryFolder out;
  const fs::path base = out.path() / "base";
  auto loaded = import_checkpoint<float>(fixtures_folder() / "checkpoints" / "hf_marian");
  save_model_folder(base, loaded);
  const auto without = logits_of(loaded.model);
  std::map<std::string, fs::path> places;
  for (const std::string name : {"formal", "legal"}) {
    RandomGenerator rng(name.size());
    add_lora(loaded.model, {.rank = 2, .alpha = 3, .targets = "*"}, rng);
    for (const auto& p : lora_parameters(loaded.model))
      rng.fill_normal(p->value.data(), p->value.numel(), 0, 0.3);
    places[name] = out.path() / name;
    save_adapter(places[name], loaded.model, {.base = base.string()});
    (void)remove_lora(loaded.model);
  }
  const AdaptedModel adapted = load_adapted_folder(base, places);
  const auto& model = adapted.packed.loaded.model;
  const auto near = [](const auto& a, const auto& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
    return a.size() == b.size() && most < 1e-3;
  };
  CHECK(near(logits_of(model, adapted.packed.context()), without));
  for (const std::string name : {"formal", "legal"}) {
    CAPTURE(name);
    const auto expected = logits_of(load_merged_model(base, places.at(name)).model);
    CHECK(near(logits_of(model, adapted.context(name)), expected));
    CHECK_FALSE(near(expected, without));
  }
  CHECK(message_of<ValueError>([&] { (void)adapted.context("new"); }) ==
        "[adapter] the adapter is 'new', expected one of formal, legal");
  save_model_folder(out.path() / "int8", loaded, WeightFormat::int8);
  CHECK(contains(message_of<IoError>([&] { (void)load_adapted_folder(out.path() / "int8", places); }),
                 "has int8 weights, which no adapter can change"));
}
