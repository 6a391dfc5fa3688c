#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"

namespace eigenformer {

/// One file of another implementation's inputs, outputs and gradients, by these names:
///
///     param.<name>        a parameter, under the module's name for it; may be absent when the module has its
///     weights in.<name>           an input: numbers, tokens or a mask out.<name>          an output; that of
///     a module with a single one is out.y in.cotangent        the gradient that arrives at out.y,
///     in.cotangent_<name> that at out.<name>: the loss is the
///                         sum of outputs times cotangents
///     grad.<name>         the gradient of a parameter        grad_in.<name>      that of an input
///
/// examples/parity/make_fixture.py writes such a file of a PyTorch module.
class ParityFixture {
 public:
  /// Throws IoError for a file that is no safetensors file.
  static ParityFixture open(const std::filesystem::path& path) {
    return ParityFixture(SafetensorsFile::open(path));
  }

  explicit ParityFixture(SafetensorsFile file) : file_(std::move(file)) {}

  const SafetensorsFile& file() const noexcept { return file_; }

  bool contains(const std::string& name) const { return file_.contains(name); }

  /// A tensor by its full name, such as "in.x": float or double for numbers, bool for masks, int32_t for
  /// tokens.
  template <class T>
  Tensor<T> get(const std::string& name) const {
    return file_.tensor<T>(name);
  }

  /// A number, word or truth value of the JSON object that the file's metadata has as "options": what the
  /// module was made of. Throws IoError where there is no such object, or nothing of that kind in it.
  template <class X>
  X option(const std::string& name) const {
    const auto refuse = [&](const std::string& what) {
      return IoError("parity", "'" + file_.path().string() + "' is not a parity fixture: " + what);
    };
    const auto text = file_.metadata().find("options");
    if (text == file_.metadata().end()) throw refuse("it has no metadata 'options'");
    const auto options = detail::parse_json(text->second);
    if (!options.is_object()) throw refuse("its metadata 'options' is not a JSON object");
    if (!options.contains(name)) throw refuse("it has no '" + name + "' in its metadata 'options'");
    const nlohmann::json& value = options.at(name);
    try {
      if (X x = value.get<X>(); value == nlohmann::json(x)) return x;
    } catch (const nlohmann::json::exception&) {  // of another kind, as below
    }
    throw refuse("'" + name + "' in its metadata 'options' is " + value.dump() +
                 ", of another kind than expected");
  }

  /// Whole numbers, such as "in.src_lengths".
  std::vector<index_t> lengths(const std::string& name) const {
    const auto t = file_.tensor<std::int64_t>(name);
    return {t.span().begin(), t.span().end()};
  }

  /// All tensors whose names begin with `prefix`, keyed by the rest of the name.
  template <class T>
  std::map<std::string, Tensor<T>> all(const std::string& prefix) const {
    std::map<std::string, Tensor<T>> found;
    for (const std::string& name : file_.names()) {
      if (name.starts_with(prefix)) found.emplace(name.substr(prefix.size()), file_.tensor<T>(name));
    }
    return found;
  }

 private:
  SafetensorsFile file_;
};

}  // namespace eigenformer
