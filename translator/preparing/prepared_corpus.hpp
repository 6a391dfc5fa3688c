#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "translator/preparing/prepare.hpp"
#include "translator/preparing/token_file.hpp"

namespace eigenformer {

/// The contents of the prepared.json of a prepared corpus.
struct PreparedDescription {
  std::string tokenizer;      ///< kind, for load_tokenizer()
  bool joint = true;          ///< one tokenizer for both languages
  index_t vocab_size = 0;     ///< most entries of a vocabulary
  index_t max_length = 0;     ///< most tokens of a side
  bool of_a_model = false;    ///< the tokenizers are those of a model, whose conventions apply
  std::string source_text{};  ///< put before each source sentence
  PrepareReport report{};     ///< how many pairs were read, dropped and kept
};

/// A prepared corpus: its tokens, its tokenizers, and the text of its validation pairs.
struct PreparedCorpus {
  PreparedDescription description;   ///< contents of prepared.json
  std::unique_ptr<TokenFile> pairs;  ///< the pairs to train on, as ids; never null
  TokenizerPair tokenizers;          ///< the tokenizers that made the ids
  ParallelCorpus validation;         ///< text to validate on; empty when there is none
};

/// The tokenizers of an existing model, to prepare a corpus for it.
struct PrepareModel {
  TokenizerPair tokenizers{};  ///< null: new tokenizers are trained
  std::string source_text{};   ///< put before each source sentence, as TextConventions::source_text
};

/// Whether a folder has a prepared.json.
bool is_prepared_corpus(const std::filesystem::path& folder);

/// Prepares a corpus as prepare_pairs() does and writes a folder for load_prepared_corpus(), completely or
/// not at all; an existing corpus is replaced. model: the tokenizers to use; without any, they are trained.
/// validation: two files to validate on; without any, pairs are held out. progress: called on this thread.
/// Throws as prepare_pairs() and read_parallel_files() do, and IoError for a folder that holds a model.
PrepareReport prepare_corpus(
    const PrepareFiles& files, const std::filesystem::path& folder, PrepareOptions options,
    PrepareModel model = {}, const PrepareFiles& validation = {},
    const std::function<void(const PrepareProgress&)>& progress = [](const PrepareProgress&) {});

/// Reads the prepared.json of a folder. Throws IoError that names the file and what is wrong.
PreparedDescription read_prepared_description(const std::filesystem::path& folder);

/// Opens a corpus that prepare_corpus() wrote; the tokens stay in the mapped file. Throws IoError that names
/// the file and what is wrong: missing, damaged, made by other tokenizers; ValueError for a kind of tokenizer
/// that is not built in.
PreparedCorpus load_prepared_corpus(const std::filesystem::path& folder);

}  // namespace eigenformer
