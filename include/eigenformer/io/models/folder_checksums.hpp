#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"

namespace eigenformer {

namespace detail {

struct FileChecksum {
  std::uint64_t bytes = 0;
  std::string hash64;  // 16 hexadecimal digits
};

inline std::string hash_text(std::uint64_t hash) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

// Reads by blocks, so that the size of a file does not matter.
inline FileChecksum checksum_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  FileChecksum sum;
  Hash64 hash;
  std::vector<char> block(std::size_t{1} << 18);
  while (file && (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0)) {
    const auto size = static_cast<std::size_t>(file.gcount());
    hash.add(std::string_view(block.data(), size));
    sum.bytes += size;
  }
  if (!file.eof()) throw errno_error("read", "read", path, errno);
  sum.hash64 = hash_text(hash.value());
  return sum;
}

// Returns the text of an options.json that has the checksums of other files, with its own checksum added.
inline std::string options_with_own_checksum(nlohmann::json options) {
  nlohmann::json& own = options["checksums"]["options.json"];
  own = {{"hash64", hash_text(0)}};
  own["hash64"] = hash_text(Hash64::of(options.dump(2) + "\n"));
  return options.dump(2) + "\n";
}

/// Returns the text of an options.json with the checksums of the other files in `folder` and its own
/// checksum, which is computed over the text with zeros in its place.
inline std::string options_with_checksums(nlohmann::json options, const std::filesystem::path& folder,
                                          const std::vector<std::string>& files) {
  nlohmann::json& sums = options["checksums"] = nlohmann::json::object();
  for (const std::string& name : files) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name, ignored)) continue;  // a tokenizer of the caller's own
    const FileChecksum sum = checksum_of_file(folder / name);
    sums[name] = {{"bytes", sum.bytes}, {"hash64", sum.hash64}};
  }
  return options_with_own_checksum(std::move(options));
}

// verify_model_folder() without protection from concurrent writers.
inline int verify_files(const std::filesystem::path& folder) {
  const auto refuse = [&](const std::string& what) {
    return IoError("verify_model_folder", "'" + folder.string() + "' " + what);
  };
  const std::string text = read_text_file(folder_file(folder, "options.json"));
  nlohmann::json json = parse_json(text);
  if (json.is_discarded() || !json.is_object())
    throw refuse("is damaged: options.json is truncated or not JSON");
  if (!json.contains("checksums")) {
    throw refuse("cannot be verified: options.json has no checksums; save the model again to write them");
  }
  nlohmann::json& sums = json.at("checksums");
  std::vector<std::string> failures;
  if (!sums.is_object() || !sums.contains("options.json") || text != json.dump(2) + "\n") {
    throw refuse("is damaged: options.json is not as it was saved");
  }
  const nlohmann::json own = std::exchange(sums["options.json"], nlohmann::json{{"hash64", hash_text(0)}});
  if (own != nlohmann::json{{"hash64", hash_text(Hash64::of(json.dump(2) + "\n"))}}) {
    throw refuse("is damaged: options.json is not as it was saved");
  }
  for (const auto& [name, expected] : sums.items()) {
    if (name == "options.json") continue;
    const std::filesystem::path path = folder_file(folder, name);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
      failures.push_back(name + " is missing");
      continue;
    }
    const FileChecksum sum = checksum_of_file(path);
    if (expected == nlohmann::json{{"bytes", sum.bytes}, {"hash64", sum.hash64}}) continue;
    failures.push_back(name + " has other bytes than were saved");
  }
  if (failures.empty()) return static_cast<int>(sums.size());
  std::string all;
  for (const std::string& failure : failures) all += (all.empty() ? "" : "; ") + failure;
  throw refuse("is damaged: " + all);
}

}  // namespace detail

/// Checks the files of a model folder, of any kind of model, against the sizes and hashes (Hash64) that
/// options.json holds, its own hash included, and returns how many there are: options.json, model.safetensors
/// and the tokenizers. It detects accidental damage, not deliberate changes. Loading does not check, so that
/// a folder may be edited. Throws IoError that names each file that is missing or changed, and for a folder
/// without checksums, as version 0.1.0 wrote them.
///
///     ef::verify_model_folder("en-de");
inline int verify_model_folder(const std::filesystem::path& folder) {
  return read_folder(folder, {"options.json", "model.safetensors"},
                     [&] { return detail::verify_files(folder); });
}

}  // namespace eigenformer
