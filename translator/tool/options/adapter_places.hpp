#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "translator/server/api/languages.hpp"

// The adapters of the models of a server, as --adapter gives them: FOLDER, NAME=FOLDER or
// SOURCE-TARGET:NAME=FOLDER.
namespace translator {

/// The adapters of one model.
struct ModelAdapters {
  std::string merged;                                  ///< the folder of one that every request uses
  std::map<std::string, std::filesystem::path> named;  ///< the folders of those that requests name

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, folder] : named) names.push_back(name);
    return names;
  }
};

/// Whether requests and logs may name an adapter like this.
inline bool is_adapter_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

/// The adapters of each model, in the order of the models. Throws ValueError for adapters whose model or name
/// is not clear, and for two of one name.
inline std::vector<ModelAdapters> adapters_of_models(const std::vector<std::string>& given,
                                                     const std::vector<eigenformer::ModelPlace>& models) {
  std::vector<ModelAdapters> adapters(models.size());
  for (const std::string& text : given) {
    const auto fail = [&](const std::string& why) {
      throw eigenformer::ValueError("serve", {"--adapter is '", text, "', ", why});
    };
    const std::size_t equals = text.find('=');
    std::string name = equals == std::string::npos ? std::string() : text.substr(0, equals);
    const std::size_t colon = name.find(':');
    const std::string languages = colon == std::string::npos ? std::string() : name.substr(0, colon);
    if (colon != std::string::npos) name.erase(0, colon + 1);
    // A folder's own name may have an equals sign, too.
    const bool is_named = is_adapter_name(name) && equals + 1 < text.size();
    std::size_t model = 0;
    if (is_named && !languages.empty()) {
      while (model < models.size() && models[model].source + "-" + models[model].target != languages) ++model;
      if (model == models.size()) fail("but no model translates " + languages);
    } else if (models.size() > 1) {
      fail(
          "which does not say whose adapter it is: with several models it must be SOURCE-TARGET:NAME=FOLDER");
    }
    ModelAdapters& of_model = adapters[model];
    if (is_named) {
      if (!of_model.named.emplace(name, text.substr(equals + 1)).second)
        fail("but the adapter '" + name + "' is given already");
    } else {
      if (!of_model.merged.empty()) fail("but another adapter is given: give each a name, NAME=FOLDER");
      of_model.merged = text;
    }
    if (!of_model.merged.empty() && !of_model.named.empty())
      fail("but one adapter has a name and another has none: give each a name, NAME=FOLDER");
  }
  return adapters;
}

}  // namespace translator
