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
#include <variant>
#include <vector>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/hash64.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "eigenformer/nn/attention/positional_encoding.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer::detail {

/// Compares the sizes in a folder's options with the tensors of its file, before memory for a model of these
/// sizes is allocated. Each check throws IoError that names the file, the tensor and the option.
class FolderSizes {
 public:
  explicit FolderSizes(const std::filesystem::path& path) : file_(SafetensorsFile::open(path)) {
    for (const TensorInfo& info : file_.infos()) numbers_ += static_cast<double>(info.shape.numel());
  }

  /// Requires a tensor with this size along an axis.
  void require(const std::string& name, int axis, index_t size, const char* option) const;
  /// As require(), but for an optional tensor, which layers of the caller's own may lack.
  void require_if_there(const std::string& name, int axis, index_t size, const char* option) const {
    if (file_.contains(name)) require(name, axis, size, option);
  }
  /// Requires a tensor whose name begins with `prefix`.
  void require_some(const std::string& prefix) const {
    for (const TensorInfo& info : file_.infos()) {
      if (info.name.starts_with(prefix)) return;
    }
    throw lacks(prefix + "...");
  }
  /// Requires that a matrix of the model does not have more elements than the whole file.
  void require_room(const char* rows_option, index_t rows, const char* columns_option, index_t columns) const;

  /// Checks the layers of the stack `name`, such as "encoder".
  void require_stack(const std::string& name, const StackOptions<LayerOptions>& stack) const;

 private:
  IoError lacks(const std::string& name) const {
    return IoError("load_model_folder",
                   {"'", file_.path().string(), "' has no tensor '", name, "', which options.json requires"});
  }

  SafetensorsFile file_;
  double numbers_ = 0;
};

template <class Options>
void require_sizes(const std::filesystem::path& path, const Options& o) {
  const FolderSizes sizes(path);
  if constexpr (requires {
                  o.source_vocab_size;
                  o.layer.d_model;
                }) {
    sizes.require("source_embedding.weight", 0, o.source_vocab_size, "source_vocab_size");
    sizes.require("source_embedding.weight", 1, o.layer.d_model, "d_model");
  }
  if constexpr (requires {
                  o.layer.d_model;
                  o.layer.dim_feedforward;
                }) {
    sizes.require_room("d_model", o.layer.d_model, "dim_feedforward", o.layer.dim_feedforward);
    if constexpr (requires { o.vocab_size + 0; })
      sizes.require_room("vocab_size", o.vocab_size, "d_model", o.layer.d_model);
    if constexpr (requires { o.num_layers + 0; })
      sizes.require_room("num_layers", o.num_layers, "d_model", o.layer.d_model);
  }
  if constexpr (requires { o.transformer().encoder_options(); }) {
    sizes.require_stack("encoder", o.transformer().encoder_options());
    sizes.require_stack("decoder", o.transformer().decoder_options());
  }
  if constexpr (requires {
                  input_positions(o.positions, o.layer);
                  o.max_length;
                }) {
    const InputPositions positions = input_positions(o.positions, o.layer);
    if (const auto* learned = std::get_if<LearnedPositions>(&positions)) {
      const char* option = learned->offset == 0 ? "max_length" : "learned_position_offset + max_length";
      sizes.require_room(option, learned->offset + o.max_length, "d_model", o.layer.d_model);
      sizes.require_if_there("source_positions.weight", 0, learned->offset + o.max_length, option);
    }
  }
}

/// read_folder() of a model's folder, whose every save replaces these files.
template <class F>
auto read_model_files(const std::filesystem::path& folder, F&& read) {
  return read_folder(folder, {"options.json", "model.safetensors"}, read);
}

// 16 hexadecimal digits.
inline std::string hash_text(std::uint64_t hash) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

/// Returns the text of an options.json with the checksums of the other files in `folder` and its own
/// checksum, which is computed over the text with zeros in its place.
EIGENFORMER_IO_FUNCTION std::string options_with_checksums(nlohmann::json options,
                                                           const std::filesystem::path& folder,
                                                           const std::vector<std::string>& files);

// verify_model_folder() without protection from concurrent writers.
EIGENFORMER_IO_FUNCTION int verify_files(const std::filesystem::path& folder);

}  // namespace eigenformer::detail

namespace eigenformer {

/// Checks the files of a model folder, of any kind of model, against the sizes and hashes (Hash64) that
/// options.json holds, its own hash included, and returns how many there are: options.json, model.safetensors
/// and the tokenizers. It detects accidental damage, not deliberate changes. Loading does not check, so that
/// a folder may be edited. Throws IoError that names each file that is missing or changed, and for a folder
/// without checksums.
///
///     ef::verify_model_folder("en-de");
EIGENFORMER_IO_FUNCTION int verify_model_folder(const std::filesystem::path& folder);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION void FolderSizes::require(const std::string& name, int axis, index_t size,
                                                  const char* option) const {
  if (!file_.contains(name)) throw lacks(name);
  const Shape& shape = file_.info(name).shape;
  if (shape.rank() == 2 && shape[axis] == size) return;
  // Int8 panels: both sizes are rounded up to whole panels.
  const index_t whole = axis == 0 ? kernels::PackedMatrix::int8_columns : 4;
  if (shape.rank() == 4 && shape[axis] == (size + whole - 1) / whole) return;
  throw IoError("load_model_folder", {"'", file_.path().string(), "' does not fit options.json: tensor '",
                                      name, "' has shape ", shape, ", but ", option, " is ", size});
}

EIGENFORMER_IO_FUNCTION void FolderSizes::require_room(const char* rows_option, index_t rows,
                                                       const char* columns_option, index_t columns) const {
  if (static_cast<double>(rows) * static_cast<double>(columns) <= numbers_) return;
  throw IoError("load_model_folder",
                {"'", file_.path().string(), "' does not fit options.json: ", rows_option, " is ", rows,
                 " and ", columns_option, " is ", columns, ", but the file has only ",
                 static_cast<index_t>(numbers_), " numbers"});
}

EIGENFORMER_IO_FUNCTION void FolderSizes::require_stack(const std::string& name,
                                                        const StackOptions<LayerOptions>& stack) const {
  const LayerOptions& o = stack.layer;
  const std::string last = name + ".layers." + std::to_string(stack.num_layers - 1) + ".";
  require_some(last);
  require_if_there(last + "linear1.weight", 0, o.dim_feedforward, "dim_feedforward");
  const index_t heads =
      o.num_heads +
      2 * (o.attention.num_key_value_heads != 0 ? o.attention.num_key_value_heads : o.num_heads);
  const index_t head_dim = o.attention.head_dim != 0 ? o.attention.head_dim : o.d_model / o.num_heads;
  require_if_there(last + "self_attn.in_proj_weight", 0, heads * head_dim,
                   "(num_heads + 2 num_key_value_heads) head_dim");
  if (const auto* shaw = std::get_if<ShawPositions>(&o.attention.positions)) {
    require_if_there(last + "self_attn.relative_keys", 0, 2 * shaw->max_distance + 1,
                     "2 shaw_max_distance + 1");
  }
  if (const auto* bias = std::get_if<RelativeBiasPositions>(&o.attention.positions)) {
    require_if_there(name + ".relative_bias.weight", 0, bias->buckets, "relative_bias_buckets");
  }
}

// The size and the hash of a file, as options.json has them. Reads by blocks, so that the size does not
// matter.
EIGENFORMER_IO_FUNCTION nlohmann::json checksum_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::uint64_t bytes = 0;
  Hash64 hash;
  std::vector<char> block(std::size_t{1} << 18);
  while (file && (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0)) {
    const auto size = static_cast<std::size_t>(file.gcount());
    hash.add(std::string_view(block.data(), size));
    bytes += size;
  }
  if (!file.eof()) throw errno_error("read", "read", path, errno);
  return {{"bytes", bytes}, {"hash64", hash_text(hash.value())}};
}

// Returns the text of an options.json that has the checksums of other files, with its own checksum added.
EIGENFORMER_IO_FUNCTION std::string options_with_own_checksum(nlohmann::json options) {
  nlohmann::json& own = options["checksums"]["options.json"];
  own = {{"hash64", hash_text(0)}};
  own["hash64"] = hash_text(Hash64::of(options.dump(2) + "\n"));
  return options.dump(2) + "\n";
}

EIGENFORMER_IO_FUNCTION std::string options_with_checksums(nlohmann::json options,
                                                           const std::filesystem::path& folder,
                                                           const std::vector<std::string>& files) {
  nlohmann::json& sums = options["checksums"] = nlohmann::json::object();
  for (const std::string& name : files) {
    if (file_exists(folder / name)) sums[name] = checksum_of_file(folder / name);
    // One that does not exist is a tokenizer of the caller's own.
  }
  return options_with_own_checksum(std::move(options));
}

EIGENFORMER_IO_FUNCTION int verify_files(const std::filesystem::path& folder) {
  const auto refuse = [&](std::initializer_list<MessagePart> what) {
    return IoError("verify_model_folder", {"'", folder.string(), "' ", join(what)});
  };
  const std::string text = read_text_file(folder_file(folder, "options.json"));
  nlohmann::json json = parse_json(text);
  if (json.is_discarded() || !json.is_object())
    throw refuse({"is damaged: options.json is truncated or not JSON"});
  if (!json.contains("checksums"))
    throw refuse({"cannot be verified: options.json has no checksums; save the model again to write them"});
  nlohmann::json& sums = json.at("checksums");
  std::string failures;
  if (!sums.is_object() || !sums.contains("options.json") || text != json.dump(2) + "\n")
    throw refuse({"is damaged: options.json is not as it was saved"});
  const nlohmann::json own = std::exchange(sums["options.json"], nlohmann::json{{"hash64", hash_text(0)}});
  if (own != nlohmann::json{{"hash64", hash_text(Hash64::of(json.dump(2) + "\n"))}})
    throw refuse({"is damaged: options.json is not as it was saved"});
  for (const auto& [name, expected] : sums.items()) {
    if (name == "options.json") continue;
    const std::filesystem::path path = folder_file(folder, name);
    std::error_code ignored;
    const char* failure = !std::filesystem::is_regular_file(path, ignored) ? " is missing"
                          : checksum_of_file(path) != expected ? " has other bytes than were saved"
                                                               : nullptr;
    if (failure != nullptr) failures += (failures.empty() ? "" : "; ") + name + failure;
  }
  if (failures.empty()) return static_cast<int>(sums.size());
  throw refuse({"is damaged: ", failures});
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION int verify_model_folder(const std::filesystem::path& folder) {
  return detail::read_model_files(folder, [&] { return detail::verify_files(folder); });
}

}  // namespace eigenformer

#endif
