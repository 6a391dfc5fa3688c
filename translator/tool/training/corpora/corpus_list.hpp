#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "options/corpus_options.hpp"
#include "translator/preparing/prepare_options.hpp"

namespace translator {

/// One corpus of a training.
struct CorpusEntry {
  std::string source, target, tsv;
  std::string data;  ///< instead of these: the folder of a prepared corpus
  std::string valid_source, valid_target;
  std::string target_language;  ///< such as "de": its token, "<2de>", is placed before each source sentence
  std::string tag;              ///< such as "<bt>", a further token before each source sentence
  double weight = 0;            ///< 0: by size

  /// The name of the corpus in messages.
  std::string name() const {
    return source.empty() ? "'" + tsv + data + "'" : "'" + source + "' with '" + target + "'";
  }
  /// The tokens that are placed before its source sentences.
  std::vector<std::string> tags() const {
    std::vector<std::string> found;
    if (!target_language.empty()) found.push_back("<2" + target_language + ">");
    if (!tag.empty()) found.push_back(tag);
    return found;
  }
};

namespace detail {

using ef::detail::parts_of;

inline void set_weights(std::vector<CorpusEntry>& entries, const std::string& weights) {
  const std::vector<std::string> parts = parts_of(weights, ',');
  if (parts.size() != entries.size()) {
    throw ef::ValueError("train", {"--corpus-weights has ", parts.size(), " weights for ", entries.size(),
                                   " corpora, expected one for each"});
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto [end, error] =
        std::from_chars(parts[k].data(), parts[k].data() + parts[k].size(), entries[k].weight);
    if (error != std::errc() || end != parts[k].data() + parts[k].size() || !(entries[k].weight > 0))
      throw ef::ValueError("train", {"--corpus-weights has '", parts[k], "', expected numbers above 0"});
  }
}

// {"source": ..., "target": ...}, with paths relative to the list's folder.
inline CorpusEntry entry_from_json(const nlohmann::json& json, const std::string& where,
                                   const std::filesystem::path& folder) {
  if (!json.is_object()) throw ef::ValueError("train", {where, " is ", json.dump(), ", expected an object"});
  CorpusEntry entry;
  for (const auto& [name, value] : json.items()) {
    if (name == "weight") {
      if (!value.is_number() || !(value.get<double>() > 0))
        throw ef::ValueError("train",
                             {where, " has the weight ", value.dump(), ", expected a number above 0"});
      entry.weight = value.get<double>();
      continue;
    }
    std::string* const field = name == "source"            ? &entry.source
                               : name == "target"          ? &entry.target
                               : name == "tsv"             ? &entry.tsv
                               : name == "data"            ? &entry.data
                               : name == "valid_source"    ? &entry.valid_source
                               : name == "valid_target"    ? &entry.valid_target
                               : name == "target_language" ? &entry.target_language
                               : name == "tag"             ? &entry.tag
                                                           : nullptr;
    if (field == nullptr) {
      throw ef::ValueError("train", {where, " has '", name,
                                     "', expected source, target, tsv, data, valid_source, valid_target, "
                                     "target_language, tag or weight"});
    }
    if (!value.is_string() || value.get<std::string>().empty())
      throw ef::ValueError("train",
                           {where, " has ", name, " ", value.dump(), ", expected a non-empty string"});
    *field = value.get<std::string>();
    if (field != &entry.target_language && field != &entry.tag) *field = (folder / *field).string();
  }
  return entry;
}

inline std::vector<CorpusEntry> read_corpus_list(const std::string& path) {
  const std::string name = "'" + path + "'";
  nlohmann::json json;
  try {
    json = ef::detail::parse_unique_json(ef::detail::read_text_file(path));
  } catch (const ef::ValueError& error) {
    throw ef::IoError("train", {name, " ", ef::detail::message_of(error)});
  }
  if (json.is_discarded()) throw ef::IoError("train", {name, " is not JSON"});
  if (!json.is_array() || json.empty())
    throw ef::ValueError(
        "train", {name, " has no list of corpora, expected [{\"source\": ..., \"target\": ...}, ...]"});
  std::vector<CorpusEntry> entries;
  for (std::size_t k = 0; k < json.size(); ++k) {
    entries.push_back(entry_from_json(json[k], "corpus " + std::to_string(k + 1) + " of " + name,
                                      std::filesystem::path(path).parent_path()));
  }
  return entries;
}

// Whether one of the three ways to give a corpus is used: both of source and target, tsv, or data.
inline bool is_one_kind(const std::string& source, const std::string& target, const std::string& tsv,
                        const std::string& data) {
  return source.empty() == target.empty() &&
         int{!source.empty()} + int{!tsv.empty()} + int{!data.empty()} == 1;
}

// The corpora that --source and --target, --tsv or --data name.
inline std::vector<CorpusEntry> entries_of_files(const CorpusOptions& s) {
  const auto sources = parts_of(s.source, '\n'), targets = parts_of(s.target, '\n');
  if (!is_one_kind(s.source, s.target, s.tsv, s.data))
    throw ef::ValueError("train",
                         "give --source and --target, or one of --tsv, --data and --corpora instead");
  if (sources.size() != targets.size()) {
    throw ef::ValueError("train", {"--source is given ", sources.size(), " times and --target ",
                                   targets.size(), " times, expected equal numbers"});
  }
  std::vector<CorpusEntry> entries;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    CorpusEntry& entry = entries.emplace_back();
    entry.source = sources[k];
    entry.target = targets[k];
  }
  for (const std::string& file : parts_of(s.tsv, '\n')) entries.emplace_back().tsv = file;
  for (const std::string& folder : parts_of(s.data, '\n')) entries.emplace_back().data = folder;
  return entries;
}

}  // namespace detail

/// The corpora of a training: those of --corpora, or of --source and --target or --tsv, which may be
/// repeated. Throws ValueError for conflicting options and IoError for a list that cannot be read.
inline std::vector<CorpusEntry> corpus_entries(const CorpusOptions& s) {
  std::vector<CorpusEntry> entries;
  if (!s.corpora.empty()) {
    if (!s.source.empty() || !s.target.empty() || !s.tsv.empty() || !s.data.empty())
      throw ef::ValueError("train", "give --corpora, or --source and --target, or --tsv, or --data");
    entries = detail::read_corpus_list(s.corpora);
  } else {
    entries = detail::entries_of_files(s);
  }
  for (std::size_t k = 0; k < entries.size(); ++k) {
    const CorpusEntry& e = entries[k];
    const std::string where = "corpus " + std::to_string(k + 1);
    if (!detail::is_one_kind(e.source, e.target, e.tsv, e.data))
      throw ef::ValueError("train", {where, " needs source and target, or tsv or data instead of both"});
    if (e.valid_source.empty() != e.valid_target.empty())
      throw ef::ValueError("train", {where, " needs both valid_source and valid_target, or neither"});
    for (const std::string& tag : e.tags()) {
      if (!ef::detail::is_tag(tag))
        throw ef::ValueError("train", {where, " has the tag '", tag, "', expected one such as <bt>"});
    }
    if (e.target_language.empty() != entries[0].target_language.empty())
      throw ef::ValueError("train",
                           "some corpora have a target_language and others do not; expected all or none");
    if ((e.weight > 0) != (entries[0].weight > 0))
      throw ef::ValueError("train", "some corpora have a weight and others do not; expected all or none");
    if (!e.valid_source.empty() && !s.valid_source.empty())
      throw ef::ValueError("train", {where, " has a valid_source; leave out --valid-source"});
    if (!s.valid_source.empty() && e.target_language != entries[0].target_language) {
      throw ef::ValueError("train",
                           "--valid-source has no target language; give valid_source and valid_target in the "
                           "list of --corpora instead");
    }
  }
  if (!s.corpus_weights.empty()) {
    if (entries[0].weight > 0)
      throw ef::ValueError("train", "give --corpus-weights or weights in the list of --corpora, not both");
    detail::set_weights(entries, s.corpus_weights);
  }
  if (s.corpus_temperature != 1) {
    if (entries.size() == 1)
      throw ef::ValueError("train",
                           "--corpus-temperature has no effect on a single corpus; give several corpora");
    if (entries[0].weight > 0)
      throw ef::ValueError("train", "give --corpus-temperature or weights of the corpora, not both");
  }
  return entries;
}

/// The folders of the prepared corpora of a training; empty without any.
inline std::vector<std::string> prepared_folders(const CorpusOptions& s) {
  std::vector<std::string> folders;
  if (s.data.empty() && s.corpora.empty()) return folders;
  for (const CorpusEntry& entry : corpus_entries(s)) {
    if (!entry.data.empty()) folders.push_back(entry.data);
  }
  return folders;
}

}  // namespace translator
