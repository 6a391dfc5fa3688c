#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "terminal/output_checks.hpp"

namespace translator {

/// Collects attention weights as tensors named "<line>.<source, target or memory>.<layer>", (heads, queries,
/// keys).
class AttentionFile {
 public:
  /// Throws IoError if the file cannot be written. An empty path: nothing is collected.
  explicit AttentionFile(std::string path) : path_(std::move(path)) {
    if (wanted()) check_writable_file(path_);
  }

  bool wanted() const { return !path_.empty(); }

  void add(std::size_t line, const eigenformer::AttentionMaps& maps) {
    const auto add_layers = [&](const char* kind, const std::vector<eigenformer::Tensor<float>>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i)
        tensors_.emplace_back(std::to_string(line) + "." + kind + "." + std::to_string(i), layers[i]);
    };
    add_layers("source", maps.source);
    add_layers("target", maps.target);
    add_layers("memory", maps.memory);
  }

  void finish() const {
    if (wanted()) eigenformer::save_safetensors(path_, tensors_);
  }

 private:
  std::string path_;
  std::vector<std::pair<std::string, eigenformer::Tensor<float>>> tensors_;
};

}  // namespace translator
