#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/io/checkpoint.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using eigenformer::testing::TemporaryFolder;

namespace {

template <class T>
struct Dense {
  using value_type = T;
  Parameter<T> weight;
  Parameter<T> bias;
  Buffer<T> scale;

  Dense(index_t out, index_t in, T first)
      : weight(Tensor<T>::full({out, in}, first)), bias(Tensor<T>::full({out}, first + T(1))) {
    scale.value = Tensor<T>::full({out}, first + T(2));
    scale.persistent = true;
  }

  static void fields(auto& self, auto&& visit) {
    visit("weight", self.weight);
    visit("bias", self.bias);
    visit("scale", self.scale);
  }
};

/// Two layers, the second's weight listed again under "tied".
template <class T>
struct Model {
  using value_type = T;
  std::vector<Dense<T>> layers;

  explicit Model(T first) {
    layers.emplace_back(2, 3, first);
    layers.emplace_back(5, 7, first + T(10));
  }

  static void fields(auto& self, auto&& visit) {
    visit("layers", self.layers);
    visit("tied", self.layers[1].weight);
  }
};

/// The message of the IoError that loading throws.
template <class M>
std::string load_failure(const std::filesystem::path& path, M& model) {
  try {
    load_model(path, model);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a model comes back with the same bits, tied tensors stored once") {
  const TemporaryFolder folder;
  Model<float> saved(0.1F);
  saved.layers[0].weight.value().at({1, 2}) = std::numeric_limits<float>::denorm_min();
  save_model(folder / "m", saved, {{"note", "hello"}});
  const auto file = SafetensorsFile::open(folder / "m");
  CHECK(file.names() == std::vector<std::string>{"layers.0.bias", "layers.0.scale", "layers.0.weight",
                                                 "layers.1.bias", "layers.1.scale", "layers.1.weight"});
  Model<float> loaded(3.0F);
  const float* storage = loaded.layers[0].weight.value().data();
  const auto metadata = load_model(folder / "m", loaded);
  CHECK(metadata.at("note") == "hello");
  CHECK(metadata.at("format") == "pt");
  CHECK(loaded.layers[0].weight.value().data() == storage);
  const auto expected = state_dict(saved);
  const auto actual = state_dict(loaded);
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CHECK(actual[i].name == expected[i].name);
    CHECK(std::memcmp(actual[i].value.data(), expected[i].value.data(),
                      static_cast<std::size_t>(actual[i].value.numel()) * sizeof(float)) == 0);
  }
}

TEST_CASE("a tied parameter loads from either of its names, and other float types convert") {
  const TemporaryFolder folder;
  for (const char* name : {"layers.1.weight", "tied"}) {
    CAPTURE(name);
    std::vector<std::pair<std::string, Tensor<double>>> tensors;
    for (const auto& entry : state_dict(Model<double>(0.5))) {
      if (entry.name != "layers.1.weight" && entry.name != "tied")
        tensors.emplace_back(entry.name, entry.value);
    }
    tensors.emplace_back(name, Tensor<double>::full({5, 7}, 42.5));
    save_safetensors(folder / "m", tensors);
    Model<float> loaded(0.0F);
    load_model(folder / "m", loaded);
    CHECK(loaded.layers[1].weight.value().at({4, 6}) == 42.5F);
    CHECK(loaded.layers[0].bias.value().at({1}) == 1.5F);
  }
}

TEST_CASE("all that does not fit is told at once, and nothing is loaded") {
  const TemporaryFolder folder;
  save_safetensors<float>(folder / "m", {{"layers.0.weight", Tensor<float>::ones({3, 2})},
                                         {"layers.0.bias", Tensor<float>::ones({2})},
                                         {"layers.1.weight", Tensor<float>::ones({7, 5})},
                                         {"layers.1.scale", Tensor<float>::ones({5})},
                                         {"layers.2.bias", Tensor<float>::ones({2})},
                                         {"extra", Tensor<float>::ones({2})}});
  Model<float> model(7.0F);
  const std::string message = load_failure(folder / "m", model);
  for (const char* part :
       {"/m'", "missing: layers.0.scale, layers.1.bias", "unexpected: extra, layers.2.bias",
        "layers.0.weight is (3, 2), must be (2, 3)", "layers.1.weight is (7, 5), must be (5, 7)"}) {
    CHECK_MESSAGE(contains(message, part), message << " lacks: " << part);
  }
  CHECK(model.layers[0].bias.value().at({0}) == 8.0F);
}

TEST_CASE("a missing, foreign or truncated model file leaves the model as it was") {
  const TemporaryFolder folder;
  Model<float> model(7.0F);
  CHECK_FALSE(load_failure(folder / "none", model).empty());
  write_file(folder / "m", "just text, and long enough for a header");
  CHECK(contains(load_failure(folder / "m", model), "not a safetensors file"));
  save_model(folder / "m", Model<float>(0.0F));
  std::filesystem::resize_file(folder / "m", std::filesystem::file_size(folder / "m") - 4);
  CHECK(contains(load_failure(folder / "m", model), "truncated"));
  CHECK(model.layers[0].weight.value().at({0, 0}) == 7.0F);
}

TEST_CASE("a training state comes back exactly") {
  const TemporaryFolder folder;
  RandomGenerator rng(std::numeric_limits<std::uint64_t>::max() - 5);
  (void)rng.normal();
  TrainingState<double> saved;
  saved.tensors.emplace_back("adam.m.w", Tensor<double>::full({2, 3}, 0.1));
  saved.tensors.emplace_back("adam.v.w", Tensor<double>::full({2, 3}, 1e-300));
  saved.values["step"] = std::int64_t{1} << 60;
  saved.values["best_loss"] = 0.1 + 0.2;
  saved.values["rng"] = rng.state();
  save_training_state(folder / "t", saved);
  const auto loaded = load_training_state<double>(folder / "t");
  CHECK(loaded.values == saved.values);
  CHECK(loaded.values.at("best_loss").get<double>() == 0.1 + 0.2);
  CHECK(loaded.values.at("rng").get<RandomGenerator::State>() == rng.state());
  REQUIRE(loaded.tensors.size() == 2);
  CHECK(loaded.tensors[0].first == "adam.m.w");
  CHECK(loaded.tensors[1].second.at({1, 2}) == 1e-300);
  save_model(folder / "m", Model<float>(0.0F));
  CHECK_THROWS_AS(load_training_state<float>(folder / "m"), IoError);
  CHECK_THROWS_AS(nlohmann::json::object().get<RandomGenerator::State>(), IoError);
}
