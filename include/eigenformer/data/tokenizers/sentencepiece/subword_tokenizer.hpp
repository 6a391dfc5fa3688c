#pragma once

#include <fcntl.h>
#include <sentencepiece_trainer.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer::detail {

/// What a training of SentencePiece gave.
struct SentencePieceTraining {
  bool ok = false;
  std::string text{};  ///< the model, or why there is none
};

/// Trains in this process, which ends if memory runs out: SentencePiece works in threads, and from those no
/// exception comes back.
inline SentencePieceTraining train_sentencepiece_here(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  if (status.ok()) return {true, std::move(model)};
  // "./src/trainer_interface.cc(580) [(condition)] Vocabulary size is ..."
  std::string why = status.message();
  if (const std::size_t end = why.find("] "); why.find(".cc(") < end && end != std::string::npos)
    why.erase(0, end + 2);
  return {false, std::move(why)};
}

/// Whether allocations of this process can fail: otherwise Linux promises more memory than there is.
inline bool memory_is_limited() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  }
  int overcommit = 0;
  return std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit && overcommit == 2;
}

/// Trains in a child process, which may end for want of memory. Throws Error when it does, and when no
/// process can be started.
inline SentencePieceTraining train_sentencepiece_apart(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("subword_tokenizer", "cannot open a pipe to a process that trains");
  const pid_t child = ::fork();
  if (child == 0) {
    // A failure is to say nothing, leave no core, and call no handler of the program.
    ::signal(SIGABRT, SIG_DFL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    try {
      const SentencePieceTraining done = train_sentencepiece_here(arguments, sentences);
      const std::string message = (done.ok ? "+" : "-") + done.text + '.';
      (void)write_all(ends[1], std::as_bytes(std::span(message)));
    } catch (...) {
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string message;
  std::exception_ptr failed;
  try {
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t n = child < 0 ? 0 : ::read(ends[0], buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      message.append(buffer.data(), static_cast<std::size_t>(n));
    }
  } catch (...) {
    failed = std::current_exception();
  }
  ::close(ends[0]);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (failed) std::rethrow_exception(failed);
  if (message.size() < 2 || message.back() != '.') {
    throw Error("subword_tokenizer",
                child < 0 ? "no process for the training can be started within the limits of this one"
                          : "out of memory: the training ended before it had a model; expected a higher "
                            "limit of this process's memory, or a lower max_sentences");
  }
  message.pop_back();
  const bool ok = message.front() == '+';
  return {ok, message.substr(1)};
}

/// Trains a model of SentencePiece, and never ends the process: where allocations can fail, a child process
/// trains. The model depends on the arguments and sentences alone. Throws Error when memory runs out.
inline SentencePieceTraining train_sentencepiece(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  return memory_is_limited() ? train_sentencepiece_apart(arguments, sentences)
                             : train_sentencepiece_here(arguments, sentences);
}

}  // namespace eigenformer::detail

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
  /// and options give an equal model. If the text has more different characters than fit in the vocabulary,
  /// as Chinese may, the most frequent ones take half of it, and the others are encoded as bytes, as with
  /// byte_fallback. Throws ValueError for invalid options, for sentences without text, and for a vocabulary
  /// without room for the characters or for bytes; Error when memory runs out. In a process with a memory
  /// limit (RLIMIT_AS, RLIMIT_DATA) a forked child trains, because SentencePiece's threads end a process
  /// without memory. Sets SentencePiece's process-wide log level so that it prints nothing.
  static SubwordTokenizer train(std::span<const std::string> sentences, const SubwordOptions& options = {}) {
    const index_t least = Vocabulary::num_specials + (options.byte_fallback ? 256 : 0) +
                          static_cast<index_t>(options.reserved.size()) + 1;
    if (options.vocabulary_size < least) {
      throw ValueError("subword_tokenizer",
                       {"vocabulary_size is ", options.vocabulary_size, ", must be at least ", least});
    }
    if (options.max_sentences < 1) {
      throw ValueError("subword_tokenizer",
                       {"max_sentences is ", options.max_sentences, ", must be at least 1"});
    }
    const auto most = static_cast<std::size_t>(options.max_sentences);
    Sentences iterator(sentences, most);
    if (iterator.done())
      throw ValueError("subword_tokenizer", "no text to train on, expected at least one sentence");
    std::string reserved;
    for (const std::string& piece : options.reserved) {
      if (piece.empty() || piece.find(',') != std::string::npos)
        throw ValueError(
            "subword_tokenizer",
            {"the reserved piece '", piece, "' is empty or contains a comma, must be a text without commas"});
      reserved += (reserved.empty() ? "" : ",") + piece;
    }
    std::unordered_map<std::string, std::string> arguments = {
        {"model_type", options.unigram ? "unigram" : "bpe"},
        {"vocab_size", std::to_string(options.vocabulary_size)},
        {"hard_vocab_limit", "false"},
        {"character_coverage", "1.0"},
        {"byte_fallback", options.byte_fallback ? "true" : "false"},
        {"normalization_rule_name", "identity"},
        {"unk_surface", unknown_text},
        {"control_symbols", reserved},
        {"pad_id", std::to_string(SpecialIds::pad)},
        {"unk_id", std::to_string(SpecialIds::unknown)},
        {"bos_id", std::to_string(SpecialIds::begin)},
        {"eos_id", std::to_string(SpecialIds::end)},
        {"max_sentence_length", "65536"},
        {"num_threads", "1"},  // sums of several threads would depend on their number
        {"minloglevel", "3"},
    };
    detail::SentencePieceTraining trained = detail::train_sentencepiece(arguments, iterator);
    if (!trained.ok) {
      detail::CharacterCounts counts;
      for (Sentences text(sentences, most); !text.done(); text.Next()) counts.add(text.value());
      const auto characters = counts.by_frequency();
      // Every character of the text is a piece, that between words too.
      const index_t needed = least + static_cast<index_t>(characters.size());
      if (options.vocabulary_size < needed) {
        // The least size with bytes has one character that is a piece.
        const index_t with_bytes = least + (options.byte_fallback ? 0 : 256) + 2;
        if (options.vocabulary_size < with_bytes) {
          throw ValueError(
              "subword_tokenizer",
              {"vocabulary_size is ", options.vocabulary_size, ", must be at least ",
               std::min(needed, with_bytes), ": this text has ", characters.size() + 1,
               " different characters, and ", least - 1, " ids are for special and reserved pieces",
               with_bytes < needed ? "; rare characters are encoded as bytes, which take 256" : ""});
        }
        const index_t kept = (options.vocabulary_size - with_bytes) / 2 + 1;
        std::unordered_set<char32_t> frequent;
        for (index_t i = 0; i < kept; ++i) frequent.insert(characters[static_cast<std::size_t>(i)].first);
        Sentences of_frequent(sentences, most, std::move(frequent));
        arguments["byte_fallback"] = "true";
        trained = detail::train_sentencepiece(arguments, of_frequent);
      }
    }
    if (!trained.ok) {
      throw ValueError("subword_tokenizer", {"no vocabulary of size ", options.vocabulary_size,
                                             " can be made of this text, expected another size or more "
                                             "text (SentencePiece: ",
                                             trained.text, ")"});
    }
    return SubwordTokenizer(std::move(trained.text), "the trained model");
  }

  /// Loads `directory/name.model`. Throws IoError when it is missing, is not a SentencePiece model, or has
  /// special ids other than pad 0, unknown 1, begin 2, end 3.
  static SubwordTokenizer load(const std::filesystem::path& directory,
                               const std::string& name = "tokenizer") {
    const std::filesystem::path path = directory / (name + ".model");
    return SubwordTokenizer(detail::read_text_file(path), "'" + path.string() + "'");
  }

  /// Writes `directory/name.model`, in SentencePiece's own format. Throws IoError.
  void save(const std::filesystem::path& directory, const std::string& name = "tokenizer") const override {
    detail::write_file(directory / (name + ".model"), processor_.model());
  }

  std::string kind() const override { return "subword"; }
  index_t vocabulary_size() const override { return processor_.size(); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    const std::vector<int> ids = processor_.encode<int>(detail::normalize_text(text));
    return {ids.begin(), ids.end()};
  }

  std::vector<std::int32_t> encode_sampled(std::string_view text, const SubwordSampling& sampling,
                                           RandomGenerator& rng) const override {
    std::vector<std::int32_t> ids;
    for (const auto& piece : processor_.sample(detail::normalize_text(text), sampling, rng))
      ids.push_back(piece.id);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> pieces;
    for (const std::int32_t id : ids) {
      detail::require_token_id("subword_tokenizer", id, vocabulary_size());
      if (!is_control(id)) pieces.push_back(id);
    }
    return detail::normalize_text(processor_.decode(pieces));
  }

  std::string token(std::int32_t id) const override {
    detail::require_token_id("subword_tokenizer", id, vocabulary_size());
    return processor_.piece(id);
  }

 private:
  /// Passes at most `most` evenly spaced sentences to the trainer, without empty ones, and with spaces in
  /// place of characters that are not `only`; all if that is empty.
  class Sentences final : public sentencepiece::SentenceIterator {
   public:
    Sentences(std::span<const std::string> sentences, std::size_t most,
              std::unordered_set<char32_t> only = {})
        : sentences_(sentences), count_(std::min(most, sentences.size())), only_(std::move(only)) {
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
        value_ = detail::normalize_text(sentences_[next_ * sentences_.size() / count_]);
        if (!only_.empty()) value_ = detail::normalize_text(with_spaces(value_));
        if (!value_.empty()) return;
      }
    }
    std::string with_spaces(const std::string& text) const {
      std::string kept;
      detail::for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
        kept += only_.contains(c) ? bytes : std::string_view(" ");
      });
      return kept;
    }

    std::span<const std::string> sentences_;
    std::size_t count_;
    std::size_t next_ = 0;
    std::unordered_set<char32_t> only_;
    std::string value_;
  };

  SubwordTokenizer(std::string model, const std::string& name)
      : processor_(made_of_model(std::move(model), name)) {
    const auto& library = processor_.library();
    if (library.pad_id() != SpecialIds::pad || library.unk_id() != SpecialIds::unknown ||
        library.bos_id() != SpecialIds::begin || library.eos_id() != SpecialIds::end) {
      throw IoError("subword_tokenizer",
                    {name, " has other special ids, expected pad 0, unk 1, bos 2, eos 3"});
    }
  }

  static detail::SentencePieceProcessor made_of_model(std::string model, const std::string& name) {
    try {
      return detail::SentencePieceProcessor(std::move(model));
    } catch (const ValueError& error) {
      throw IoError("subword_tokenizer", {name, " is ", detail::message_of(error)});
    }
  }

  detail::SentencePieceProcessor processor_;
};

}  // namespace eigenformer
