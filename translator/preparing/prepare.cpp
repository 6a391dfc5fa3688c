#include "translator/preparing/prepare.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "translator/preparing/file_lines.hpp"
#include "translator/preparing/hash_set.hpp"
#include "translator/preparing/in_order.hpp"
#include "translator/preparing/pair_filter.hpp"
#include "translator/preparing/token_file.hpp"
#include "translator/preparing/word_encoder.hpp"

namespace eigenformer {

namespace {

// Reads pairs in blocks.
class PairReader {
 public:
  // Throws ValueError unless `files` names a source and a target file or one TSV file, and IoError.
  explicit PairReader(const PrepareFiles& files) {
    if (files.tsv.empty() ? files.source.empty() || files.target.empty()
                          : !files.source.empty() || !files.target.empty()) {
      throw ValueError("prepare", "expected a source and a target file, or one file with both sides");
    }
    const auto open_lines = [](std::optional<detail::FileLines>& lines, const std::filesystem::path& path) {
      std::error_code ignored;
      if (std::filesystem::is_directory(path, ignored))
        throw detail::errno_error("prepare", "read", path, EISDIR);
      lines.emplace(path);
    };
    open_lines(source_, files.tsv.empty() ? files.source : files.tsv);
    if (files.tsv.empty()) open_lines(target_, files.target);
  }

  // Reads at most `most` pairs; none at the end. Throws IoError, also for files with different numbers of
  // lines.
  detail::StoredPairs next(std::size_t most) {
    detail::StoredPairs pairs;
    std::string line, other;
    while (pairs.source.size() < most) {
      const bool more = source_->next(line);
      if (target_ && target_->next(other) != more) refuse_unequal(more);
      if (!more) break;
      if (target_) {
        pairs.target.emplace_back(other);
      } else if (const std::size_t tab = line.find('\t'); tab != std::string::npos) {
        pairs.target.emplace_back(line.substr(tab + 1, line.find('\t', tab + 1) - (tab + 1)));
        line.resize(tab);
      } else if (line.empty()) {
        pairs.target.emplace_back(line);
      } else {
        pairs.target.emplace_back(std::nullopt);
      }
      pairs.source.push_back(line);
    }
    return pairs;
  }

 private:
  [[noreturn]] void refuse_unequal(bool source_has_more) {
    detail::FileLines& longer = source_has_more ? *source_ : *target_;
    detail::FileLines& shorter = source_has_more ? *target_ : *source_;
    throw IoError(
        "prepare",
        {"'", longer.name(), "' has more lines than '", shorter.name(), "', which has ", shorter.lines(),
         "; expected equal numbers: line n of one file must be the translation of line n of the other"});
  }

  std::optional<detail::FileLines> source_, target_;
};

// A temporary file that is written once and read once; the destructor removes it.
class Spool {
 public:
  explicit Spool(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw detail::errno_error("prepare", "write", path_, errno);
  }
  ~Spool() {
    end();
    ::unlink(path_.c_str());
  }
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  void write(std::string_view text) {
    const int error = detail::write_all(descriptor_, std::as_bytes(std::span(text)));
    if (error != 0) throw detail::errno_error("prepare", "write", path_, error);
  }
  void end() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Throws IoError when the disk of a folder has too little space to prepare these files: a temporary copy of
// their text, and the tokens, about half of that. The size of compressed text is taken as three times that
// of its file, a low estimate.
void require_room(const PrepareFiles& files, const std::filesystem::path& folder) {
  double text = 0;
  std::error_code error;
  for (const auto& path : {files.source, files.target, files.tsv}) {
    if (path.empty() || !std::filesystem::is_regular_file(path, error)) continue;
    const std::uintmax_t bytes = std::filesystem::file_size(path, error);
    if (!error) text += static_cast<double>(bytes) * (detail::is_compressed(path) ? 3 : 1);
  }
  const auto space = std::filesystem::space(folder, error);
  if (error || static_cast<double>(space.available) >= 1.5 * text) return;
  const auto gigabytes = [](double bytes) {
    std::string number = std::to_string(bytes / 1e9);
    return number.substr(0, number.find('.') + 3) + " GB";
  };
  throw IoError("prepare",
                {"the disk of '", folder.string(), "' has ", gigabytes(static_cast<double>(space.available)),
                 " free, expected about ", gigabytes(1.5 * text)});
}

// Token ids of some clean pairs, and their text.
struct EncodedBlock {
  std::vector<std::string> source, target;
  std::vector<std::vector<std::int32_t>> source_ids, target_ids;
};

// pairs: lines "source<TAB>target". source_text: put before each source to encode it.
EncodedBlock encoded_block(const std::vector<std::string>& pairs, const detail::WordEncoder& source,
                           const detail::WordEncoder& target, const std::string& source_text) {
  EncodedBlock encoded;
  for (const std::string& pair : pairs) {
    const std::size_t tab = pair.find('\t');
    encoded.source.push_back(pair.substr(0, tab));
    encoded.target.push_back(pair.substr(tab + 1));
    encoded.source_ids.push_back(source.encode(source_text + encoded.source.back()));
    encoded.target_ids.push_back(target.encode(encoded.target.back()));
  }
  return encoded;
}

// The implementation of prepare_pairs().
class Preparation {
 public:
  Preparation(const PrepareFiles& files, const std::filesystem::path& folder, const PrepareOptions& options,
              std::function<void(const PrepareProgress&)> progress)
      : options_(options),
        filter_(options),
        reader_(files),
        folder_(folder),
        spool_(folder / "clean.spool"),
        progress_(std::move(progress)),
        threads_(Runtime::instance().threads()) {
    require_room(files, folder);
  }

  // Reads, normalises, filters and deduplicates all text, and draws a sample of it.
  void clean() {
    detail::HashSet seen;
    RandomGenerator rng(options_.seed);
    std::string text;
    detail::in_order(
        threads_,
        [&]() -> std::optional<detail::StoredPairs> {
          detail::StoredPairs pairs = reader_.next(block);
          if (pairs.source.empty()) return std::nullopt;
          return pairs;
        },
        filter_,
        [&](detail::CleanPairs pairs) {
          add(pairs.report);
          text.clear();
          for (std::size_t i = 0; i < pairs.source.size(); ++i) {
            if (options_.deduplicate && !seen.insert(pairs.hashes[i])) {
              ++report_.duplicates;
              continue;
            }
            text += pairs.source[i] + '\t' + pairs.target[i] + '\n';
            ++clean_;
            target_bytes_ += static_cast<double>(pairs.target[i].size());
            draw(rng, std::move(pairs.source[i]), std::move(pairs.target[i]));
          }
          spool_.write(text);
          progress_({"reading", report_.read, 0});
        });
    spool_.end();
    if (report_.read == 0) throw IoError("prepare", "there is no sentence pair, expected at least one");
    if (clean_ == 0) {
      throw IoError("prepare",
                    {"none of ", report_.read, " sentence pairs passes the filters:\n", report_.str()});
    }
  }

  TokenizerPair train_vocabulary() {
    progress_({"vocabulary", sample_.size(), sample_.size()});
    report_.sampled = sample_.size();
    TokenizerOptions options{.kind = options_.tokenizer,
                             .vocabulary_size = options_.vocab_size,
                             .joint = !options_.separate_vocab,
                             .reserved = options_.reserved()};
    options.vocabulary_size =
        detail::planned_vocabulary(options, target_bytes_, {sample_.source, sample_.target});
    return train_tokenizers(options, sample_);
  }

  // Encodes the clean text, except for the pairs held out.
  PrepareReport encode(const TokenizerPair& tokenizers, const std::string& source_text, bool hold_out) {
    sample_ = {};
    report_.source_vocabulary = tokenizers.source->vocabulary_size();
    report_.target_vocabulary = tokenizers.target->vocabulary_size();
    TokenFileWriter writer(folder_ / PreparedNames::tokens, report_.source_vocabulary,
                           report_.target_vocabulary, detail::tokenizer_fingerprint(tokenizers));
    const index_t held = !hold_out || clean_ < 1000 ? 0 : std::min<index_t>(1000, clean_ / 100);
    std::string validation_source, validation_target;
    const detail::WordEncoder source(*tokenizers.source), target(*tokenizers.target);
    detail::FileLines lines(spool_.path());
    index_t at = 0;
    detail::in_order(
        threads_,
        [&]() -> std::optional<std::vector<std::string>> {
          std::vector<std::string> pairs;
          std::string line;
          while (pairs.size() < block && lines.next(line)) pairs.push_back(line);
          if (pairs.empty()) return std::nullopt;
          return pairs;
        },
        [&](const std::vector<std::string>& pairs) {
          return encoded_block(pairs, source, target, source_text);
        },
        [&](const EncodedBlock& pairs) {
          for (std::size_t i = 0; i < pairs.source.size(); ++i, ++at) {
            // Spread evenly.
            if (report_.validation < held && at == report_.validation * clean_ / held + clean_ / held / 2) {
              validation_source += pairs.source[i] + '\n';
              validation_target += pairs.target[i] + '\n';
              ++report_.validation;
            } else if (pairs.source_ids[i].empty() || pairs.target_ids[i].empty()) {
              ++report_.empty;
            } else if (static_cast<index_t>(std::max(pairs.source_ids[i].size(),
                                                     pairs.target_ids[i].size())) > options_.max_length) {
              ++report_.over_long;
            } else {
              writer.add(pairs.source_ids[i], pairs.target_ids[i]);
            }
          }
          progress_({"encoding", at, clean_});
        });
    report_.kept = writer.size();
    report_.source_tokens = writer.source_tokens();
    report_.target_tokens = writer.target_tokens();
    if (report_.kept == 0) {
      throw IoError("prepare", {"every sentence pair has more than ", options_.max_length,
                                " tokens on at least one side:\n", report_.str()});
    }
    writer.commit();
    if (report_.validation > 0) {
      detail::write_file(folder_ / PreparedNames::validation_source, validation_source);
      detail::write_file(folder_ / PreparedNames::validation_target, validation_target);
    }
    return report_;
  }

 private:
  static constexpr std::size_t block = 8192;

  void add(const PrepareReport& more) {
    std::vector<index_t> counts;
    PrepareReport::fields(more, [&](const OptionField&, index_t count) { counts.push_back(count); });
    auto next = counts.begin();
    PrepareReport::fields(report_, [&](const OptionField&, index_t& count) { count += *next++; });
  }

  // Reservoir sampling (Vitter, "Random sampling with a reservoir", 1985, algorithm R).
  void draw(RandomGenerator& rng, std::string source, std::string target) {
    if (clean_ <= options_.sample_pairs) {
      sample_.source.push_back(std::move(source));
      sample_.target.push_back(std::move(target));
      return;
    }
    const auto place = static_cast<std::size_t>(rng.uniform_int(clean_));
    if (place >= sample_.source.size()) return;
    sample_.source[place] = std::move(source);
    sample_.target[place] = std::move(target);
  }

  PrepareOptions options_;
  detail::PairFilter filter_;
  PairReader reader_;
  std::filesystem::path folder_;
  Spool spool_;
  std::function<void(const PrepareProgress&)> progress_;
  int threads_;
  PrepareReport report_;
  ParallelCorpus sample_;
  index_t clean_ = 0;
  double target_bytes_ = 0;  // of the clean pairs
};

}  // namespace

PrepareReport prepare_pairs(const PrepareFiles& files, const std::filesystem::path& folder,
                            const PrepareOptions& options, TokenizerPair& tokenizers,
                            const std::string& source_text, bool hold_out,
                            const std::function<void(const PrepareProgress&)>& progress) {
  Preparation preparation(files, folder, options, progress);
  preparation.clean();
  if (!tokenizers.source) tokenizers = preparation.train_vocabulary();
  return preparation.encode(tokenizers, source_text, hold_out);
}

}  // namespace eigenformer
