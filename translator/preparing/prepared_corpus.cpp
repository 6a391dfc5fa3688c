#include "translator/preparing/prepared_corpus.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <system_error>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/version.hpp"
#include "translator/preparing/unicode_text.hpp"

namespace eigenformer {

bool is_prepared_corpus(const std::filesystem::path& folder) {
  return detail::file_exists(detail::folder_file(folder, "prepared.json"));
}

PrepareReport prepare_corpus(const PrepareFiles& files, const std::filesystem::path& folder,
                             PrepareOptions options, PrepareModel model, const PrepareFiles& validation,
                             const std::function<void(const PrepareProgress&)>& progress) {
  options.validate();
  if (is_model_folder(folder)) {
    throw IoError("prepare", {"'", folder.string(), "' holds a model; give the corpus another folder"});
  }
  const bool given = !validation.source.empty();
  ParallelCorpus held;
  if (given) held = read_parallel_files(validation.source, validation.target);
  const bool of_a_model = model.tokenizers.source != nullptr;
  FolderTransaction save(folder);
  const std::filesystem::path staging = save.file("train.tokens").parent_path();
  PrepareReport report =
      prepare_pairs(files, staging, options, model.tokenizers, model.source_text, !given, progress);
  if (given) {
    std::string source, target;
    for (std::size_t i = 0; i < held.source.size(); ++i) {
      source += (options.nfc ? detail::to_nfc(held.source[i]) : held.source[i]) + '\n';
      target += (options.nfc ? detail::to_nfc(held.target[i]) : held.target[i]) + '\n';
    }
    detail::write_file(save.file(PreparedNames::validation_source), source);
    detail::write_file(save.file(PreparedNames::validation_target), target);
    report.validation = held.size();
  }
  save_tokenizers(model.tokenizers, staging);
  if (options.vocab_size == 0)
    options.vocab_size = std::max(report.source_vocabulary, report.target_vocabulary);
  const nlohmann::json json = {
      {"format", "eigenformer-corpus"},
      {"format_version", 1},
      {"library_version", version_string()},
      {"tokenizer", {{"kind", model.tokenizers.source->kind()}, {"joint", model.tokenizers.joint()}}},
      {"of_a_model", of_a_model},
      {"source_text", model.source_text},
      {"options", options_to_json(options)},
      {"report", options_to_json(report)},
  };
  detail::write_file(save.file("prepared.json"), json.dump(2) + "\n");
  detail::write_file(save.file("report.txt"), report.str());
  save.commit();
  // Remove files of a replaced corpus that this one does not have.
  std::error_code ignored;
  if (report.validation == 0) {
    std::filesystem::remove(folder / PreparedNames::validation_source, ignored);
    std::filesystem::remove(folder / PreparedNames::validation_target, ignored);
  }
  return report;
}

PreparedDescription read_prepared_description(const std::filesystem::path& folder) {
  const std::filesystem::path path = detail::folder_file(folder, "prepared.json");
  if (!is_prepared_corpus(folder)) {
    throw IoError("prepared_corpus",
                  {"'", folder.string(), "' is not a prepared corpus: '", path.string(), "' does not exist"});
  }
  try {
    const auto json = detail::parse_unique_json(detail::read_text_file(path));
    if (!detail::is_text(json.at("format"), "eigenformer-corpus") || json.at("format_version") != 1)
      throw IoError("prepared_corpus", "it has another format, expected eigenformer-corpus, version 1");
    PreparedDescription d;
    d.tokenizer = json.at("tokenizer").at("kind");
    if (d.tokenizer.empty()) throw IoError("prepared_corpus", "its kind of tokenizer is empty");
    d.joint = json.at("tokenizer").at("joint");
    d.of_a_model = json.at("of_a_model");
    d.source_text = json.at("source_text");
    d.vocab_size = json.at("options").at("vocab_size");
    d.max_length = json.at("options").at("max_length");
    d.report = options_from_json<PrepareReport>(json.at("report"));
    return d;
  } catch (const Error& error) {
    throw IoError("prepared_corpus", {"'", path.string(), "' is damaged: ", detail::message_of(error)});
  } catch (const nlohmann::json::exception& error) {
    throw IoError("prepared_corpus", {"'", path.string(), "' is damaged: ", error.what()});
  }
}

PreparedCorpus load_prepared_corpus(const std::filesystem::path& folder) {
  PreparedCorpus corpus;
  corpus.description = read_prepared_description(folder);
  corpus.tokenizers =
      detail::load_folder_tokenizers(corpus.description.tokenizer, corpus.description.joint, folder);
  corpus.pairs = std::make_unique<TokenFile>(detail::folder_file(folder, PreparedNames::tokens));
  if (corpus.pairs->tokenizers() != detail::tokenizer_fingerprint(corpus.tokenizers)) {
    throw IoError("prepared_corpus", {"the tokens of '", folder.string(),
                                      "' were encoded with other tokenizers than those in the folder"});
  }
  if (corpus.description.report.validation > 0) {
    corpus.validation = read_parallel_files(detail::folder_file(folder, PreparedNames::validation_source),
                                            detail::folder_file(folder, PreparedNames::validation_target));
  }
  return corpus;
}

}  // namespace eigenformer
