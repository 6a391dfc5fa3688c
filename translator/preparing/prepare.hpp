#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "translator/preparing/prepare_options.hpp"

namespace eigenformer {

/// The progress of prepare_pairs().
struct PrepareProgress {
  const char* stage = "";  ///< "reading", "vocabulary" or "encoding"
  index_t pairs = 0;       ///< pairs done in this stage
  index_t total = 0;       ///< pairs of this stage; 0: not known
};

/// Names of the files that prepare_pairs() writes.
struct PreparedNames {
  static constexpr const char* tokens = "train.tokens";                  ///< a TokenFile
  static constexpr const char* validation_source = "validation.source";  ///< text, one sentence per line
  static constexpr const char* validation_target = "validation.target";  ///< text, one sentence per line
};

/// Converts text of any size to a token file: reads it as a stream, normalises, filters and deduplicates the
/// pairs, trains a vocabulary on a sample, holds out validation pairs as `translator train` does (1 %, at
/// most 1000, evenly spaced; none of less than 1000), and encodes the rest. The result does not depend on the
/// number of threads.
///
/// folder: an existing one, to which the files of PreparedNames are written, and a temporary copy of the
/// text. tokenizers: those to encode with; when source is null, new ones are trained and stored here, for the
/// caller to save. source_text: put before each source sentence. hold_out: false to encode all pairs.
/// progress: called on this thread. Memory: 13 bytes per pair for deduplication, 4 for lengths, and the
/// sample. Throws ValueError for invalid options, IoError for files that cannot be read or written, for too
/// little disk space, and when no pair is left.
PrepareReport prepare_pairs(
    const PrepareFiles& files, const std::filesystem::path& folder, const PrepareOptions& options,
    TokenizerPair& tokenizers, const std::string& source_text = {}, bool hold_out = true,
    const std::function<void(const PrepareProgress&)>& progress = [](const PrepareProgress&) {});

}  // namespace eigenformer
