#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "fixtures.hpp"
#include "folders.hpp"

namespace eigenformer::testing {

/// What another library made of one of the folders in tests/fixtures/checkpoints;
/// tests/fixtures/scripts/checkpoints_*.py tell what the names mean.
struct CheckpointReference {
  explicit CheckpointReference(const std::string& name)
      : folder(fixtures_folder() / "checkpoints" / name),
        json(nlohmann::json::parse(detail::read_text_file(folder / "reference.json"))),
        tensors(SafetensorsFile::open(folder / "reference.safetensors")) {}

  std::filesystem::path folder;
  nlohmann::json json;
  SafetensorsFile tensors;
};

using Ids = std::vector<std::int32_t>;

/// max |actual - expected| / max |expected| over the logits of a sentence.
template <class T>
double logits_error(const Tensor<T>& actual, const Tensor<T>& expected) {
  REQUIRE(actual.shape() == expected.shape());
  double worst = 0, size = 0;
  for (index_t i = 0; i < actual.numel(); ++i) {
    const double e = static_cast<double>(expected.data()[i]), a = static_cast<double>(actual.data()[i]);
    if (!(std::abs(e) < 1e30)) continue;  // what the other library forbids
    worst = std::max(worst, std::abs(a - e));
    size = std::max(size, std::abs(e));
    if (!std::isfinite(a)) return std::numeric_limits<double>::infinity();
  }
  return worst / size;
}

/// The logits for target inputs, each sentence in one batch with the others: rows of sentence i are a tensor
/// (T_i, V).
template <class T>
std::vector<Tensor<T>> batch_logits(const Seq2SeqTransformer<T>& model, const std::vector<Ids>& sources,
                                    const std::vector<Ids>& targets) {
  const auto pack = [](const std::vector<Ids>& sentences, std::vector<index_t>& lengths) {
    Ids all;
    for (const Ids& s : sentences) {
      all.insert(all.end(), s.begin(), s.end());
      lengths.push_back(static_cast<index_t>(s.size()));
    }
    return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(all.size())}, all);
  };
  std::vector<index_t> source_lengths, target_lengths;
  const auto source = pack(sources, source_lengths), target = pack(targets, target_lengths);
  const Tensor<T> logits = model(Context<T>::inference(), source, SequenceLayout::packed(source_lengths),
                                 target, SequenceLayout::packed(target_lengths))
                               .value();
  std::vector<Tensor<T>> rows;
  index_t at = 0;
  for (const index_t n : target_lengths) {
    rows.push_back(logits.rows(at, n).clone());
    at += n;
  }
  return rows;
}

/// CHECKs each beam search of a reference: ids of every hypothesis, and scores.
template <class T>
void check_beams(const TranslationModel<T>& model, const CheckpointReference& reference,
                 const std::vector<Ids>& sources) {
  for (const nlohmann::json& beam : reference.json.at("beams")) {
    SearchOptions options = search_options(model.description.text);
    options.beam_size = beam.at("beam_size");
    options.num_hypotheses = options.beam_size;
    options.length_penalty = beam.at("length_penalty");
    options.max_length = beam.at("max_length");
    options.early_stopping = beam.value("early_stopping", false);
    CAPTURE(options.beam_size);
    CAPTURE(options.length_penalty);
    options.no_repeat_ngram_size = beam.value("no_repeat_ngram_size", 0);
    CAPTURE(options.early_stopping);
    CAPTURE(options.no_repeat_ngram_size);
    const bool with_scores = !beam.at("scores").is_null();  // theirs has none of greedy search
    const auto found = generate(model.model, Context<T>::inference(), std::span<const Ids>(sources), options);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      CAPTURE(i);
      const auto expected = beam.at("ids").at(i).get<std::vector<Ids>>();
      REQUIRE(found[i].size() == expected.size());
      for (std::size_t h = 0; h < expected.size(); ++h) {
        CAPTURE(h);
        CHECK(found[i][h].ids == expected[h]);
        if (with_scores) {
          CHECK(found[i][h].score ==
                doctest::Approx(beam.at("scores").at(i).at(h).get<double>()).epsilon(1e-4));
        }
      }
    }
  }
}

/// Greedy search with a model's conventions.
template <class T>
std::vector<Ids> greedy(const TranslationModel<T>& model, const std::vector<Ids>& sources,
                        index_t max_length) {
  SearchOptions options = search_options(model.description.text);
  options.beam_size = 1;
  options.max_length = max_length;
  std::vector<Ids> ids;
  for (const auto& found :
       generate(model.model, Context<T>::inference(), std::span<const Ids>(sources), options)) {
    ids.push_back(found.front().ids);
  }
  return ids;
}

/// What the encoder reads for each line, as the model's conventions say.
template <class T>
std::vector<Ids> read_lines_as_ids(const TranslationModel<T>& model, const std::vector<std::string>& lines) {
  std::vector<Ids> ids;
  for (const std::string& line : lines) {
    ids.push_back(source_ids(model.description.text, *model.tokenizers.source, line,
                             max_source_tokens(model.description)));
  }
  return ids;
}

/// CHECKs that f() throws an IoError whose text holds each of `words`.
template <class F>
void check_refused(F&& f, const std::vector<std::string>& words) {
  try {
    f();
    CHECK_MESSAGE(false, "nothing was thrown");
  } catch (const IoError& error) {
    for (const std::string& word : words) {
      CHECK_MESSAGE(std::string(error.what()).find(word) != std::string::npos, error.what(), " should say ",
                    word);
    }
  }
}

/// Writes a new file at once: quicker than write_file(), which waits for the disk.
inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A copy of a fixture's folder that a test may damage.
class DamagedCopy {
 public:
  explicit DamagedCopy(const std::string& name) {
    std::filesystem::copy(fixtures_folder() / "checkpoints" / name, folder_.path(),
                          std::filesystem::copy_options::recursive);
  }
  std::filesystem::path path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  std::string read(const std::string& name) const { return detail::read_text_file(folder_ / name); }
  void write(const std::string& name, const std::string& bytes) const { write_bytes(folder_ / name, bytes); }
  void remove(const std::string& name) const { std::filesystem::remove(folder_ / name); }
  /// Sets one field of a JSON file.
  void set(const std::string& name, const std::string& field, const nlohmann::json& value) const {
    nlohmann::json json = nlohmann::json::parse(read(name));
    json[field] = value;
    write(name, json.dump());
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace eigenformer::testing
