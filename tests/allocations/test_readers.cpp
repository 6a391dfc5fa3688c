#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "failing_allocations.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

// The readers of single files fail in every place in fuzz/<reader> without memory.

TEST_CASE("a model folder: without memory, loading throws, leaks nothing and works the next time") {
  const auto folder = fixtures_folder() / "translation_model";
  Runtime::instance().set_threads(1);
  const AllocationFailures seen =
      fail_each_allocation([&] { (void)load_model_folder<float>(folder); }, [] {});
  CHECK(seen.failures > 50);
  CHECK_MESSAGE(seen.survived == 0, seen.places);
  CHECK_MESSAGE(seen.leaked == 0, seen.places);
}

TEST_CASE("a model folder: without memory, saving throws, and the old model stays") {
  const auto loaded = load_model_folder<float>(fixtures_folder() / "translation_model");
  auto other = loaded;
  for (float& w : other.model.projection_bias.value().span()) w = 1;
  const TemporaryFolder folder;
  const auto model = folder / "model";
  save_model_folder(model, loaded);
  const auto bytes_of = [&] {
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(model)) {
      if (entry.is_regular_file()) all += entry.path().string() + detail::read_file(entry.path());
    }
    return all;
  };
  const std::string before = bytes_of();
  const AllocationFailures seen = fail_each_allocation(
      [&] {
        save_model_folder(model, other);
        save_model_folder(model, loaded);
      },
      [&] {
        // Between the two calls the folder may hold the other model, whole.
        if (bytes_of() == before) return;
        save_model_folder(model, loaded);
        CHECK(bytes_of() == before);
      });
  CHECK(seen.failures > 50);
  CHECK_MESSAGE(seen.survived == 0, seen.places);
  // nlohmann-json loses what an initializer list holds when the next element gets no memory, so no leaks are
  // counted.
}

TEST_CASE("token sequences: without memory, nothing is appended") {
  const std::vector<std::int32_t> few(5, 3), many(3000, 4);
  TokenSequences sequences;
  const AllocationFailures seen = fail_each_allocation(
      [&] {
        sequences = TokenSequences();
        for (const auto* ids : {&few, &many, &few}) sequences.push_back(*ids);
      },
      [&] {
        index_t tokens = 0;
        for (index_t i = 0; i < sequences.size(); ++i) tokens += sequences.length(i);
        CHECK(tokens == sequences.tokens());
      });
  CHECK(seen.failures > 3);
}
