#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/corpus/alignment_model.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"

namespace eigenformer {

/// A lexical shortlist: the likely translations of each source id, and the number of first target ids, which
/// are the most frequent ones, that are always allowed. Decoding with it computes the scores of these target
/// ids alone (Jean et al. 2015, 3.2; Mi et al. 2016). Its file format is Marian's binary lex.s2t.bin.
///
///     const auto shortlist = ef::Shortlist::load("lex.s2t.bin");
///     std::vector<std::int32_t> ids = shortlist.choose(source_ids);
class Shortlist {
 public:
  Shortlist() = default;

  /// lists: target ids for each source id, in any order; repeated ones count once. first: target ids below it
  /// are always chosen. Throws ValueError for negative numbers.
  Shortlist(index_t first, std::vector<std::vector<std::int32_t>> lists);

  /// Makes a shortlist of the `best` most probable target ids of each source id. Throws ValueError when
  /// `first` or `best` is negative.
  static Shortlist from_lexicon(const Lexicon& lexicon, index_t first, index_t best);

  /// Reads a binary shortlist of Marian. Throws IoError naming the file and what was expected.
  static Shortlist load(const std::filesystem::path& path) {
    return parse(detail::read_text_file(path), path.string());
  }

  /// Parses the bytes of such a file; messages call it `name`. Throws IoError.
  static Shortlist parse(const std::string& bytes, const std::string& name);

  /// Writes Marian's binary format. with_source_ids() is not part of it. Throws IoError.
  void save(const std::filesystem::path& path) const;

  /// Returns a copy for which choose() also chooses the source ids themselves, so that names can be copied;
  /// for a joint vocabulary.
  Shortlist with_source_ids(bool shared = true) const {
    Shortlist result = *this;
    result.source_ids_ = shared;
    return result;
  }

  /// Target ids below this are always chosen.
  index_t first() const noexcept { return first_; }
  /// Number of source ids that have a list, which may be empty.
  index_t source_size() const noexcept { return static_cast<index_t>(offsets_.size()) - 1; }
  /// The target ids of a source id in ascending order, without a copy; empty for an id without a list.
  std::span<const std::int32_t> list(std::int32_t source) const noexcept {
    if (source < 0 || source >= source_size()) return {};
    const auto i = static_cast<std::size_t>(source);
    return std::span(ids_).subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }

  /// The target ids to score for source ids, which may come from several sentences: the first ids, the lists
  /// of all sources, the sources themselves after with_source_ids(), and the lowest ids not yet chosen, to
  /// make their number a multiple of eight. In ascending order, below `vocabulary`; the same choice as
  /// Marian's.
  std::vector<std::int32_t> choose(std::span<const std::int32_t> sources, index_t vocabulary) const;

 private:
  struct Header {
    std::uint64_t magic, checksum, first, best, offsets, ids;
  };
  static constexpr std::uint64_t magic = 0xF11A48D5013417F5;

  // Over the 64-bit words that follow the checksum; half a word at the end is left out, as in Marian.
  static std::uint64_t checksum(const std::string& bytes);

  index_t first_ = 0;
  std::size_t best_ = 0;
  bool source_ids_ = false;
  std::vector<std::size_t> offsets_{0};  // by source id, and one more
  std::vector<std::int32_t> ids_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION Shortlist::Shortlist(index_t first, std::vector<std::vector<std::int32_t>> lists)
    : first_(first) {
  if (first < 0) throw ValueError("shortlist", {"first is ", first, ", must not be negative"});
  for (auto& list : lists) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (!list.empty() && list.front() < 0)
      throw ValueError("shortlist", {"a target id is ", list.front(), ", must not be negative"});
    best_ = std::max(best_, list.size());
    ids_.insert(ids_.end(), list.begin(), list.end());
    offsets_.push_back(ids_.size());
  }
}

EIGENFORMER_FUNCTION Shortlist Shortlist::from_lexicon(const Lexicon& lexicon, index_t first, index_t best) {
  if (best < 0) throw ValueError("shortlist", {"best is ", best, ", must not be negative"});
  std::vector<std::vector<std::int32_t>> lists(lexicon.size());
  for (std::size_t s = 0; s < lexicon.size(); ++s) {
    auto entries = lexicon[s];
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    if (entries.size() > static_cast<std::size_t>(best)) entries.resize(static_cast<std::size_t>(best));
    for (const auto& entry : entries) lists[s].push_back(entry.first);
  }
  return {first, std::move(lists)};
}

EIGENFORMER_FUNCTION Shortlist Shortlist::parse(const std::string& bytes, const std::string& name) {
  const auto refuse = [&](std::initializer_list<detail::MessagePart> what) {
    return IoError("shortlist", {"'", name, "' ", detail::join(what)});
  };
  Header head;
  if (bytes.size() < sizeof head) {
    throw refuse({"has ", bytes.size(), " bytes, expected at least ", sizeof head,
                  ", the header of a binary shortlist"});
  }
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != magic)
    throw refuse({"is not a binary shortlist: its first eight bytes are not those of the format"});
  const std::size_t left = bytes.size() - sizeof head;
  // Checked before sizes are multiplied.
  if (head.offsets > left / 8 || head.ids > left / 4 || 8 * head.offsets + 4 * head.ids != left) {
    throw refuse({"is truncated or damaged: ", head.offsets, " offsets and ", head.ids,
                  " ids do not fill the ", left, " bytes that follow"});
  }
  if (head.checksum != checksum(bytes)) throw refuse({"is damaged: its checksum does not match"});
  if (head.offsets == 0) throw refuse({"has no offsets, expected one more than source ids"});
  constexpr std::uint64_t most = 0x7fffffff;
  if (head.first > most) throw refuse({"has ", head.first, " first ids, expected less than 2^31"});
  Shortlist result;
  result.first_ = static_cast<index_t>(head.first);
  result.best_ = static_cast<std::size_t>(std::min(head.best, most));
  const char* at = bytes.data() + sizeof head;
  std::uint64_t before = 0;
  for (std::uint64_t i = 0; i < head.offsets; ++i, at += 8) {
    const auto offset = detail::load_as<std::uint64_t>(at);
    if (offset < before || offset > head.ids || (i == 0 && offset != 0))
      throw refuse({"has offset ", offset, " of source id ", i, ", expected ", before, " to ", head.ids});
    before = offset;
    if (i > 0) result.offsets_.push_back(static_cast<std::size_t>(offset));
  }
  if (before != head.ids) throw refuse({"has ", head.ids, " ids, but its lists end at ", before});
  for (; at < bytes.data() + bytes.size(); at += 4) {
    const auto id = detail::load_as<std::uint32_t>(at);
    if (id > most) throw refuse({"has the target id ", id, ", expected less than 2^31"});
    result.ids_.push_back(static_cast<std::int32_t>(id));
  }
  return result;
}

EIGENFORMER_FUNCTION void Shortlist::save(const std::filesystem::path& path) const {
  Header head{magic, 0, static_cast<std::uint64_t>(first_), best_, offsets_.size(), ids_.size()};
  const std::vector<std::uint64_t> offsets(offsets_.begin(), offsets_.end());
  std::string bytes(sizeof head, '\0');
  bytes.append(reinterpret_cast<const char*>(offsets.data()), 8 * offsets.size());
  bytes.append(reinterpret_cast<const char*>(ids_.data()), 4 * ids_.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  head.checksum = checksum(bytes);
  std::memcpy(bytes.data(), &head, sizeof head);
  detail::write_file(path, bytes);
}

EIGENFORMER_FUNCTION std::vector<std::int32_t> Shortlist::choose(std::span<const std::int32_t> sources,
                                                                 index_t vocabulary) const {
  std::vector<bool> taken(static_cast<std::size_t>(std::max<index_t>(0, vocabulary)));
  std::size_t count = 0;
  const auto take = [&](std::int64_t id) {
    if (id < 0 || id >= vocabulary || taken[static_cast<std::size_t>(id)]) return;
    taken[static_cast<std::size_t>(id)] = true;
    ++count;
  };
  for (index_t id = 0; id < std::min(first_, vocabulary); ++id) take(id);
  for (const std::int32_t source : sources) {
    for (const std::int32_t id : list(source)) take(id);
    if (source_ids_) take(source);
  }
  for (index_t id = first_; count % 8 != 0 && id < vocabulary; ++id) take(id);
  std::vector<std::int32_t> chosen;
  chosen.reserve(count);
  for (std::size_t id = 0; id < taken.size(); ++id) {
    if (taken[id]) chosen.push_back(static_cast<std::int32_t>(id));
  }
  return chosen;
}

EIGENFORMER_FUNCTION std::uint64_t Shortlist::checksum(const std::string& bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 16; at + 8 <= bytes.size(); at += 8) {
    sum ^= detail::load_as<std::uint64_t>(bytes.data() + at) + 0x9e3779b9 + (sum << 6) + (sum >> 2);
  }
  return sum;
}

}  // namespace eigenformer

#endif
