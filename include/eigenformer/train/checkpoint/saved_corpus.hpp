#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/train/distributed/agreement.hpp"

namespace eigenformer::detail {

// Identifies the corpus of a training in its states and among ranks.
class SavedCorpus {
 public:
  explicit SavedCorpus(const PairSource& corpus)
      : fingerprint_(corpus.fingerprint()), identity_(corpus.identity()) {}

  void save(nlohmann::json& values) const {
    values["corpus"] = fingerprint_;
    values["corpus_identity"] = {{"pairs", identity_.pairs},
                                 {"content", identity_.content},
                                 {"tokenizers", identity_.tokenizers},
                                 {"options", identity_.options}};
  }

  // Throws ValueError that says what differs, unless a state's fingerprint is that of this corpus.
  void require_saved(const std::string& fingerprint, const nlohmann::json& values) const {
    if (same_fingerprint(fingerprint, fingerprint_)) return;
    throw ValueError("training",
                     {"the corpus differs from that of the saved training (", difference(fingerprint, values),
                      "); to continue with other data, start a new training from the saved "
                      "model"});
  }

  // Throws ValueError on all ranks unless all have the corpus of rank 0.
  void require_same_on_ranks(Communicator& communicator) const;

 private:
  // Reads the output of save().
  explicit SavedCorpus(const nlohmann::json& values)
      : fingerprint_(values.at("corpus").get<std::string>()),
        identity_(identity_of(values.at("corpus_identity"))) {}

  static SourceIdentity identity_of(const nlohmann::json& json);

  // Describes the difference from a saved corpus; both fingerprints if the parts are not known.
  std::string difference(const std::string& fingerprint, const nlohmann::json& values) const;

  std::string fingerprint_;
  SourceIdentity identity_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void SavedCorpus::require_same_on_ranks(Communicator& communicator) const {
  nlohmann::json own;
  save(own);
  const std::vector<nlohmann::json> all = json_of_ranks(communicator, own);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r]["corpus"] == all[0]["corpus"]) continue;
    throw ValueError("distributed",
                     {"the corpus of rank ", r, " differs from that of rank 0 (",
                      SavedCorpus(all[r]).difference(all[0]["corpus"].get<std::string>(), all[0]),
                      "), expected the same corpus on all ranks"});
  }
}

EIGENFORMER_IO_FUNCTION SourceIdentity SavedCorpus::identity_of(const nlohmann::json& json) {
  return {.pairs = json.at("pairs").get<index_t>(),
          .content = json.at("content").get<std::string>(),
          .tokenizers = json.at("tokenizers").get<std::string>(),
          .options = json.at("options").get<std::string>()};
}

EIGENFORMER_IO_FUNCTION std::string SavedCorpus::difference(const std::string& fingerprint,
                                                            const nlohmann::json& values) const {
  const std::string hashes = "fingerprint: " + fingerprint_ + ", expected " + fingerprint;
  SourceIdentity expected;
  try {
    expected = identity_of(values.at("corpus_identity"));
  } catch (const nlohmann::json::exception&) {  // an older state
    return hashes;
  }
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (identity_.pairs != expected.pairs) {
    add("number of pairs: " + std::to_string(identity_.pairs) + ", expected " +
        std::to_string(expected.pairs));
  } else if (identity_.content != expected.content) {
    add("as many pairs, but not the same ones");
  }
  if (identity_.tokenizers != expected.tokenizers) add("other tokenizers");
  if (identity_.options != expected.options)
    add("options: '" + identity_.options + "', expected '" + expected.options + "'");
  return text.empty() ? hashes : text;
}

}  // namespace eigenformer::detail

#endif
