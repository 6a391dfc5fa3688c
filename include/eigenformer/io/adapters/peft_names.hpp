#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/nn/adapters/adaptable.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The naming scheme for a model's matrices in the file of an adapter.
enum class AdapterNames {
  own,   ///< as the modules here: encoder.layers.0.self_attn.q_proj, decoder.layers.0.linear1
  bart,  ///< as transformers' BART, mBART, Marian and M2M100 (NLLB): model.encoder.layers.0.fc1
  t5,    ///< as transformers' T5: encoder.block.0.layer.0.SelfAttention.q
};
/// The names of the schemes in base.json.
template <>
struct EnumNames<AdapterNames> {
  /// One name per value, in the order of the enumeration.
  static constexpr std::array names = {"own", "bart", "t5"};
};

namespace detail {

// The parts of a module's name in an encoder-decoder model, such as "encoder.layers.3.self_attn.q_proj".
struct LayerModule {
  std::string stack, layer, block,
      matrix;  // block: self_attn, multihead_attn, or empty for linear1 and so on

  // Parses a name; empty when it does not have this form.
  static LayerModule of(const std::string& module) {
    std::vector<std::string> parts;
    for (std::string_view rest = module; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      parts.emplace_back(part);
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    }
    if (parts.size() < 4 || parts.size() > 5 || parts[1] != "layers") return {};
    if (parts[0] != "encoder" && parts[0] != "decoder") return {};
    return {parts[0], parts[2], parts.size() == 5 ? parts[3] : "", parts.back()};
  }
};

inline std::string from_map(const std::map<std::string, std::string>& map, const std::string& key) {
  const auto at = map.find(key);
  return at == map.end() ? std::string() : at->second;
}

inline std::string bart_module(const LayerModule& m) {
  static const std::map<std::string, std::string> blocks = {{"self_attn", "self_attn."},
                                                            {"multihead_attn", "encoder_attn."}};
  static const std::map<std::string, std::string> matrices = {{"linear1", "fc1"}, {"linear2", "fc2"}};
  const std::string last = m.block.empty() ? from_map(matrices, m.matrix) : m.matrix;
  const std::string block = from_map(blocks, m.block);
  if (last.empty() || (block.empty() && !m.block.empty())) return {};
  return "model." + m.stack + ".layers." + m.layer + "." + block + last;
}

// gated: whether the layer has a linear3.
inline std::string t5_module(const LayerModule& m, bool gated) {
  static const std::map<std::string, std::string> attention = {
      {"q_proj", "q"}, {"k_proj", "k"}, {"v_proj", "v"}, {"out_proj", "o"}};
  const std::map<std::string, std::string> matrices = {
      {"linear1", gated ? "wi_0" : "wi"}, {"linear2", "wo"}, {"linear3", "wi_1"}};
  const std::string last = from_map(m.block.empty() ? matrices : attention, m.matrix);
  if (last.empty()) return {};
  const std::string layer = m.stack + ".block." + m.layer + ".layer.";
  if (m.block == "self_attn") return layer + "0.SelfAttention." + last;
  if (m.block == "multihead_attn") return layer + "1.EncDecAttention." + last;
  return m.block.empty() ? layer + (m.stack == "decoder" ? "2" : "1") + ".DenseReluDense." + last : "";
}

/// The names of a model's adaptable rows in a naming scheme; empty for those that it does not name.
template <class T>
std::vector<std::string> adapter_module_names(const std::vector<AdaptableRows<T>>& rows, AdapterNames names) {
  std::vector<std::string> out;
  for (const AdaptableRows<T>& r : rows) {
    const LayerModule m = LayerModule::of(r.module);
    if (names == AdapterNames::own) {
      out.push_back(r.module);
    } else if (m.stack.empty()) {
      out.emplace_back();
    } else if (names == AdapterNames::bart) {
      out.push_back(bart_module(m));
    } else {
      const std::string gate = m.stack + ".layers." + m.layer + ".linear3";
      out.push_back(t5_module(m, std::any_of(rows.begin(), rows.end(), [&](const AdaptableRows<T>& other) {
                                return other.module == gate;
                              })));
    }
  }
  return out;
}

}  // namespace detail

}  // namespace eigenformer
