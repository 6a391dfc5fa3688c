#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/io/models/quantized_model.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "fixtures.hpp"
#include "search/packed_test_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

const WeightFormat small_formats[] = {WeightFormat::bf16, WeightFormat::int8};

/// A float model whose weights have many scales: one row of each matrix is zero, one tiny.
Seq2SeqTransformer<float> model_with_scales(Tying tying = Tying::none) {
  auto model = float_model(tying);
  RandomGenerator rng(5);
  for_each_parameter(model, [&](const std::string&, Parameter<float>& p) {
    if (p.shape().rank() != 2) return;
    const index_t n = p.shape()[1];
    for (index_t row = 0; row < p.shape()[0]; ++row) {
      const auto factor = static_cast<float>(0.25 + rng.uniform());
      for (index_t i = 0; i < n; ++i)
        p.value().data()[row * n + i] *= row == 1 ? 0.0F : row == 2 ? 1e-30F : factor;
    }
  });
  return model;
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.numel()) * sizeof(T)) == 0;
}

std::string load_failure(const fs::path& path, WeightFormat format) {
  auto model = float_model();
  const float before = model.projection_bias.value().at({1});
  const std::string message = message_of<IoError>([&] { load_quantized_model(path, model, format); });
  CHECK(model.projection_bias.value().at({1}) == before);
  return message;
}

/// A matrix of int8 weights as rows, whatever products its panels are of; sums are checked.
struct Int8Matrix {
  Tensor<std::int8_t> q;
  Tensor<float> scale;
};

Int8Matrix read_panels(const SafetensorsFile& file, const std::string& name, const Shape& shape) {
  Int8Matrix matrix{Tensor<std::int8_t>(shape), Tensor<float>({shape[0]})};
  index_t found = 0;
  for (const std::string& each : file.names()) {
    if (file.info(each).shape.rank() != 4) continue;
    index_t first = 0, last = shape[0];
    if (each != name) {
      if (!each.starts_with(name + "[")) continue;
      REQUIRE(std::sscanf(each.c_str() + name.size(), "[%td:%td]", &first, &last) == 2);
    }
    const auto panels = file.tensor<std::int8_t>(each);
    const auto scale = file.tensor<float>(each + "_scale");
    const auto sum = file.tensor<std::int32_t>(each + "_sum");
    REQUIRE(panels.shape() == Shape{(last - first + 31) / 32, (shape[1] + 3) / 4, 32, 4});
    REQUIRE(scale.shape() == Shape{(last - first + 31) / 32 * 32});
    for (index_t row = 0; row < scale.numel(); ++row) {
      std::int32_t expected = 0;
      for (index_t k = 0; k < (shape[1] + 3) / 4 * 4; ++k) {
        const std::int8_t q = panels.at({row / 32, k / 4, row % 32, k % 4});
        expected += 128 * q;
        if (row < last - first && k < shape[1]) {
          matrix.q.at({first + row, k}) = q;
        } else {
          CHECK(q == 0);
        }
      }
      CHECK(sum.at({row}) == expected);
      if (row < last - first) matrix.scale.at({first + row}) = scale.at({row});
    }
    found += last - first;
  }
  REQUIRE(found == shape[0]);
  return matrix;
}

TokenizerPair word_tokenizers() {
  ParallelCorpus corpus;
  corpus.source = {"a man rides a bike", "two dogs run"};
  corpus.target = {"ein mann f\xC3\xA4hrt rad", "zwei hunde rennen"};
  return train_tokenizers({.kind = "word", .joint = false}, corpus);
}

Seq2SeqTransformer<float> model_for(const TokenizerPair& tokenizers) {
  RandomGenerator rng(4);
  return Seq2SeqTransformer<float>({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                    .target_vocab_size = tokenizers.target->vocabulary_size(),
                                    .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                    .encoder = {.num_layers = 2},
                                    .decoder = {.num_layers = 1},
                                    .tying = Tying::target},
                                   rng);
}

nlohmann::json read_json(const fs::path& path) { return nlohmann::json::parse(detail::read_text_file(path)); }

}  // namespace

TEST_CASE("int8 matrices come back as int8 times scale, and quantise to the same bits again") {
  const TemporaryFolder folder;
  for (const Tying tying : {Tying::none, Tying::all}) {
    const auto saved = model_with_scales(tying);
    save_quantized_model(folder / "m", saved, WeightFormat::int8);
    auto loaded = float_model(tying);
    load_quantized_model(folder / "m", loaded, WeightFormat::int8);
    const auto file = SafetensorsFile::open(folder / "m");
    const auto expected = state_dict(saved), actual = state_dict(loaded);
    index_t tensors = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (!actual[i].alias_of.empty()) continue;
      CAPTURE(actual[i].name);
      const Tensor<float>&x = expected[i].value, &y = actual[i].value;
      if (x.rank() != 2) {
        CHECK(same_bits(x, y));
        ++tensors;
        continue;
      }
      const index_t rows = x.dim(0), n = x.dim(1);
      // Attention to a memory projects queries apart from keys and values.
      tensors += actual[i].name.ends_with("multihead_attn.in_proj_weight") ? 6 : 3;
      const auto [q, scale] = read_panels(file, actual[i].name, x.shape());
      for (index_t row = 0; row < rows; ++row) {
        const float s = scale.at({row});
        for (index_t k = 0; k < n; ++k) {
          CHECK(y.at({row, k}) == static_cast<float>(q.at({row, k})) * s);
          CHECK(std::abs(y.at({row, k}) - x.at({row, k})) <= 0.501F * s);
        }
      }
      Tensor<std::int8_t> again(q.shape());
      Tensor<float> scale_again(scale.shape());
      detail::kernels::quantize_int8(y.data(), rows, n, again.data(), scale_again.data());
      CHECK(same_bits(again, q));
      CHECK(same_bits(scale_again, scale));
    }
    // Tied matrices are stored once.
    CHECK(static_cast<index_t>(file.names().size()) == tensors);
    CHECK(file.contains("source_embedding.weight"));
    CHECK(file.contains("target_embedding.weight") == (tying == Tying::none));
  }
}

TEST_CASE("quantising what was quantised changes no bit, whatever the scale") {
  RandomGenerator rng(9);
  constexpr index_t n = 3, rows = 20000;
  std::vector<float> w(rows * n);
  for (index_t i = 0; i < rows; ++i) {
    const float size = std::ldexp(1.0F, static_cast<int>(rng.uniform_int(200)) - 115);
    for (index_t k = 0; k < n; ++k)
      w[static_cast<std::size_t>(i * n + k)] = size * static_cast<float>(rng.uniform(-1, 1));
  }
  std::vector<std::int8_t> q(w.size()), q_again(w.size());
  std::vector<float> scale(rows), scale_again(rows);
  detail::kernels::quantize_int8(w.data(), rows, n, q.data(), scale.data());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(q[i]) * scale[i / n];
  detail::kernels::quantize_int8(w.data(), rows, n, q_again.data(), scale_again.data());
  CHECK(q == q_again);
  CHECK(scale == scale_again);
  float tiny[] = {1e-40F, -1e-37F, 0.0F};
  detail::kernels::quantize_int8(tiny, 1, 3, q.data(), scale.data());
  CHECK(scale[0] == 0);
  CHECK((q[0] == 0 && q[1] == 0 && q[2] == 0));
}

TEST_CASE("products with int8 weights have the same bits before and after saving") {
  const TemporaryFolder folder;
  const auto saved = model_with_scales();
  RandomGenerator rng(11);
  for (const WeightFormat format : small_formats) {
    save_quantized_model(folder / "m", saved, format);
    auto loaded = float_model();
    load_quantized_model(folder / "m", loaded, format);
    // linear1.weight is (44, 36); three rows of input.
    Tensor<float> x({3, 36}), before({3, 44}), after({3, 44});
    rng.fill_normal(x.data(), x.numel(), 0, 1);
    const auto product = [&](const Seq2SeqTransformer<float>& model, Tensor<float>& y) {
      const Tensor<float>& w = model.transformer.encoder.layers[1].feed_forward.linear1.weight.value();
      detail::kernels::gemm_packed(
          3, x.data(), 36, detail::kernels::PackedMatrix::pack(w.data(), 44, 36, format), 0, y.data(), 44);
    };
    product(saved, before);
    product(loaded, after);
    CHECK(same_bits(before, after));
  }
}

TEST_CASE("bf16 matrices come back rounded, vectors exactly") {
  const TemporaryFolder folder;
  const auto saved = model_with_scales();
  save_quantized_model(folder / "m", saved, WeightFormat::bf16);
  auto loaded = float_model();
  load_quantized_model(folder / "m", loaded, WeightFormat::bf16);
  const auto expected = state_dict(saved), actual = state_dict(loaded);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(actual[i].name);
    const Tensor<float>& x = expected[i].value;
    CHECK(same_bits(actual[i].value, x.rank() == 2 ? x.to<bfloat16>().to<float>() : x));
  }
  CHECK(SafetensorsFile::open(folder / "m").info("source_embedding.weight").dtype == Dtype::bf16);
}

TEST_CASE("a truncated or foreign file of quantised weights is refused, and the model stays as it was") {
  const TemporaryFolder folder;
  const auto saved = model_with_scales();
  const auto refused = [&](const std::string& part, WeightFormat format = WeightFormat::int8) {
    const std::string message = load_failure(folder / "m", format);
    CHECK_MESSAGE(contains(message, part), message << " lacks: " << part);
    CHECK_MESSAGE(contains(message, "/m'"), message);
  };
  save_quantized_model(folder / "m", saved, WeightFormat::int8);
  refused("expected BF16 in a model of bf16 weights", WeightFormat::bf16);
  fs::resize_file(folder / "m", fs::file_size(folder / "m") - 5);
  refused("truncated");
  save_model(folder / "m", saved);
  refused("is F32, expected I8 in a model of int8 weights");

  // One tensor at a time is not as it should be.
  const std::string name = "encoder.layers.1.linear2.weight";  // (36, 44)
  std::string layout = "panels_32x4";
  struct Parts {
    Tensor<std::int8_t> q;
    Tensor<float> scale;
    Tensor<std::int32_t> sum;
  };
  const auto with = [&](auto change) {
    SafetensorsWriter writer;
    writer.set_metadata("int8_layout", layout);
    Parts parts;
    save_quantized_model(folder / "whole", saved, WeightFormat::int8);
    const auto file = SafetensorsFile::open(folder / "whole");
    for (const std::string& each : file.names()) {
      if (each == name) {
        parts.q = file.tensor<std::int8_t>(each).clone();
      } else if (each == name + "_scale") {
        parts.scale = file.tensor<float>(each).clone();
      } else if (each == name + "_sum") {
        parts.sum = file.tensor<std::int32_t>(each).clone();
      } else if (file.info(each).dtype == Dtype::i8) {
        writer.add(each, file.tensor<std::int8_t>(each));
      } else if (file.info(each).dtype == Dtype::i32) {
        writer.add(each, file.tensor<std::int32_t>(each));
      } else {
        writer.add(each, file.tensor<float>(each));
      }
    }
    change(writer, parts);
    writer.save(folder / "m");
  };
  const auto add = [&](SafetensorsWriter& w, const Parts& p) {
    w.add(name, p.q).add(name + "_scale", p.scale).add(name + "_sum", p.sum);
  };
  using Writer = SafetensorsWriter&;
  with([&](Writer w, const Parts& p) { add(w, p); });
  CHECK(load_failure(folder / "m", WeightFormat::int8) == "no error");
  layout = "panels_64";
  with([&](Writer w, const Parts& p) { add(w, p); });
  refused("has int8_layout 'panels_64', this version of the library reads 'panels_32x4'");
  layout = "panels_32x4";
  with([&](Writer w, const Parts& p) { w.add(name, p.q).add(name + "_sum", p.sum); });
  refused("the int8 panels '" + name + "' have no '" + name + "_scale' beside them");
  with([&](Writer w, const Parts& p) { w.add(name, p.q).add(name + "_scale", p.scale); });
  refused("have no '" + name + "_sum' beside them");
  with([&](Writer w, const Parts& p) {
    w.add(name, p.q).add(name + "_scale", p.scale.rows(0, 63)).add(name + "_sum", p.sum);
  });
  refused("must have an F32 '" + name + "_scale' of shape (64,), which is F32 of shape (63,)");
  with([&](Writer w, const Parts& p) {
    w.add(name, p.q.rows(0, 1)).add(name + "_scale", p.scale).add(name + "_sum", p.sum);
  });
  refused("must have an I8 '" + name + "' of shape (2, 11, 32, 4), which is I8 of shape (1, 11, 32, 4)");
  with([&](Writer w, const Parts& p) { w.add(name + "_scale", p.scale).add(name + "_sum", p.sum); });
  refused("the int8 panels '" + name + "' are missing");
  for (const float bad :
       {-0.5F, 0.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    with([&](Writer w, Parts& p) {
      p.scale.at({7}) = bad;
      add(w, p);
    });
    refused("row 7 ");
    refused("damaged or not written by this library");
  }
  for (const int bad : {-128, 126}) {
    with([&](Writer w, Parts& p) {
      for (index_t k = 0; k < 44; ++k) p.q.at({0, k / 4, 9, k % 4}) = static_cast<std::int8_t>(bad);
      add(w, p);
    });
    refused("'" + name + "' is damaged or not written by this library: row 9 ");
  }
  with([&](Writer w, Parts& p) {
    p.sum.at({35}) += 128;
    add(w, p);
  });
  refused("the sum of row 35 is ");
  with([&](Writer w, Parts& p) {
    p.q.at({1, 0, 3, 0}) = static_cast<std::int8_t>(p.q.at({1, 0, 3, 0}) ^ 1);
    add(w, p);
  });
  refused("row 35 ");
}

TEST_CASE("int8 weights of version 0.1, rows of a matrix, are read as before") {
  const TemporaryFolder folder;
  const auto saved = model_with_scales();
  save_quantized_model(folder / "panels", saved, WeightFormat::int8);
  SafetensorsWriter writer;
  for (const auto& entry : state_dict(saved)) {
    if (entry.value.rank() != 2) {
      writer.add(entry.name, entry.value);
      continue;
    }
    Tensor<std::int8_t> q(entry.value.shape());
    Tensor<float> scale({entry.value.dim(0)});
    detail::kernels::quantize_int8(entry.value.data(), entry.value.dim(0), entry.value.dim(1), q.data(),
                                   scale.data());
    writer.add(entry.name, q).add(entry.name + "_scale", scale);
  }
  writer.save(folder / "m");
  auto expected = float_model(), loaded = float_model();
  load_quantized_model(folder / "panels", expected, WeightFormat::int8);
  load_quantized_model(folder / "m", loaded, WeightFormat::int8);
  const auto a = state_dict(expected), b = state_dict(loaded);
  for (std::size_t i = 0; i < a.size(); ++i) CHECK_MESSAGE(same_bits(a[i].value, b[i].value), a[i].name);
  const std::string name = "encoder.layers.1.linear2.weight";
  writer = {};
  for (const auto& entry : state_dict(saved))
    if (entry.name == name) writer.add(name, Tensor<std::int8_t>::zeros(entry.value.shape()));
  writer.save(folder / "m");
  const std::string message = load_failure(folder / "m", WeightFormat::int8);
  CHECK_MESSAGE(contains(message, "the int8 tensor '" + name + "' has no '" + name + "_scale' beside it"),
                message);
}

TEST_CASE("a packed folder translates as the model does, from the mapped file, whatever the format") {
  const TemporaryFolder folder;
  const TokenizerPair tokenizers = word_tokenizers();
  for (const Tying tying : {Tying::none, Tying::target}) {
    RandomGenerator rng(4);
    const Seq2SeqTransformer<float> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                           .target_vocab_size = tokenizers.target->vocabulary_size(),
                                           .layer = {.d_model = 36, .num_heads = 3, .dim_feedforward = 44},
                                           .encoder = {.num_layers = 2},
                                           .decoder = {.num_layers = 1},
                                           .tying = tying},
                                          rng);
    const std::vector<std::vector<std::int32_t>> sources = {{4, 5, 6, 3}, {7, 4, 3}};
    for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8}) {
      CAPTURE(word_of(format));
      save_model_folder(folder / "m", model, tokenizers, {}, format);
      const PackedModel<Seq2SeqTransformer<float>> packed = load_packed_folder(folder / "m");
      CHECK(packed.loaded.description.weights == format);
      const auto plain = load_model_folder<float>(folder / "m");
      const auto ctx = Context<float>::inference().with_packed_weights(pack_weights(plain.model, format));
      const auto expected = generate(plain.model, ctx, sources, {.beam_size = 3, .max_length = 9});
      const auto actual =
          generate(packed.loaded.model, packed.context(), sources, {.beam_size = 3, .max_length = 9});
      for (std::size_t i = 0; i < sources.size(); ++i) {
        REQUIRE(actual[i].size() == expected[i].size());
        for (std::size_t j = 0; j < expected[i].size(); ++j) {
          CHECK(actual[i][j].ids == expected[i][j].ids);
          CHECK(actual[i][j].score == expected[i][j].score);
        }
      }
      CHECK(packed.weights->bytes() == pack_weights(plain.model, format)->bytes());
    }
    // The file may be replaced while it is in use: the mapping keeps the old one.
    const auto packed = load_packed_folder(folder / "m");
    const auto before = generate(packed.loaded.model, packed.context(), sources, {.max_length = 9});
    save_model_folder(folder / "m", model_for(tokenizers), tokenizers, {}, WeightFormat::int8);
    const auto after = generate(packed.loaded.model, packed.context(), sources, {.max_length = 9});
    CHECK(before[0][0].ids == after[0][0].ids);
    // It is for inference alone.
    const std::string message =
        message_of<ValueError>([&] { (void)save_model(folder / "no", packed.loaded.model); });
    CHECK_MESSAGE(contains(message, "was released"), message);
  }
}

#if defined(__linux__)
TEST_CASE("matrices of a file that were packed or converted leave the memory of the process") {
  const TemporaryFolder folder;
  const TokenizerPair tokenizers = word_tokenizers();
  RandomGenerator rng(4);
  const Seq2SeqTransformer<float> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                         .target_vocab_size = tokenizers.target->vocabulary_size(),
                                         .layer = {.d_model = 192, .num_heads = 3, .dim_feedforward = 640},
                                         .encoder = {.num_layers = 2},
                                         .decoder = {.num_layers = 1}},
                                        rng);
  const auto resident = [&](const std::filesystem::path& path) {
    std::ifstream maps("/proc/self/smaps");
    std::size_t kib = 0;
    bool ours = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find('-') < line.find(' ')) ours = line.ends_with(path.string());
      if (ours && line.starts_with("Rss:")) kib += std::stoul(line.substr(4));
    }
    return 1024 * kib;
  };
  for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16}) {
    CAPTURE(word_of(format));
    save_model_folder(folder / "m", model, tokenizers, {}, format);
    const auto path = std::filesystem::canonical(folder / "m/model.safetensors");
    const auto packed = load_packed_folder(folder / "m");
    CHECK(resident(path) < std::filesystem::file_size(path) / 8);
    const auto plain = load_model_folder<float>(folder / "m");
    const auto expected = pack_weights(plain.model, format);
    if (format == WeightFormat::float32) CHECK(resident(path) > std::filesystem::file_size(path) / 2);
    CHECK(packed.weights->bytes() == expected->bytes());
  }
}
#endif

TEST_CASE("a packed folder that is damaged is refused") {
  const TemporaryFolder folder;
  const TokenizerPair tokenizers = word_tokenizers();
  save_model_folder(folder / "m", model_for(tokenizers), tokenizers, {}, WeightFormat::int8);
  const fs::path path = folder / "m" / "model.safetensors";
  const auto file = SafetensorsFile::open(path);
  const auto refused = [&](const std::string& left_out, const std::string& part) {
    SafetensorsWriter writer;
    writer.set_metadata("int8_layout", "panels_32x4");
    for (const std::string& each : file.names()) {
      if (each == left_out) continue;
      if (file.info(each).dtype == Dtype::i8) writer.add(each, file.tensor<std::int8_t>(each));
      if (file.info(each).dtype == Dtype::i32) writer.add(each, file.tensor<std::int32_t>(each));
      if (file.info(each).dtype == Dtype::f32) writer.add(each, file.tensor<float>(each));
    }
    if (left_out.empty()) writer.add("surplus", Tensor<float>::zeros({3}));
    writer.save(path);
    const std::string message = message_of<IoError>([&] { (void)load_packed_folder(folder / "m"); });
    CHECK_MESSAGE(contains(message, part), message);
  };
  refused("encoder.norm.bias", "missing: encoder.norm.bias");
  refused("encoder.layers.0.linear1.weight_sum", "have no 'encoder.layers.0.linear1.weight_sum' beside them");
  refused("decoder.layers.0.multihead_attn.in_proj_weight[12:36]",
          "'decoder.layers.0.multihead_attn.in_proj_weight[12:36]' are missing");
  refused("", "unexpected: surplus");
}

TEST_CASE("weights that are not finite, and released ones, are not saved") {
  const TemporaryFolder folder;
  auto model = model_with_scales();
  model.transformer.encoder.layers[0].self_attn.out_proj.weight.value().at({3, 4}) =
      std::numeric_limits<float>::infinity();
  const std::string message =
      message_of<ValueError>([&] { save_quantized_model(folder / "m", model, WeightFormat::int8); });
  CHECK_MESSAGE(contains(message, "'encoder.layers.0.self_attn.out_proj.weight' cannot be int8"), message);
  auto released = float_model();
  (void)pack_weights_in_place(released);
  for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8}) {
    const std::string why =
        message_of<ValueError>([&] { save_quantized_model(folder / "m", released, format); });
    CHECK_MESSAGE(contains(why, "was released"), why);
  }
  CHECK(folder.names().empty());
}

TEST_CASE("a model folder keeps its weights' format, and another version is refused") {
  const TemporaryFolder folder;
  const TokenizerPair tokenizers = word_tokenizers();
  const auto model = model_for(tokenizers);
  save_model_folder(folder / "float", model, tokenizers, {{"epochs", 3}});
  const std::uintmax_t size = fs::file_size(folder / "float" / "model.safetensors");
  for (const WeightFormat format : small_formats) {
    const std::string name = word_of(format);
    save_model_folder(folder / name, model, tokenizers, {{"epochs", 3}}, format);
    const auto json = read_json(folder / name / "options.json");
    CHECK(json.at("weights") == name);
    const auto loaded = load_model_folder<float>(folder / name);
    CHECK(loaded.description.weights == format);
    CHECK(loaded.description.training.at("epochs") == 3);
    // Matrices of 12 columns take more as whole panels.
    if (format == WeightFormat::bf16) CHECK(fs::file_size(folder / name / "model.safetensors") < size);

    // What is loaded saves to the same bytes.
    save_model_folder(folder / "again", loaded.model, loaded.tokenizers, {{"epochs", 3}}, format);
    CHECK(detail::read_text_file(folder / "again" / "options.json") ==
          detail::read_text_file(folder / name / "options.json"));
    const auto read_bytes = [&](const std::string& which) {
      const auto file = detail::MappedFile::open(folder / which / "model.safetensors");
      const auto bytes = file->bytes();
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    CHECK(read_bytes("again") == read_bytes(name));
  }
  CHECK(load_model_folder<float>(folder / "float").description.weights == WeightFormat::float32);
}

TEST_CASE("a model folder whose options and weights do not fit, or of a newer version, is refused") {
  const TemporaryFolder folder;
  const TokenizerPair tokenizers = word_tokenizers();
  save_model_folder(folder / "m", model_for(tokenizers), tokenizers, {}, WeightFormat::int8);
  const auto refused_with = [&](const char* key, const nlohmann::json& value, const std::string& part) {
    const auto good = read_json(folder / "m" / "options.json");
    auto json = good;
    json[key] = value;
    detail::write_file(folder / "m" / "options.json", json.dump());
    const std::string message = message_of<IoError>([&] { load_model_folder<float>(folder / "m"); });
    CHECK_MESSAGE(contains(message, part), message);
    detail::write_file(folder / "m" / "options.json", good.dump());
  };
  refused_with("weights", "float32", "I8");
  refused_with("weights", "bf16", "is I8, expected BF16");
  refused_with("weights", "int4", "weights is \"int4\", expected one of float32, bf16, int8");
  refused_with("weights", 8, "expected one of float32, bf16, int8");
  const int newer = detail::model_format_version + 1;
  refused_with("format_version", newer,
               "has format_version " + std::to_string(newer) + ", this version of the library");
  CHECK_NOTHROW(load_model_folder<float>(folder / "m"));
}
