#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

namespace detail {

/// Loads a module from the tensors `given` of `source`, by its is_mapped(), tensor() and read_into(). `path`
/// is for messages.
template <class M, class Source>
LoadReport load_given(M& module, const Source& source, const std::vector<GivenTensor>& given,
                      const std::filesystem::path& path, const LoadOptions& options) {
  using T = typename M::value_type;
  std::map<std::string, Tensor<T>*> targets;
  for_each_field(module, [&](const std::string& name, auto& member) {
    if constexpr (is_instance<std::remove_cvref_t<decltype(member)>, Parameter>) {
      if (member.defined()) targets.emplace(name, &member.value());
    } else {
      targets.emplace(name, &member.value);
    }
  });
  std::vector<std::pair<Tensor<T>*, Tensor<T>>> views;          // what a tensor of the module becomes
  std::vector<std::pair<const std::string*, Tensor<T>>> reads;  // by name, into memory of the module
  try {
    const LoadReport report = match_state_dict(
        state_dict(module), given, options,
        [&](std::size_t i) { return source.template tensor<T>(given[i].name); },
        [&](const StateEntry<T>& entry, std::size_t i) {
          const auto target = targets.find(entry.name);
          const std::string& name = given[i].name;
          if (target == targets.end() && !entry.value.defined()) {
            throw ValueError("load_state_dict", {"'", entry.name, "' has no memory to read rows into"});
          } else if (target != targets.end() &&
                     (!entry.value.defined() || (options.map && source.template is_mapped<T>(name)))) {
            views.emplace_back(target->second, source.template tensor<T>(name));
          } else {
            reads.emplace_back(&name, entry.value);
          }
        });
    // All memory is there, so that either all values change or none.
    for (auto& [name, target] : reads) source.read_into(*name, target);
    for (auto& [target, value] : views) *target = std::move(value);
    return report;
  } catch (const ValueError& error) {
    throw IoError("load_state_dict", {"'", path.string(), "' does not fit the module: ", message_of(error)});
  }
}

inline void require_entries(std::size_t count) {
  if (count > 0) return;
  throw ValueError("save_model", "the module has no parameters to save; it may have been moved from");
}

inline std::string unfit_for_parameters(Dtype dtype) {
  return is_floating_point(dtype) ? std::string()
                                  : std::string("is ") + dtype_name(dtype) + ", must be floating-point";
}

}  // namespace detail

/// Loads a module from a file with PyTorch's names and shapes, written by
/// safetensors.torch.save_file(module.state_dict()) or save_model(). Floating-point types are converted;
/// parameters of the file's own type share the mapped memory (see LoadOptions). A tied parameter may be
/// stored under any of its names; tensors under several must be equal. Returns the names without a
/// counterpart, of which there are none when options.strict is true. Throws IoError that names the file and
/// *all* missing, unexpected and misshaped tensors and tied ones with different values; the module is then
/// unchanged.
///
///     auto file = ef::SafetensorsFile::open("encoder.safetensors");
///     auto rename = [](const std::string& name) { return name.substr(8); };
///     ef::load_state_dict(encoder, file, {.strict = false, .rename = rename});
template <class M>
LoadReport load_state_dict(M& module, const SafetensorsFile& file, const LoadOptions& options = {}) {
  std::vector<detail::GivenTensor> given;
  for (const std::string& name : file.names()) {
    const TensorInfo& info = file.info(name);
    given.push_back({name, info.shape, detail::unfit_for_parameters(info.dtype)});
  }
  for (const auto& [name, stored] : file.aliases()) {
    const TensorInfo& info = file.info(stored);
    given.push_back({name, info.shape, detail::unfit_for_parameters(info.dtype), true});
  }
  // Each load makes its own mapping, so that two modules loaded from one file do not share weights.
  return detail::load_given(module, options.map ? file.again() : file, given, file.path(), options);
}

/// Writes a module's state dict, with PyTorch's names and shapes, to a safetensors file, atomically. A tied
/// parameter is stored once, under its first name. metadata: further texts in UTF-8. Throws ValueError for
/// texts that are not UTF-8, for weights whose memory was released and for a module without any, as one that
/// was moved from, IoError when writing fails; an existing file is then unchanged.
template <class M>
void save_model(const std::filesystem::path& path, const M& model,
                const std::map<std::string, std::string>& metadata = {}) {
  const auto entries = state_dict(model);
  detail::require_entries(entries.size());
  SafetensorsWriter writer;
  // Other readers of the format require this for PyTorch's names.
  writer.set_metadata("format", "pt");
  for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
  for (const auto& entry : entries) {
    if (entry.alias_of.empty()) writer.add(entry.name, entry.value);
  }
  writer.save(path);
}

/// Opens a safetensors file and loads it into a module, as load_state_dict() does. Returns the file's
/// metadata. Throws IoError that names the file and *all* missing, unexpected and misshaped tensors; the
/// module is then unchanged.
template <class M>
std::map<std::string, std::string> load_model(const std::filesystem::path& path, M& model,
                                              const LoadOptions& options = {}) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  load_state_dict(model, file, options);
  return file.metadata();
}

/// The state that training needs besides the weights to resume bit-identically.
template <class T>
struct TrainingState {
  std::vector<std::pair<std::string, Tensor<T>>> tensors;  ///< by name, such as an optimizer's moments
  nlohmann::json values = nlohmann::json::object();  ///< step counters, states of random generators and so on
};

namespace detail {

// Detects damage, not manipulation. Words of 8 bytes are mixed into four sums in turn, which are independent,
// so that the CPU computes them in parallel.
EIGENFORMER_IO_FUNCTION std::uint64_t bytes_checksum(std::uint64_t seed, const void* data, std::size_t size);

// Over names, tensors and values; independent of the order of the tensors.
template <class T>
std::string state_checksum(const TrainingState<T>& state, const std::string& values) {
  std::uint64_t sum = bytes_checksum(1, values.data(), values.size());
  for (const auto& [name, tensor] : state.tensors) {
    sum += bytes_checksum(bytes_checksum(2, name.data(), name.size()), tensor.data(),
                          static_cast<std::size_t>(tensor.numel()) * sizeof(T));
  }
  return std::to_string(sum);
}

}  // namespace detail

/// Writes a training state to one safetensors file, with a checksum, atomically; loading restores it
/// bit-identically. Throws ValueError for a name used twice, IoError when writing fails; an existing file is
/// then unchanged.
template <class T>
void save_training_state(const std::filesystem::path& path, const TrainingState<T>& state) {
  const std::string values = state.values.dump();
  save_safetensors(path, state.tensors,
                   {{"training_state", values}, {"checksum", detail::state_checksum(state, values)}});
}

/// Loads what save_training_state() wrote; the tensors, sorted by name, share the mapped file, copy-on-write.
/// Throws IoError that names the file when it is not a training state or its checksum does not match.
template <class T>
TrainingState<T> load_training_state(const std::filesystem::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto text = file.metadata().find("training_state");
  if (text == file.metadata().end()) {
    throw IoError("load_training_state", {"'", path.string(), "' holds no training state"});
  }
  TrainingState<T> state;
  state.values = detail::parse_json(text->second);
  if (state.values.is_discarded()) {
    throw IoError("load_training_state",
                  {"'", path.string(), "' holds a damaged training state: its values are not JSON"});
  }
  for (const std::string& name : file.names()) state.tensors.emplace_back(name, file.tensor<T>(name));
  for (const auto& alias : file.aliases())
    state.tensors.emplace_back(alias.first, file.tensor<T>(alias.second));
  // Converted tensors have other bytes.
  const auto checksum = file.metadata().find("checksum");
  const bool converted = std::any_of(file.infos().begin(), file.infos().end(), [](const TensorInfo& info) {
    return info.dtype != detail::dtype_of<T>();
  });
  if (!converted && (checksum == file.metadata().end() ||
                     checksum->second != detail::state_checksum(state, text->second))) {
    throw IoError("load_training_state",
                  {"'", path.string(), "' holds a damaged training state: its checksum does not match"});
  }
  return state;
}

/// A random generator's state as JSON, for TrainingState::values.
EIGENFORMER_IO_FUNCTION void to_json(nlohmann::json& json, const RandomGenerator::State& state);

/// Reads a random generator's state from JSON. Throws IoError when it is missing or invalid.
EIGENFORMER_IO_FUNCTION void from_json(const nlohmann::json& json, RandomGenerator::State& state);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION std::uint64_t bytes_checksum(std::uint64_t seed, const void* data, std::size_t size) {
  constexpr std::uint64_t prime = 0x9E3779B97F4A7C15u;
  std::array<std::uint64_t, 4> lanes = {seed, seed + 1, seed + 2, seed + 3};
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::size_t lane = 0;
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<std::size_t>(8, size - at));
    std::uint64_t& sum = lanes[lane++ % 4];
    sum = std::rotl((sum ^ word) * prime, 29);
  }
  std::uint64_t all = seed ^ size;
  for (const std::uint64_t sum : lanes) all = std::rotl((all ^ sum) * prime, 31);
  return all;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION void to_json(nlohmann::json& json, const RandomGenerator::State& state) {
  json = {{"seed", state.seed}, {"position", state.position}};
}

EIGENFORMER_IO_FUNCTION void from_json(const nlohmann::json& json, RandomGenerator::State& state) {
  const auto number = [&](const char* key) {
    if (!json.is_object() || !json.contains(key) || !json.at(key).is_number_unsigned()) {
      throw IoError("load_training_state", {"a generator's state lacks the number '", key, "'"});
    }
    return json.at(key).get<std::uint64_t>();
  };
  state.seed = number("seed");
  state.position = number("position");
}

}  // namespace eigenformer

#endif
