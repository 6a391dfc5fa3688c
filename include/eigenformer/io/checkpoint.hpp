#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/random.hpp"
#include "eigenformer/io/safetensors.hpp"
#include "eigenformer/nn/module.hpp"

namespace eigenformer {

/// The tensors of a file as a state dict, sorted by name, converted to T; unconverted ones share the mapped
/// file. Throws IoError for a tensor that is not floating-point.
template <class T>
std::vector<StateEntry<T>> read_state_dict(const SafetensorsFile& file) {
  std::vector<StateEntry<T>> entries;
  for (const std::string& name : file.names()) entries.push_back({name, file.tensor<T>(name), {}});
  return entries;
}

/// Writes a module's state dict, with PyTorch's names and shapes, to a safetensors file, atomically. A tied
/// parameter is stored once, under its first name. Throws IoError; an existing file is then unchanged.
template <class M>
void save_model(const std::filesystem::path& path, const M& model,
                const std::map<std::string, std::string>& metadata = {}) {
  SafetensorsWriter writer;
  // What other readers of the format ask for before they accept PyTorch's names.
  writer.set_metadata("format", "pt");
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  for (const auto& entry : state_dict(model)) {
    if (entry.alias_of.empty()) writer.add(entry.name, entry.value);
  }
  writer.save(path);
}

/// Reads a safetensors file into a module of the same structure; float types are converted, and a tied
/// parameter may be stored under any of its names. Returns the file's metadata. Throws IoError that names the
/// file and *all* missing, unexpected and misshaped tensors; the module is then unchanged.
template <class M>
std::map<std::string, std::string> load_model(const std::filesystem::path& path, M& model) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto entries = read_state_dict<typename M::value_type>(file);
  try {
    load_state_dict(model, entries);
  } catch (const ValueError& error) {
    throw IoError("load_model", "'" + path.string() + "' does not fit the model: " + error.what());
  }
  return file.metadata();
}

/// What training needs besides the weights to go on as if it had not stopped: an optimizer's moments as named
/// tensors; step counters, generator states and the like as JSON.
template <class T>
struct TrainingState {
  std::vector<std::pair<std::string, Tensor<T>>> tensors;
  nlohmann::json values = nlohmann::json::object();
};

/// Writes a training state to one safetensors file, atomically; numbers come back with the same bits.
/// Throws ValueError for a name used twice, and IoError; an existing file is then unchanged.
template <class T>
void save_training_state(const std::filesystem::path& path, const TrainingState<T>& state) {
  save_safetensors(path, state.tensors, {{"training_state", state.values.dump()}});
}

/// Reads what save_training_state wrote; the tensors, sorted by name, share the mapped file, copy-on-write.
/// Throws IoError for any other file.
template <class T>
TrainingState<T> load_training_state(const std::filesystem::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto text = file.metadata().find("training_state");
  if (text == file.metadata().end()) {
    throw IoError("load_training_state", "'" + path.string() + "' holds no training state");
  }
  TrainingState<T> state;
  try {
    state.values = nlohmann::json::parse(text->second);
  } catch (const nlohmann::json::exception& error) {
    throw IoError("load_training_state",
                  "'" + path.string() + "' holds a damaged training state: " + error.what());
  }
  for (const std::string& name : file.names()) state.tensors.emplace_back(name, file.tensor<T>(name));
  return state;
}

/// A random generator's state as JSON, for TrainingState::values.
inline void to_json(nlohmann::json& json, const RandomGenerator::State& state) {
  json = {{"seed", state.seed}, {"position", state.position}};
}

/// Reads a random generator's state. Throws IoError when the JSON holds none.
inline void from_json(const nlohmann::json& json, RandomGenerator::State& state) {
  const auto number = [&](const char* key) {
    if (!json.is_object() || !json.contains(key) || !json.at(key).is_number_unsigned()) {
      throw IoError("load_training_state", std::string("a generator's state lacks the number '") + key + "'");
    }
    return json.at(key).get<std::uint64_t>();
  };
  state.seed = number("seed");
  state.position = number("position");
}

}  // namespace eigenformer
