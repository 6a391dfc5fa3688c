#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/models/options_json.hpp"
#include "option_names.hpp"
#include "option_rows.hpp"

namespace translator {

/// The flags of an options struct, one per row, and their given values.
class RowFlags {
 public:
  /// Adds a flag to the command for each row that `wanted` accepts. help_group: where help lists them.
  RowFlags(CLI::App& command, std::vector<OptionRow> rows, const char* help_group,
           const std::function<bool(const OptionRow&)>& wanted);

  /// The given values, named as in files; those of one stack in an object with the stack's name.
  nlohmann::json given() const;

 protected:
  /// Throws ValueError for a given flag whose field does not exist in `effective`, such as the base of
  /// sinusoids with rotary positions.
  void require_effect(const char* op, const nlohmann::json& effective) const;

 private:
  struct Flag {
    OptionRow row;
    CLI::Option* option;
  };
  static CLI::Option* add(CLI::App& command, const OptionRow& row);

  std::vector<Flag> flags_;
};

/// The flags of O's fields. O's list of fields defines names, defaults and ranges.
template <ef::OptionsStruct O>
class OptionFlags : public RowFlags {
 public:
  OptionFlags(
      CLI::App& command, const O& defaults, const char* help_group,
      const std::function<bool(const OptionRow&)>& wanted = [](const OptionRow&) { return true; })
      : RowFlags(command, option_rows(defaults), help_group, wanted) {}

  /// Returns `options` with the given values. A stack's own layer is the common one with the values given for
  /// that stack. Throws ValueError for unknown words and for values without effect.
  O applied(const char* op, O options, const nlohmann::json& given) const {
    options = ef::options_from_json<O>(given, std::move(options));
    nlohmann::json effective = ef::detail::fields_to_json(options);
    O::fields(options, [&](const auto& field, const auto& member) {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, ef::OptionGroup>) {
        effective[field.name] = fields_of_group(options, member);
      }
    });
    require_effect(op, effective);
    return options;
  }
  O applied(const char* op, O options = {}) const { return applied(op, std::move(options), given()); }

 private:
  template <class Options, class Group>
  static nlohmann::json fields_of_group(const Options& options, const Group& group) {
    nlohmann::json fields = ef::detail::fields_to_json(group.layer.value_or(options.layer));
    fields.update(ef::detail::fields_to_json(group));
    return fields;
  }
};

/// Lets a flag accept another word for one of its words.
inline void add_word(CLI::Option* option, const std::string& word, const std::string& meaning) {
  option->transform(CLI::Validator(
      [word, meaning](std::string& given) {
        if (given == word) given = meaning;
        return std::string();
      },
      ""));
}

}  // namespace translator
