#pragma once

#include <sentencepiece_processor.h>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_walk.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/model.hpp"
#include "eigenformer/data/tokenizers/sentencepiece_sampler.hpp"

namespace eigenformer::detail {

/// What an encoder does with spaces at the ends of a text.
enum class EndSpaces {
  added,    ///< it puts one before the text, so a part may begin after a space
  kept,     ///< none is added or removed, so a part may begin with a space
  removed,  ///< it removes spaces, so no part may begin or end with one
};

/// Bytes of text that are passed to SentencePiece at once. It joins neighbouring unknown characters one by
/// one and copies the result each time: 1 MB of them took 40 s, and takes less than a second in parts of this
/// size.
inline constexpr std::size_t longest_part = 16'384;

/// Calls f(part) for the parts in which a text in UTF-8 is encoded: the whole text if it has at most
/// `longest` bytes, else parts of at most that many bytes, each cut at its last space (U+0020). A part
/// without a space, or every part if spaces at the ends are removed, is cut between two code points. longest:
/// at least 8.
template <class F>
void for_each_part(std::string_view text, EndSpaces spaces, F&& f, std::size_t longest = longest_part) {
  while (text.size() > longest) {
    std::size_t end = spaces == EndSpaces::removed ? std::string_view::npos : text.rfind(' ', longest);
    const bool at_space = end != std::string_view::npos && end > 0;
    if (!at_space) {
      end = longest;
      const auto inside = [&] { return !is_code_point_boundary(text, end); };
      const auto by_space = [&] { return text[end] == ' ' || text[end - 1] == ' '; };
      if (spaces == EndSpaces::removed) {
        while (end > longest / 2 && (inside() || by_space())) --end;
      }
      for (int i = 0; i < 3 && inside(); ++i) --end;
    }
    f(text.substr(0, end));
    text.remove_prefix(at_space && spaces == EndSpaces::added ? end + 1 : end);
  }
  if (!text.empty()) f(text);
}

/// SentencePiece's library with a checked model; no other class passes models to the library. Texts above
/// `longest_part` bytes are encoded in parts (see for_each_part). A cut at a space does not change the
/// pieces, unless the model has pieces that contain a space. A word that is longer than a part gets other
/// pieces where it is cut, and a space mark before each part if the model adds one to each text.
///
/// Copies share the model. Thread-safe. Members throw ValueError when the library reports an error.
class SentencePieceProcessor {
 public:
  /// model: its bytes. Throws ValueError as SentencePieceModel::read does.
  explicit SentencePieceProcessor(std::string model) {
    const SentencePieceModel read = SentencePieceModel::read(model);
    spaces_ = read.adds_space         ? EndSpaces::added
              : read.collapses_spaces ? EndSpaces::removed
                                      : EndSpaces::kept;
    if (const auto status = shared_->library.LoadFromSerializedProto(model); !status.ok()) {
      throw ValueError(
          "sentencepiece",
          {"a SentencePiece model that the library refuses (SentencePiece: ", status.message(), ")"});
    }
    shared_->model = std::move(model);
  }

  const std::string& model() const noexcept { return shared_->model; }
  const sentencepiece::SentencePieceProcessor& library() const noexcept { return shared_->library; }

  int size() const { return library().GetPieceSize(); }
  /// The text of a piece; id: 0 to size() - 1.
  const std::string& piece(int id) const { return library().IdToPiece(id); }

  /// The pieces of a text in UTF-8. Piece: std::string or int, for their texts or ids.
  template <class Piece>
  std::vector<Piece> encode(std::string_view text) const {
    std::vector<Piece> all;
    for_each_part(text, spaces_, [&](std::string_view part) {
      std::vector<Piece> found;
      require(library().Encode(part, &found));
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
    std::call_once(shared_->once, [&] { shared_->sampler.emplace(model()); });
    const auto pieces = encode<std::string>(text);
    const auto ids = shared_->sampler->spells_bytes() ? encode<int>(text) : std::vector<int>{};
    return shared_->sampler->sample(pieces, ids, sampling, rng);
  }

  /// Pieces: std::string or int, their texts or ids.
  template <class Piece>
  std::string decode(const std::vector<Piece>& pieces) const {
    std::string text;
    require(library().Decode(pieces, &text));
    return text;
  }

 private:
  struct Shared {
    std::string model;  // serialised
    sentencepiece::SentencePieceProcessor library;
    std::once_flag once;
    std::optional<SentencePieceSampler> sampler;  // made on first use
  };

  static void require(const sentencepiece::util::Status& status) {
    if (!status.ok()) throw ValueError("tokenizer", {"SentencePiece: ", status.message()});
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  EndSpaces spaces_ = EndSpaces::added;
};

}  // namespace eigenformer::detail
