#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"

namespace translator {

/// Names and values of everything besides the input that determines the results of a run.
using RunIdentity = std::map<std::string, std::string>;

/// A 64-bit hash of a file's bytes; not cryptographic.
inline std::string content_hash(const std::filesystem::path& path) {
  const auto file = eigenformer::detail::MappedFile::open(path);
  const auto bytes = file->bytes();
  std::uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u + 1;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    hash = (hash ^ word) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 29;
  }
  return std::to_string(hash);
}

/// Adds the files of a folder; owner: of what it is the folder, such as "the model".
inline void add_folder(RunIdentity& identity, const std::string& owner, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code ignored; it->is_regular_file(ignored))
      identity[owner + "'s file " + it->path().filename().string()] = content_hash(it->path());
  if (error) throw eigenformer::detail::errno_error("translate", "read the folder", folder, error.value());
}

/// The first difference between two runs, for messages; empty: none.
inline std::string difference(const RunIdentity& before, const RunIdentity& now) {
  const auto value = [](const RunIdentity& of, const std::string& name) {
    const auto found = of.find(name);
    return found == of.end() ? std::string("not given") : "'" + found->second + "'";
  };
  for (const RunIdentity* names : {&before, &now}) {
    for (const auto& [name, ignored] : *names) {
      const std::string then = value(before, name), current = value(now, name);
      if (then == current) continue;
      if (name.starts_with("the ") || name.starts_with("content of ")) return name + " has changed";
      return name + " was " + then + " and is " + current;
    }
  }
  return {};
}

}  // namespace translator
