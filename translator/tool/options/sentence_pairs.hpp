#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace translator {

/// The lines of two parallel files.
struct SentencePairs {
  std::vector<std::string> sources, references;
};

/// --source and --reference of the commands that compare translations of a file with references.
struct PairFiles {
  std::string source, reference;

  void add_to(CLI::App& app) {
    app.add_option("--source", source, "source sentences, one per line")->required();
    app.add_option("--reference", reference, "their reference translations, line by line")->required();
  }

  /// Reads both files. Throws IoError, as `op`, if their numbers of lines differ or they are empty.
  SentencePairs read(const char* op) const {
    SentencePairs pairs{eigenformer::read_lines(source), eigenformer::read_lines(reference)};
    if (pairs.sources.size() != pairs.references.size()) {
      throw eigenformer::IoError(op, {"'", source, "' has ", pairs.sources.size(), " lines and '", reference,
                                      "' has ", pairs.references.size(), ", expected equal numbers"});
    }
    if (pairs.sources.empty())
      throw eigenformer::IoError(op, {"'", source, "' is empty, expected at least one sentence"});
    return pairs;
  }
};

}  // namespace translator
