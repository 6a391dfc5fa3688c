#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/pair_source.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

namespace eigenformer {

/// How many sentence pairs were read, dropped and kept.
struct CorpusReport {
  index_t read = 0;       ///< all pairs of the files
  index_t empty = 0;      ///< dropped: nothing but white space, or no token, on one side
  index_t over_long = 0;  ///< dropped: more tokens on one side than allowed
  index_t kept = 0;       ///< pairs that were not dropped

  /// A readable summary: "164408 pairs read, 164390 kept; dropped: 3 empty, 15 over-long".
  std::string str() const;
};

/// Sentences and their translations, in UTF-8; readers pass both through normalize_text().
struct ParallelCorpus {
  std::vector<std::string> source;  ///< source sentences
  std::vector<std::string> target;  ///< target[i] translates source[i]; as many as there are sources
  CorpusReport report{};            ///< what reading dropped; all zero for pairs that were not read
  /// The line of each pair in its file, from 0; empty for pairs that were not read from one.
  std::vector<index_t> lines{};

  /// Number of sentence pairs.
  index_t size() const noexcept { return static_cast<index_t>(source.size()); }
};

namespace detail {

EIGENFORMER_FUNCTION void add_pair(ParallelCorpus& corpus, std::string_view source, std::string_view target);

}  // namespace detail

/// Reads two line-aligned UTF-8 files. Pairs with an empty side are dropped and counted. Throws IoError for a
/// file that is missing, unreadable, empty, not UTF-8 or that has NUL bytes, and for files that differ in
/// their number of lines.
EIGENFORMER_FUNCTION ParallelCorpus read_parallel_files(const std::filesystem::path& source,
                                                        const std::filesystem::path& target);

/// Reads one UTF-8 file with the source, a tab and the target in each line; further columns are ignored.
/// Empty lines and pairs with an empty side are dropped and counted. Throws IoError as read_parallel_files()
/// does, and for a line without a tab.
EIGENFORMER_FUNCTION ParallelCorpus read_parallel_tsv(const std::filesystem::path& path);

/// Token sequences stored one after the other in one block of memory.
class TokenSequences {
 public:
  /// Number of sequences.
  index_t size() const noexcept { return static_cast<index_t>(offsets_.size()) - 1; }
  /// Number of tokens of all sequences together.
  index_t tokens() const noexcept { return static_cast<index_t>(ids_.size()); }

  /// Number of tokens of sequence i. Throws IndexError when there is no sequence i.
  index_t length(index_t i) const { return static_cast<index_t>((*this)[i].size()); }
  /// The ids of sequence i, without a copy; valid until the next push_back(). Throws IndexError when there is
  /// no sequence i.
  std::span<const std::int32_t> operator[](index_t i) const;

  /// Appends a copy of a sequence, which may be empty; appends nothing when memory runs out.
  void push_back(std::span<const std::int32_t> ids);

 private:
  std::vector<std::int32_t> ids_;
  std::vector<std::size_t> offsets_{0};
};

/// Sentence pairs as token ids in memory, without begin and end.
struct EncodedCorpus : PairSource {
  TokenSequences source;         ///< ids of the source sentences
  TokenSequences target;         ///< ids of the target sentences, as many as there are sources
  CorpusReport report{};         ///< what reading and encode_corpus() dropped
  std::vector<index_t> pairs{};  ///< index of each pair in the ParallelCorpus that it was encoded from
  /// Links between the tokens of each pair, for training with guided alignment; empty: none.
  /// The translator's align_corpus() makes them from links between words.
  std::vector<std::vector<AlignmentLink>> alignment{};

  index_t size() const noexcept override { return source.size(); }
  PairLengths lengths(index_t, index_t i) const override { return {source.length(i), target.length(i)}; }
  void read(index_t, index_t i, EncodedPair& out) const override {
    const auto s = source[i], t = target[i];
    out.source.assign(s.begin(), s.end());
    out.target.assign(t.begin(), t.end());
    out.links = alignment.empty() ? std::vector<AlignmentLink>{} : alignment[static_cast<std::size_t>(i)];
    out.text = nullptr;
  }
  /// The number of pairs and a hash of all ids and links (FNV-1a, 64 bits), as text.
  std::string fingerprint() const override { return std::to_string(size()) + " pairs, " + content(); }
  SourceIdentity identity() const override {
    return {.pairs = size(), .content = content(), .tokenizers = {}, .options = {}};
  }
  bool aligned() const override {
    if (alignment.empty() || static_cast<index_t>(alignment.size()) == size()) return !alignment.empty();
    throw ValueError("corpus", {"the corpus has ", alignment.size(), " alignments and ", size(),
                                " pairs, expected one alignment for each pair or none"});
  }
  bool in_memory() const noexcept override { return true; }

 private:
  std::string content() const;
};

/// Encodes every pair. Of the conventions, only source_text is used, which is put before each source
/// sentence; Batcher adds the ids around a sentence. Pairs with a side of no token or of more than max_length
/// tokens (0: no limit; begin and end not counted) are dropped and counted in the report, in addition to what
/// reading dropped. Throws ValueError for a missing tokenizer, for a negative limit, for different numbers of
/// source and target sentences, and when no pair is left.
EIGENFORMER_FUNCTION EncodedCorpus encode_corpus(const ParallelCorpus& corpus,
                                                 const TokenizerPair& tokenizers,
                                                 const TextConventions& text = {}, index_t max_length = 0);

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION std::string CorpusReport::str() const {
  std::string text =
      std::to_string(read) + (read == 1 ? " pair read, " : " pairs read, ") + std::to_string(kept) + " kept";
  if (kept < read) {
    text += "; dropped: " + std::to_string(empty) + " empty, " + std::to_string(over_long) + " over-long";
  }
  return text;
}

namespace detail {

EIGENFORMER_FUNCTION void add_pair(ParallelCorpus& corpus, std::string_view source, std::string_view target) {
  std::string s = normalize_text(source);
  std::string t = normalize_text(target);
  ++corpus.report.read;
  if (s.empty() || t.empty()) {
    ++corpus.report.empty;
    return;
  }
  ++corpus.report.kept;
  corpus.lines.push_back(corpus.report.read - 1);
  corpus.source.push_back(std::move(s));
  corpus.target.push_back(std::move(t));
}

// name: what was read, as the subject of a message; verb: "is" or "are", to match it.
inline void require_pairs(const ParallelCorpus& corpus, const std::string& name, const char* verb) {
  if (corpus.report.read == 0)
    throw IoError("corpus", {name, ' ', verb, " empty, expected at least one sentence pair"});
  if (corpus.size() == 0) {
    throw IoError("corpus", {"all ", corpus.report.read, " pairs of ", name,
                             " are empty on one side, expected at least one sentence pair"});
  }
}

}  // namespace detail

EIGENFORMER_FUNCTION ParallelCorpus read_parallel_files(const std::filesystem::path& source,
                                                        const std::filesystem::path& target) {
  const std::vector<std::string> s = read_lines(source);
  const std::vector<std::string> t = read_lines(target);
  const std::string source_name = "'" + source.string() + "'", target_name = "'" + target.string() + "'";
  if (s.empty() != t.empty()) {
    const std::size_t lines = std::max(s.size(), t.size());
    throw IoError("corpus", {(s.empty() ? source_name : target_name), " is empty, expected ", lines,
                             lines == 1 ? " line, as many as " : " lines, as many as ",
                             (s.empty() ? target_name : source_name), " has"});
  }
  if (s.size() != t.size()) {
    throw IoError(
        "corpus",
        {source_name, " has ", s.size(), " lines and ", target_name, " has ", t.size(),
         ", expected equal numbers: line n of one file must be the translation of line n of the other"});
  }
  ParallelCorpus corpus;
  for (std::size_t i = 0; i < s.size(); ++i) detail::add_pair(corpus, s[i], t[i]);
  detail::require_pairs(corpus, source_name + " and " + target_name, "are");
  return corpus;
}

EIGENFORMER_FUNCTION ParallelCorpus read_parallel_tsv(const std::filesystem::path& path) {
  const std::vector<std::string> lines = read_lines(path);
  ParallelCorpus corpus;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos && !line.empty()) {
      throw IoError("corpus",
                    {"'", path.string(), "', line ", i + 1, " has no tab, expected source, tab, target"});
    }
    const std::string_view target = tab == std::string_view::npos ? line : line.substr(tab + 1);
    detail::add_pair(corpus, line.substr(0, tab), target.substr(0, target.find('\t')));
  }
  detail::require_pairs(corpus, "'" + path.string() + "'", "is");
  return corpus;
}

EIGENFORMER_FUNCTION std::span<const std::int32_t> TokenSequences::operator[](index_t i) const {
  if (i < 0 || i >= size()) {
    throw IndexError("token_sequences", {"index is ", i, ", must be in [0, ", size(), ")"});
  }
  const std::size_t begin = offsets_[static_cast<std::size_t>(i)];
  return {ids_.data() + begin, offsets_[static_cast<std::size_t>(i) + 1] - begin};
}

EIGENFORMER_FUNCTION void TokenSequences::push_back(std::span<const std::int32_t> ids) {
  offsets_.push_back(ids_.size() + ids.size());
  try {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  } catch (...) {
    offsets_.pop_back();
    throw;
  }
}

EIGENFORMER_FUNCTION std::string EncodedCorpus::content() const {
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3u; };
  for (const TokenSequences* side : {&source, &target}) {
    for (index_t i = 0; i < side->size(); ++i) {
      const std::span<const std::int32_t> ids = (*side)[i];
      add(ids.size());
      for (const std::int32_t id : ids) add(static_cast<std::uint32_t>(id));
    }
  }
  for (const std::vector<AlignmentLink>& links : alignment) {
    add(links.size());
    for (const AlignmentLink& link : links) {
      add(static_cast<std::uint64_t>(link.source));
      add(static_cast<std::uint64_t>(link.target));
    }
  }
  return std::to_string(hash);
}

EIGENFORMER_FUNCTION EncodedCorpus encode_corpus(const ParallelCorpus& corpus,
                                                 const TokenizerPair& tokenizers, const TextConventions& text,
                                                 index_t max_length) {
  if (tokenizers.source == nullptr || tokenizers.target == nullptr)
    throw ValueError("encode_corpus", "the model has no tokenizers, must have one for each side");
  if (max_length < 0) {
    throw ValueError("encode_corpus", {"max_length is ", max_length, ", must not be negative"});
  }
  if (corpus.source.size() != corpus.target.size()) {
    throw ValueError("encode_corpus", {corpus.source.size(), " source and ", corpus.target.size(),
                                       " target sentences, expected equal numbers"});
  }
  EncodedCorpus encoded;
  encoded.report = corpus.report;
  encoded.report.read = std::max(encoded.report.read, corpus.size());
  encoded.report.kept = 0;
  for (std::size_t i = 0; i < corpus.source.size(); ++i) {
    const std::vector<std::int32_t> s = tokenizers.source->encode(text.source_text + corpus.source[i]);
    const std::vector<std::int32_t> t = tokenizers.target->encode(corpus.target[i]);
    if (s.empty() || t.empty()) {
      ++encoded.report.empty;
    } else if (max_length > 0 && static_cast<index_t>(std::max(s.size(), t.size())) > max_length) {
      ++encoded.report.over_long;
    } else {
      ++encoded.report.kept;
      encoded.pairs.push_back(static_cast<index_t>(i));
      encoded.source.push_back(s);
      encoded.target.push_back(t);
    }
  }
  if (encoded.size() == 0) {
    throw ValueError("encode_corpus", {"no sentence pair is left of ", encoded.report.str(), " (max_length ",
                                       max_length, " tokens)"});
  }
  return encoded;
}

}  // namespace eigenformer

#endif
