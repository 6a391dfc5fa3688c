#pragma once

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/training.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer {

/// Options of SubwordTokenizer::train().
struct SubwordOptions {
  index_t vocabulary_size = 8000;  ///< with the four special ids; the result is smaller for a small text
  bool unigram =
      false;  ///< true: unigram language model (Kudo 2018); false: byte pair encoding (Sennrich et al. 2016)
  bool byte_fallback = false;  ///< encode unknown characters as bytes, which takes 256 ids
  /// Pieces that are never produced from text and that decoding skips, such as "<2de>": SentencePiece's
  /// control symbols. Their ids follow the special ones. They must not be empty or have a comma.
  std::vector<std::string> reserved{};
  index_t max_sentences = 1'000'000;  ///< of more sentences, evenly spaced ones are used
};

/// SentencePiece (Kudo and Richardson 2018) behind the Tokenizer interface. Text is normalised by
/// normalize_text() only, not by NFKC, so that decoding restores it; U+2581, which SentencePiece reserves for
/// spaces, is read as a space.
class SubwordTokenizer final : public Tokenizer {
 public:
  /// Trains on UTF-8 sentences in memory; pass those of both sides for a joint vocabulary. Equal sentences
  /// and options give an equal model. Throws ValueError for invalid options, for sentences without text, and
  /// when SentencePiece fails, as for a vocabulary smaller than the number of different characters; Error
  /// when memory runs out. In a process with a memory limit (RLIMIT_AS, RLIMIT_DATA) a forked child trains,
  /// because SentencePiece's threads end a process without memory. Sets SentencePiece's process-wide log
  /// level so that it prints nothing.
  static SubwordTokenizer train(std::span<const std::string> sentences, const SubwordOptions& options = {}) {
    const index_t least = Vocabulary::num_specials + (options.byte_fallback ? 256 : 0) +
                          static_cast<index_t>(options.reserved.size()) + 1;
    if (options.vocabulary_size < least) {
      throw ValueError("subword_tokenizer", "vocabulary_size is " + std::to_string(options.vocabulary_size) +
                                                ", must be at least " + std::to_string(least));
    }
    if (options.max_sentences < 1) {
      throw ValueError("subword_tokenizer",
                       "max_sentences is " + std::to_string(options.max_sentences) + ", must be at least 1");
    }
    Sentences iterator(sentences, static_cast<std::size_t>(options.max_sentences));
    if (iterator.done())
      throw ValueError("subword_tokenizer", "no text to train on, expected at least one sentence");
    std::string reserved;
    for (const std::string& piece : options.reserved) {
      if (piece.empty() || piece.find(',') != std::string::npos)
        throw ValueError(
            "subword_tokenizer",
            "the reserved piece '" + piece + "' is empty or contains a comma, must be a text without commas");
      reserved += (reserved.empty() ? "" : ",") + piece;
    }
    const std::unordered_map<std::string, std::string> arguments = {
        {"model_type", options.unigram ? "unigram" : "bpe"},
        {"vocab_size", std::to_string(options.vocabulary_size)},
        {"hard_vocab_limit", "false"},
        {"character_coverage", "1.0"},
        {"byte_fallback", options.byte_fallback ? "true" : "false"},
        {"normalization_rule_name", "identity"},
        {"unk_surface", unknown_text},
        {"control_symbols", reserved},
        {"pad_id", std::to_string(Vocabulary::pad_id)},
        {"unk_id", std::to_string(Vocabulary::unknown_id)},
        {"bos_id", std::to_string(Vocabulary::begin_id)},
        {"eos_id", std::to_string(Vocabulary::end_id)},
        {"max_sentence_length", "65536"},
        {"num_threads", "1"},  // sums of several threads would depend on their number
        {"minloglevel", "3"},
    };
    detail::SentencePieceTraining trained = detail::train_sentencepiece(arguments, iterator);
    if (!trained.ok) {
      // Every character of the text is a piece, that between words too.
      const index_t characters = count_characters(sentences, static_cast<std::size_t>(options.max_sentences));
      if (options.vocabulary_size < least - 1 + characters) {
        throw ValueError("subword_tokenizer",
                         "vocabulary_size is " + std::to_string(options.vocabulary_size) +
                             ", must be at least " + std::to_string(least - 1 + characters) +
                             ": this text has " + std::to_string(characters) + " different characters, and " +
                             std::to_string(least - 1) + " ids are for special and reserved pieces");
      }
      throw ValueError("subword_tokenizer", "no vocabulary of size " +
                                                std::to_string(options.vocabulary_size) +
                                                " can be made of this text, expected another size or more "
                                                "text (SentencePiece: " +
                                                trained.text + ")");
    }
    return SubwordTokenizer(std::move(trained.text), "the trained model");
  }

  /// Loads `directory/name.model`. Throws IoError when it is missing, is not a SentencePiece model, or has
  /// special ids other than pad 0, unknown 1, begin 2, end 3.
  static SubwordTokenizer load(const std::filesystem::path& directory,
                               const std::string& name = "tokenizer") {
    const std::filesystem::path path = directory / (name + ".model");
    return SubwordTokenizer(read_text_file(path), "'" + path.string() + "'");
  }

  /// Writes `directory/name.model`, in SentencePiece's own format. Throws IoError.
  void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const override {
    write_file(directory / (name + ".model"), processor_.model());
  }

  std::string kind() const override { return "subword"; }
  index_t vocabulary_size() const override { return processor_.size(); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const std::vector<int> ids = processor_.encode<int>(normalize_text(text));
    return {ids.begin(), ids.end()};
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    std::vector<std::int32_t> ids;
    for (const auto& piece : processor_.sample(normalize_text(text), sampling, rng)) ids.push_back(piece.id);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> pieces;
    for (const std::int32_t id : ids) {
      check(id);
      if (!is_control(id)) pieces.push_back(id);
    }
    return normalize_text(processor_.decode(pieces));
  }

  std::string token(std::int32_t id) const override {
    check(id);
    return processor_.piece(id);
  }

 private:
  /// Passes at most `most` evenly spaced sentences to the trainer, without empty ones.
  class Sentences final : public sentencepiece::SentenceIterator {
   public:
    Sentences(std::span<const std::string> sentences, std::size_t most)
        : sentences_(sentences), count_(std::min(most, sentences.size())) {
      read();
    }
    bool done() const override { return next_ >= count_; }
    void Next() override {
      ++next_;
      read();
    }
    const std::string& value() const override { return value_; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    void read() {
      for (; next_ < count_; ++next_) {
        value_ = normalize_text(sentences_[next_ * sentences_.size() / count_]);
        if (!value_.empty()) return;
      }
    }

    std::span<const std::string> sentences_;
    std::size_t count_;
    std::size_t next_ = 0;
    std::string value_;
  };

  SubwordTokenizer(std::string model, const std::string& name)
      : processor_(made_of_model(std::move(model), name)) {
    const auto& library = processor_.library();
    if (library.pad_id() != Vocabulary::pad_id || library.unk_id() != Vocabulary::unknown_id ||
        library.bos_id() != Vocabulary::begin_id || library.eos_id() != Vocabulary::end_id) {
      throw IoError("subword_tokenizer",
                    name + " has other special ids, expected pad 0, unk 1, bos 2, eos 3");
    }
  }

  static detail::SentencePieceProcessor made_of_model(std::string model, const std::string& name) {
    try {
      return detail::SentencePieceProcessor(std::move(model));
    } catch (const ValueError& error) {
      throw IoError("subword_tokenizer", name + " is " + detail::message_of(error));
    }
  }

  // Number of different characters in the training text, with the mark that SentencePiece puts between words.
  static index_t count_characters(std::span<const std::string> sentences, std::size_t most) {
    std::set<char32_t> found;
    for (Sentences text(sentences, most); !text.done(); text.Next()) {
      for_each_code_point(text.value(), [&](char32_t c, std::string_view) {
        if (c != U' ') found.insert(c);
      });
    }
    return static_cast<index_t>(found.size()) + 1;
  }

  void check(std::int32_t id) const {
    if (id < 0 || id >= processor_.size()) {
      throw IndexError("subword_tokenizer", "token id " + std::to_string(id) +
                                                " is outside the vocabulary of size " +
                                                std::to_string(processor_.size()));
    }
  }

  detail::SentencePieceProcessor processor_;
};

}  // namespace eigenformer
