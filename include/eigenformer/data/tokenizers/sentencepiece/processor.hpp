#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/sampling/sentencepiece_sampler.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/model.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/text_parts.hpp"

namespace eigenformer::detail {

/// SentencePiece's library with a checked model; no other class passes models to the library. Texts above
/// `longest_part` bytes are encoded in parts (see for_each_part). A cut at a space does not change the
/// pieces, unless the model has pieces that contain a space. A word that is longer than a part gets other
/// pieces where it is cut, and a space mark before each part if the model adds one to each text.
///
/// Copies share the model. Thread-safe. Members throw ValueError when the library reports an error.
class SentencePieceProcessor {
 public:
  /// model: its bytes. Throws ValueError as SentencePieceModel::read does.
  explicit SentencePieceProcessor(std::string model)
      : model_(std::make_shared<const std::string>(std::move(model))) {
    const SentencePieceModel read = SentencePieceModel::read(*model_);
    spaces_ = read.adds_space         ? EndSpaces::added
              : read.collapses_spaces ? EndSpaces::removed
                                      : EndSpaces::kept;
    auto library = std::make_shared<sentencepiece::SentencePieceProcessor>();
    if (const auto status = library->LoadFromSerializedProto(*model_); !status.ok()) {
      throw ValueError("sentencepiece", "a SentencePiece model that the library refuses (SentencePiece: " +
                                            std::string(status.message()) + ")");
    }
    library_ = std::move(library);
  }

  const std::string& model() const noexcept { return *model_; }
  const sentencepiece::SentencePieceProcessor& library() const noexcept { return *library_; }

  int size() const { return library_->GetPieceSize(); }
  /// The text of a piece; id: 0 to size() - 1.
  const std::string& piece(int id) const { return library_->IdToPiece(id); }

  /// The pieces of a text in UTF-8. Piece: std::string or int, for their texts or ids.
  template <class Piece>
  std::vector<Piece> encode(std::string_view text) const {
    std::vector<Piece> all;
    for_each_part(text, spaces_, [&](std::string_view part) {
      std::vector<Piece> found;
      require(library_->Encode(part, &found));
      if (all.empty()) {
        all = std::move(found);
      } else {
        all.insert(all.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
      }
    });
    return all;
  }

  /// A sampled segmentation of a text in UTF-8. Throws ValueError as SentencePieceSampler does.
  std::vector<SentencePieceSampler::Piece> sample(std::string_view text, const SubwordSampling& sampling,
                                                  RandomGenerator& rng) const {
    const SentencePieceSampler& sampler = sampler_.get(*model_);
    const auto pieces = encode<std::string>(text);
    const auto ids = sampler.spells_bytes() ? encode<int>(text) : std::vector<int>{};
    return sampler.sample(pieces, ids, sampling, rng);
  }

  /// Pieces: std::string or int, their texts or ids.
  template <class Piece>
  std::string decode(const std::vector<Piece>& pieces) const {
    std::string text;
    require(library_->Decode(pieces, &text));
    return text;
  }

 private:
  static void require(const sentencepiece::util::Status& status) {
    if (!status.ok()) throw ValueError("tokenizer", std::string("SentencePiece: ") + status.message());
  }

  std::shared_ptr<const std::string> model_;  // serialised
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> library_;
  LazySampler sampler_;
  EndSpaces spaces_ = EndSpaces::added;
};

}  // namespace eigenformer::detail
