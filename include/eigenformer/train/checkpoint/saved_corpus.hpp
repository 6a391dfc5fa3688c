#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/train/distributed/agreement.hpp"

namespace eigenformer::detail {

// What identifies the corpus of a training in its states and among ranks: its fingerprint, and the parts of
// that.
EIGENFORMER_IO_FUNCTION nlohmann::json saved_corpus(const PairSource& corpus);

// Throws ValueError that says what differs, unless the fingerprint among the values of a state is that of
// `own`.
EIGENFORMER_IO_FUNCTION void require_saved_corpus(const nlohmann::json& own, const nlohmann::json& values);

// Throws ValueError on all ranks unless all have the corpus of rank 0.
EIGENFORMER_IO_FUNCTION void require_same_corpus(Communicator& communicator, const nlohmann::json& own);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION nlohmann::json saved_corpus(const PairSource& corpus) {
  const SourceIdentity identity = corpus.identity();
  return {{"corpus", corpus.fingerprint()},
          {"corpus_identity",
           {{"pairs", identity.pairs},
            {"content", identity.content},
            {"tokenizers", identity.tokenizers},
            {"options", identity.options}}}};
}

// Describes how a corpus differs from another; by both fingerprints if the parts are not known.
inline std::string corpus_difference(const nlohmann::json& own, const nlohmann::json& other) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  try {
    const nlohmann::json &ours = own.at("corpus_identity"), &expected = other.at("corpus_identity");
    const auto differs = [&](const char* part) { return ours.at(part) != expected.at(part); };
    if (differs("pairs")) {
      add("number of pairs: " + ours.at("pairs").dump() + ", expected " + expected.at("pairs").dump());
    } else if (differs("content")) {
      add("as many pairs, but not the same ones");
    }
    if (differs("tokenizers")) add("other tokenizers");
    if (differs("options"))
      add("options: '" + ours.at("options").get<std::string>() + "', expected '" +
          expected.at("options").get<std::string>() + "'");
  } catch (const nlohmann::json::exception&) {  // an older state
    text.clear();
  }
  if (!text.empty()) return text;
  return "fingerprint: " + own.at("corpus").get<std::string>() + ", expected " +
         other.at("corpus").get<std::string>();
}

EIGENFORMER_IO_FUNCTION void require_saved_corpus(const nlohmann::json& own, const nlohmann::json& values) {
  if (same_fingerprint(values.at("corpus").get<std::string>(), own.at("corpus").get<std::string>())) return;
  throw ValueError("training",
                   {"the corpus differs from that of the saved training (", corpus_difference(own, values),
                    "); to continue with other data, start a new training from the saved model"});
}

EIGENFORMER_IO_FUNCTION void require_same_corpus(Communicator& communicator, const nlohmann::json& own) {
  const std::vector<nlohmann::json> all = json_of_ranks(communicator, own);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].at("corpus") == all[0].at("corpus")) continue;
    throw ValueError("distributed",
                     {"the corpus of rank ", r, " differs from that of rank 0 (",
                      corpus_difference(all[r], all[0]), "), expected the same corpus on all ranks"});
  }
}

}  // namespace eigenformer::detail

#endif
