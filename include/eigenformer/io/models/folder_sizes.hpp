#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <variant>

#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "eigenformer/nn/attention/added_positions.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer::detail {

/// Compares the sizes in a folder's options with the tensors of its file, before memory for a model of these
/// sizes is allocated. Each check throws IoError that names the file, the tensor and the option.
class FolderSizes {
 public:
  explicit FolderSizes(const std::filesystem::path& path)
      : path_(path), file_(SafetensorsFile::open(path)), names_(file_.names()) {
    for (const std::string& name : names_) numbers_ += static_cast<double>(file_.info(name).shape.numel());
  }

  /// Requires a tensor with this size along an axis.
  void require(const std::string& name, int axis, index_t size, const char* option) const {
    if (!file_.contains(name)) throw lacks(name);
    const Shape& shape = file_.info(name).shape;
    if (shape.rank() == 2 && shape[axis] == size) return;
    // Int8 panels: both sizes are rounded up to whole panels.
    const index_t whole = axis == 0 ? kernels::PackedMatrix::int8_columns : 4;
    if (shape.rank() == 4 && shape[axis] == (size + whole - 1) / whole) return;
    throw IoError("load_model_folder", "'" + path_.string() + "' does not fit options.json: tensor '" + name +
                                           "' has shape " + shape.str() + ", but " + option + " is " +
                                           std::to_string(size));
  }
  /// As require(), but for an optional tensor, which layers of the caller's own may lack.
  void require_if_there(const std::string& name, int axis, index_t size, const char* option) const {
    if (file_.contains(name)) require(name, axis, size, option);
  }
  /// Requires a tensor whose name begins with `prefix`.
  void require_some(const std::string& prefix) const {
    for (const std::string& name : names_) {
      if (name.starts_with(prefix)) return;
    }
    throw lacks(prefix + "...");
  }
  /// Requires that a matrix of the model does not have more elements than the whole file.
  void require_room(const char* rows_option, index_t rows, const char* columns_option,
                    index_t columns) const {
    if (static_cast<double>(rows) * static_cast<double>(columns) <= numbers_) return;
    throw IoError("load_model_folder", "'" + path_.string() + "' does not fit options.json: " + rows_option +
                                           " is " + std::to_string(rows) + " and " + columns_option + " is " +
                                           std::to_string(columns) + ", but the file has only " +
                                           std::to_string(static_cast<index_t>(numbers_)) + " numbers");
  }

  /// Checks the layers of the stack `name`, such as "encoder".
  void require_stack(const std::string& name, const StackOptions<LayerOptions>& stack) const {
    const LayerOptions& o = stack.layer;
    const std::string last = name + ".layers." + std::to_string(stack.num_layers - 1) + ".";
    require_some(last);
    require_if_there(last + "linear1.weight", 0, o.dim_feedforward, "dim_feedforward");
    const index_t heads =
        o.num_heads + 2 * (o.num_key_value_heads != 0 ? o.num_key_value_heads : o.num_heads);
    const index_t head_dim = o.head_dim != 0 ? o.head_dim : o.d_model / o.num_heads;
    require_if_there(last + "self_attn.in_proj_weight", 0, heads * head_dim,
                     "(num_heads + 2 num_key_value_heads) head_dim");
    if (const auto* shaw = std::get_if<ShawPositions>(&o.positions)) {
      require_if_there(last + "self_attn.relative_keys", 0, 2 * shaw->max_distance + 1,
                       "2 shaw_max_distance + 1");
    }
    if (const auto* bias = std::get_if<RelativeBiasPositions>(&o.positions)) {
      require_if_there(name + ".relative_bias.weight", 0, bias->buckets, "relative_bias_buckets");
    }
  }

 private:
  IoError lacks(const std::string& name) const {
    return IoError("load_model_folder",
                   "'" + path_.string() + "' has no tensor '" + name + "', which options.json requires");
  }

  std::filesystem::path path_;
  SafetensorsFile file_;
  std::vector<std::string> names_;
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

}  // namespace eigenformer::detail
