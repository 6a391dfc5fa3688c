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

/// A safetensors file of another implementation's inputs, outputs and gradients, with these tensors:
///
/// | tensor | contents |
/// |---|---|
/// | `param.NAME` | a parameter, by the module's name for it; all or none |
/// | `in.NAME` | an input: numbers, tokens or a mask |
/// | `out.NAME` | an output; `out.y` for a module with a single one |
/// | `in.cotangent`, `in.cotangent_NAME` | the gradient of the loss with respect to `out.y`, `out.NAME` |
/// | `grad.NAME` | the gradient of a parameter |
/// | `grad_in.NAME` | the gradient of an input |
///
/// Unless the module returns its own loss, the loss is the sum of outputs times cotangents.
/// examples/parity/make_fixture.py writes such a file for a PyTorch module.
class ParityFixture {
 public:
  /// Opens a file. Throws IoError when it is not a safetensors file.
  static ParityFixture open(const std::filesystem::path& path) {
    return ParityFixture(SafetensorsFile::open(path));
  }

  /// file: an open file with the tensors above.
  explicit ParityFixture(SafetensorsFile file) : file_(std::move(file)) {}

  /// The file that the fixture reads.
  const SafetensorsFile& file() const noexcept { return file_; }

  /// Whether there is a tensor of this full name, such as "in.x".
  bool contains(const std::string& name) const { return file_.contains(name); }

  /// A tensor by its full name, such as "in.x": T is float or double for numbers, bool for masks, int32_t for
  /// tokens. Throws IoError as SafetensorsFile::tensor() does.
  template <class T>
  Tensor<T> get(const std::string& name) const {
    return file_.tensor<T>(name);
  }

  /// A value of the JSON object in the file's metadata "options", which holds the options of the module: X is
  /// a number, std::string or bool. Throws IoError when there is no such object, no such value, or one of
  /// another type.
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
                 ", which has another type than expected");
  }

  /// A tensor of whole numbers as a vector, such as "in.src_lengths". Throws IoError as get() does.
  std::vector<index_t> lengths(const std::string& name) const {
    const auto t = file_.tensor<std::int64_t>(name);
    return {t.span().begin(), t.span().end()};
  }

  /// All tensors whose names begin with `prefix`, by the rest of the name. Throws IoError as get() does.
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
