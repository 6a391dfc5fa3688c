#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "folders.hpp"

namespace eigenformer::testing {

/// An imported model of tests/fixtures/checkpoints ("hf_marian", "hf_nllb", "hf_bart", "hf_t5"), and its
/// reference lines with other targets as one batch.
struct ImportedBatch {
  TranslationModel<double> loaded;
  EncodedCorpus corpus;
  Batch batch;
};

/// facts: has "targets", a list of ids for each line.
inline ImportedBatch imported_batch(const std::string& name, const nlohmann::json& facts) {
  const std::filesystem::path folder = fixtures_folder() / "checkpoints" / name;
  const auto lines = nlohmann::json::parse(detail::read_text_file(folder / "reference.json")).at("lines");
  ImportOptions options;
  if (name == "hf_nllb") options = {.source_language = "eng_Latn", .target_language = "deu_Latn"};
  if (name == "hf_t5") options.source_text = "translate to German: ";
  ImportedBatch made{import_checkpoint<double>(folder, options), {}, {}};
  const ModelConventions& text = made.loaded.description.text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    made.corpus.source.push_back(
        made.loaded.tokenizers.source->encode(text.source_text + lines[i].get<std::string>()));
    made.corpus.target.push_back(facts.at("targets")[i].get<std::vector<std::int32_t>>());
  }
  made.batch =
      Batcher(made.corpus, {.max_target_tokens = 1000, .bucket_sentences = 1, .shuffle = false, .text = text})
          .batch(0, 0);
  return made;
}

}  // namespace eigenformer::testing
