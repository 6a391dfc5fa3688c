#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"

namespace eigenformer::detail {

/// A JSON file that holds an object; errors about its fields name the file.
class JsonFile {
 public:
  /// Reads a file of another library. Throws IoError when it is missing or does not hold a JSON object.
  static JsonFile open(const std::filesystem::path& path) {
    return {"import", path, parse_json(read_text_file(path))};
  }
  /// Reads a file as open() does; an empty object when there is no such file.
  static JsonFile open_if_exists(const std::filesystem::path& path) {
    return file_exists(path) ? open(path) : JsonFile("import", path, nlohmann::json::object());
  }
  /// Reads a file as open() does; the errors are those of `op`, and one is for a name that occurs twice.
  static JsonFile open_unique(const char* op, const std::filesystem::path& path) {
    try {
      return {op, path, parse_unique_json(read_text_file(path))};
    } catch (const ValueError& error) {
      throw IoError(op, {"'", path.string(), "' ", message_of(error)});
    }
  }

  const nlohmann::json& json() const noexcept { return json_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// Whether there is a field of this name that is not null.
  bool has(const std::string& name) const { return json_.contains(name) && !json_.at(name).is_null(); }

  /// The value of a field; `missing` when it is absent or null. Throws IoError for a value of another type.
  template <class X>
  X get(const std::string& name, X missing) const {
    return get_of(json_, name, std::move(missing));
  }
  /// The value of a field. Throws IoError when it is absent, null or of another type.
  template <class X>
  X require(const std::string& name) const {
    if (!has(name)) throw refuse({"has no '", name, "'"});
    return get(name, X{});
  }
  /// A field that is an object itself. Throws IoError when it is absent or no object.
  const nlohmann::json& object(const std::string& name) const {
    if (!has(name) || !json_.at(name).is_object()) throw refuse({"has no '", name, "', expected an object"});
    return json_.at(name);
  }
  /// The value of a field of a part of the file, as get().
  template <class X>
  X get_of(const nlohmann::json& part, const std::string& name, X missing) const {
    if (!part.is_object() || !part.contains(name) || part.at(name).is_null()) return missing;
    try {
      option_from_json(name, part.at(name), missing);
    } catch (const ValueError& error) {
      throw refuse({"is damaged: ", error.what()});
    }
    return missing;
  }

  IoError refuse(std::initializer_list<MessagePart> what) const {
    return IoError(op_, {"'", path_.string(), "' ", join(what)});
  }

 private:
  // Throws IoError unless `json` is an object.
  JsonFile(const char* op, std::filesystem::path path, nlohmann::json json)
      : op_(op), path_(std::move(path)), json_(std::move(json)) {
    if (json_.is_discarded()) throw refuse({"is truncated or not JSON"});
    if (!json_.is_object()) throw refuse({"is not a JSON object"});
  }

  const char* op_;
  std::filesystem::path path_;
  nlohmann::json json_;
};

}  // namespace eigenformer::detail
