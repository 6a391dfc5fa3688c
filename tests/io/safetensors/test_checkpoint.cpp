#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/nn/attention/attention.hpp"
#include "fixtures.hpp"
#include "test_tools.hpp"

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

struct Two {
  using value_type = float;
  Parameter<float> a{Tensor<float>::zeros({2, 3})}, b{Tensor<float>::zeros({2, 3})};
  static void fields(auto& self, auto&& visit) {
    visit("a", self.a);
    visit("b", self.b);
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
  const auto metadata = load_model(folder / "m", loaded);
  CHECK(metadata.at("note") == "hello");
  CHECK(metadata.at("format") == "pt");
  const auto expected = state_dict(saved);
  const auto actual = state_dict(loaded);
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CHECK(actual[i].name == expected[i].name);
    CHECK(std::memcmp(actual[i].value.data(), expected[i].value.data(),
                      static_cast<std::size_t>(actual[i].value.numel()) * sizeof(float)) == 0);
  }
}

TEST_CASE(
    "parameters become the mapped file, or are filled where they are; either way no module shares with "
    "another") {
  const TemporaryFolder folder;
  save_model(folder / "m", Model<float>(0.5F));
  const auto file = SafetensorsFile::open(folder / "m");
  Model<float> mapped(3.0F), other(4.0F), copied(5.0F);
  const float* own = mapped.layers[0].weight.value().data();
  const float* kept = copied.layers[0].weight.value().data();
  const auto id = mapped.layers[0].weight.id();
  load_state_dict(mapped, file);
  load_state_dict(other, file);
  load_state_dict(copied, file, {.map = false});
  CHECK(mapped.layers[0].weight.value().data() != own);
  CHECK(mapped.layers[0].weight.id() == id);
  CHECK(copied.layers[0].weight.value().data() == kept);
  mapped.layers[0].weight.value().fill(9.0F);
  for (auto* model : {&other, &copied}) CHECK(model->layers[0].weight.value().at({1, 2}) == 0.5F);
  CHECK(file.tensor<float>("layers.0.weight").at({1, 2}) == 0.5F);

  // Another element type is converted into the memory that is there.
  Model<double> wide(7.0);
  const double* before = wide.layers[1].weight.value().data();
  load_state_dict(wide, file);
  CHECK(wide.layers[1].weight.value().data() == before);
  CHECK(wide.layers[1].weight.value().at({4, 6}) == 10.5);
}

TEST_CASE("reading a file into a tensor between forward and backward is an error") {
  const TemporaryFolder folder;
  save_model(folder / "m", Model<float>(0.1F));
  auto x = Tensor<float>::full({2, 3}, 1);
  Tape<float> tape;
  const auto w = tape.variable(x);
  const auto y = sum(multiply(w, w));
  SafetensorsFile::open(folder / "m").read_into("layers.0.weight", x);
  CHECK_THROWS_AS(tape.backward(y), ValueError);
}

TEST_CASE("names are changed on the way, tensors left out, and gaps reported where that is asked for") {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, Tensor<float>>> tensors;
  for (const auto& entry : state_dict(Model<float>(0.5F))) {
    if (entry.name != "tied") tensors.emplace_back("model." + entry.name, entry.value);
  }
  tensors.emplace_back("head.weight", Tensor<float>::ones({2}));
  save_safetensors(folder / "m", tensors);
  const auto file = SafetensorsFile::open(folder / "m");
  const auto rename = [](const std::string& name) {
    return name.starts_with("model.") ? name.substr(6) : "";
  };
  Model<float> model(3.0F);
  const auto none = load_state_dict(model, file, {.rename = rename});
  CHECK(none.missing.empty());
  CHECK(none.unexpected.empty());
  CHECK(model.layers[0].weight.value().at({1, 2}) == 0.5F);

  Model<float> part(3.0F);
  const auto layer_one = [](const std::string& name) {
    return name.starts_with("model.layers.1.") ? name.substr(6) : name;
  };
  const auto report = load_state_dict(part, file, {.strict = false, .rename = layer_one});
  CHECK(report.missing == std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.0.scale"});
  CHECK(report.unexpected == std::vector<std::string>{"head.weight", "model.layers.0.bias",
                                                      "model.layers.0.scale", "model.layers.0.weight"});
  CHECK(part.layers[0].weight.value().at({0, 0}) == 3.0F);
  CHECK(part.layers[1].weight.value().at({0, 0}) == 10.5F);

  const auto all_alike = [](const std::string&) { return std::string("layers.0.bias"); };
  CHECK_THROWS_WITH_AS(
      load_state_dict(part, file, {.strict = false, .rename = all_alike}),
      doctest::Contains("given twice: layers.0.bias (by head.weight and model.layers.0.bias)"), IoError);
}

TEST_CASE("a tensor stored once loads into two parameters, and integers are no weights") {
  const TemporaryFolder folder;
  SafetensorsWriter writer;
  const auto shared = Tensor<float>::full({2, 3}, 1.5F);
  writer.add("weight", shared)
      .add("bias", Tensor<std::int32_t>::zeros({2}))
      .add("scale", Tensor<float>::ones({2}));
  writer.save(folder / "m");
  Dense<float> dense(2, 3, 0.0F);
  CHECK_THROWS_WITH_AS(load_model(folder / "m", dense),
                       doctest::Contains("wrong type: bias is I32, must be floating-point."), IoError);
  CHECK(dense.weight.value().at({0, 0}) == 0.0F);

  Two two;
  SafetensorsWriter().add("a", shared).add("b", shared).save(folder / "two");
  load_model(folder / "two", two);
  CHECK(two.a.value().at({1, 2}) == 1.5F);
  CHECK(two.b.value().at({1, 2}) == 1.5F);
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

TEST_CASE("different tensors under the names of one tied parameter are refused") {
  const TemporaryFolder folder;
  Model<float> model(7.0F);
  std::vector<std::pair<std::string, Tensor<float>>> tensors;
  for (const auto& entry : state_dict(Model<float>(0.5F))) tensors.emplace_back(entry.name, entry.value);
  REQUIRE(tensors.back().first == "tied");
  tensors.back().second = tensors.back().second.clone();
  save_safetensors(folder / "equal", tensors);
  load_model(folder / "equal", model);
  CHECK(model.layers[1].weight.value().at({4, 6}) == 10.5F);

  const std::string expected =
      "tied in the module, but given with different values: layers.1.weight and tied.";
  const auto refused = [&](const Tensor<float>& other) {
    tensors.back().second = other;
    save_safetensors(folder / "different", tensors);
    for (const bool strict : {true, false}) {
      CAPTURE(strict);
      Model<float> untouched(7.0F);
      CHECK_THROWS_WITH_AS(load_model(folder / "different", untouched, {.strict = strict}),
                           doctest::Contains(expected.c_str()), IoError);
      CHECK(untouched.layers[0].weight.value().at({0, 0}) == 7.0F);
      CHECK(untouched.layers[1].weight.value().at({0, 0}) == 17.0F);
    }
    std::vector<StateEntry<float>> entries;
    for (const auto& [name, value] : tensors) entries.push_back({name, value, {}});
    CHECK_THROWS_WITH_AS(load_state_dict(model, entries), doctest::Contains(expected.c_str()), ValueError);
  };
  Tensor<float> other = tensors.back().second.clone();
  other.at({4, 6}) = 1;
  refused(other);
  refused(Tensor<float>::ones({7, 5}));
  // Skipping one of the names is how the other is chosen.
  const auto rename = [](const std::string& name) { return name == "tied" ? std::string() : name; };
  load_model(folder / "different", model, {.rename = rename});
  CHECK(model.layers[1].weight.value().at({4, 6}) == 10.5F);
}

TEST_CASE("all mismatches are reported together, and nothing is loaded") {
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
  detail::write_file(folder / "m", "just text, and long enough for a header");
  CHECK(contains(load_failure(folder / "m", model), "not a safetensors file"));
  save_model(folder / "m", Model<float>(0.0F));
  std::filesystem::resize_file(folder / "m", std::filesystem::file_size(folder / "m") - 4);
  CHECK(contains(load_failure(folder / "m", model), "truncated"));
  CHECK(model.layers[0].weight.value().at({0, 0}) == 7.0F);
}

TEST_CASE("the checksum of a state depends on every bit and on the number of bytes") {
  for (const std::size_t size : {1, 7, 8, 9, 33, 70}) {
    std::vector<unsigned char> bytes(size + 1, 0x5A);
    const std::uint64_t sum = detail::bytes_checksum(3, bytes.data(), size);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const auto flip = static_cast<unsigned char>(1U << bit % 8);
      bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ flip);
      CHECK(detail::bytes_checksum(3, bytes.data(), size) != sum);
      bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ flip);
    }
    CHECK(detail::bytes_checksum(3, bytes.data(), size) == sum);
    CHECK(detail::bytes_checksum(3, bytes.data(), size + 1) != sum);
    CHECK(detail::bytes_checksum(4, bytes.data(), size) != sum);
  }
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

namespace {

// The state dict of an attention with separate queries, keys and values under other names, as other libraries
// save it.
std::vector<StateEntry<float>> separate_projections(const MultiHeadAttention<float>& attention,
                                                    index_t queries, index_t keys) {
  std::vector<StateEntry<float>> entries;
  for (const auto& e : state_dict(attention)) {
    if (!e.name.starts_with("in_proj_")) {
      entries.push_back(e);
      continue;
    }
    const std::string kind = e.name.substr(8);
    entries.push_back({"q_proj." + kind, e.value.rows(0, queries).clone(), {}});
    entries.push_back({"k_proj." + kind, e.value.rows(queries, keys).clone(), {}});
    entries.push_back({"v_proj." + kind, e.value.rows(queries + keys, keys).clone(), {}});
  }
  return entries;
}

}  // namespace

TEST_CASE("separate queries, keys and values load into the rows of the fused projection") {
  const TemporaryFolder folder;
  for (const index_t key_heads : {3, 1}) {
    CAPTURE(key_heads);
    const index_t queries = 12, keys = 4 * key_heads;
    const MultiHeadAttentionOptions options{
        .d_model = 12, .num_heads = 3, .attention = {.num_key_value_heads = key_heads}};
    RandomGenerator rng(1);
    MultiHeadAttention<float> from(options, rng);
    for (auto& entry : state_dict(from)) rng.fill_normal(entry.value.data(), entry.value.numel(), 0, 1);
    auto entries = separate_projections(from, queries, keys);
    CHECK(entries.size() == 8);
    const LoadOptions load{.rename = [&](const std::string& name) {
      return packed_projection(name.starts_with("attn.") ? name.substr(5) : name, queries, keys);
    }};
    const auto same = [&](const MultiHeadAttention<float>& to) {
      const auto ours = state_dict(to), theirs = state_dict(from);
      for (std::size_t i = 0; i < ours.size(); ++i) {
        CHECK(std::memcmp(ours[i].value.data(), theirs[i].value.data(),
                          sizeof(float) * static_cast<std::size_t>(ours[i].value.numel())) == 0);
      }
    };
    MultiHeadAttention<float> to(options, rng);
    const LoadReport report = load_state_dict(to, entries, load);
    CHECK(report.missing.empty());
    CHECK(report.unexpected.empty());
    same(to);
    // From a file, also one of another type.
    SafetensorsWriter writer, doubles;
    for (const auto& e : entries) {
      writer.add("attn." + e.name, e.value);
      doubles.add("attn." + e.name, e.value.to<double>());
    }
    writer.save(folder.path() / "separate.safetensors");
    doubles.save(folder.path() / "doubles.safetensors");
    for (const char* name : {"separate.safetensors", "doubles.safetensors"}) {
      MultiHeadAttention<float> loaded(options, rng);
      load_model(folder.path() / name, loaded, load);
      same(loaded);
    }
    const auto before = state_dict(to)[0].value.clone();
    const auto refusal = [&](std::size_t changed, const Shape& shape) {
      auto wrong = entries;
      wrong[changed].value = Tensor<float>::zeros(shape);
      return eigenformer::testing::message_of<ValueError>([&] { (void)load_state_dict(to, wrong, load); });
    };
    CHECK(contains(refusal(0, {11, 12}), "wrong shape: in_proj_weight[0:12] is (11, 12), must be (12, 12)"));
    CHECK(contains(refusal(1, {keys, 5}), "in_proj_weight[12:" + std::to_string(12 + keys) + "] is (" +
                                              std::to_string(keys) + ", 5)"));
    CHECK(contains(refusal(3, {12, 1}), "wrong shape: in_proj_bias[0:12] is (12, 1), must be (12,)"));
    entries.erase(entries.begin() + 1);
    CHECK(contains(
        eigenformer::testing::message_of<ValueError>([&] { (void)load_state_dict(to, entries, load); }),
        "missing: in_proj_weight[12:" + std::to_string(12 + keys) + "]"));
    CHECK(std::memcmp(before.data(), state_dict(to)[0].value.data(), sizeof(float) * 12) == 0);
  }
}

TEST_CASE("rows that overlap or lie outside are refused, and other names are left alone") {
  Dense<float> layer(6, 2, 1);
  const auto refusal = [&](const char* first, const char* second) {
    const std::vector<StateEntry<float>> entries = {{"a", Tensor<float>::zeros({3, 2}), {}},
                                                    {"b", Tensor<float>::zeros({3, 2}), {}}};
    const LoadOptions load{.strict = false, .rename = [&](const std::string& name) {
                             return std::string(name == "a" ? first : second);
                           }};
    return eigenformer::testing::message_of<ValueError>([&] { (void)load_state_dict(layer, entries, load); });
  };
  CHECK(refusal("weight[0:3]", "weight[3:6]") == "no error");
  CHECK(refusal("weight[0:3]", "weight[2:5]") ==
        "[load_state_dict] wrong rows: weight[2:5] overlaps other rows that are given.");
  CHECK(refusal("weight[0:3]", "weight[4:7]") ==
        "[load_state_dict] wrong rows: weight[4:7] is outside of shape (6, 2).");
  CHECK(packed_projection("encoder.layers.0.self_attn.v_proj.bias", 12, 4) ==
        "encoder.layers.0.self_attn.in_proj_bias[16:20]");
  CHECK(packed_projection("k_proj.weight", 12) == "in_proj_weight[12:24]");
  for (const char* name :
       {"out_proj.weight", "qk_proj.weight", "q_proj_weight", "_proj.weight", "norm.weight"})
    CHECK(packed_projection(name, 12) == name);
}

TEST_CASE("a module without parameters, as one that was moved from, is not saved") {
  const TemporaryFolder folder;
  RandomGenerator rng(1);
  MultiHeadAttention<float> attention({.d_model = 12, .num_heads = 3}, rng);
  const auto taken = std::move(attention);
  CHECK(eigenformer::testing::message_of<ValueError>([&] {
          save_model(folder.path() / "m.safetensors", attention);
        }) == "[save_model] the module has no parameters to save; it may have been moved from");
  CHECK_FALSE(std::filesystem::exists(folder.path() / "m.safetensors"));
}
