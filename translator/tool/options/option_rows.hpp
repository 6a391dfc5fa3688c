#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/nn/options/field.hpp"

namespace translator {

namespace ef = eigenformer;

enum class OptionKind { flag, whole_number, unsigned_number, number, word, text, ids };

/// One field of an options struct, as flags and tables show it.
struct OptionRow {
  std::string name{};   ///< name in files
  std::string group{};  ///< "encoder" or "decoder" if it is a value for one stack; else empty
  std::string help{};
  OptionKind kind{};
  std::string fallback{};    ///< the default; empty: none
  std::string allowed{};     ///< a range or words; empty: any value
  std::string owner{};       ///< the field it depends on, such as "positions"; else empty
  std::string owner_word{};  ///< the value of that field it needs, such as "sinusoidal"
};

/// Collects the fields of an options struct; those of one stack with its group.
struct RowWriter {
  std::vector<OptionRow>& rows;
  std::string group, owner, owner_word;

  template <class X>
  static std::string text_of(const X& x) {
    if constexpr (std::is_enum_v<X>) {
      return ef::word_of(x);
    } else if constexpr (std::same_as<X, bool>) {
      return x ? "true" : "false";
    } else if constexpr (std::integral<X>) {
      return std::to_string(x);
    } else if constexpr (std::floating_point<X>) {
      return ef::detail::number_text(x);
    } else if constexpr (std::same_as<X, std::string>) {
      return x;
    } else {
      std::string list;
      for (const auto& id : x) list += (list.empty() ? "" : ", ") + std::to_string(id);
      return list;
    }
  }
  template <class X>
  static constexpr OptionKind kind_of() {
    if constexpr (std::is_enum_v<X>) {
      return OptionKind::word;
    } else if constexpr (std::same_as<X, bool>) {
      return OptionKind::flag;
    } else if constexpr (std::unsigned_integral<X>) {
      return OptionKind::unsigned_number;
    } else if constexpr (std::integral<X>) {
      return OptionKind::whole_number;
    } else if constexpr (std::floating_point<X>) {
      return OptionKind::number;
    } else if constexpr (std::same_as<X, std::string>) {
      return OptionKind::text;
    } else {
      static_assert(std::same_as<X, std::vector<std::int32_t>>);
      return OptionKind::ids;
    }
  }
  template <class X>
  static std::string allowed_of(const ef::OptionField& field) {
    std::string words;
    if constexpr (std::is_enum_v<X>) {
      for (const char* word : ef::EnumNames<X>::names)
        words += (words.empty() ? "" : ", ") + std::string(word);
      return words;
    } else {
      return ef::detail::allowed_text(field.allowed);
    }
  }

  void add(OptionRow row) const {
    row.group = group;
    if (!group.empty()) row.fallback.clear();  // the same as the model's
    if (row.owner.empty()) {
      row.owner = owner;
      row.owner_word = owner_word;
    }
    rows.push_back(std::move(row));
  }

  template <class X>
  void operator()(const ef::OptionField& field, const X& x) const {
    add({.name = field.name,
         .help = field.help,
         .kind = kind_of<X>(),
         .fallback = text_of(x),
         .allowed = allowed_of<X>(field)});
  }
  template <class X>
  void operator()(const ef::OptionField& field, const std::optional<X>& x) const {
    if constexpr (std::is_enum_v<X>) {  // in files: whether there is a norm, and its kind
      add({.name = field.name,
           .help = field.help,
           .kind = OptionKind::flag,
           .fallback = x ? "true" : "false"});
      add({.name = std::string(field.name) + "_kind",
           .help = "type of that norm",
           .kind = OptionKind::word,
           .fallback = text_of(x.value_or(X{})),
           .allowed = allowed_of<X>(field),
           .owner = field.name});
    } else {
      add({.name = field.name,
           .help = field.help,
           .kind = kind_of<X>(),
           .fallback = x ? text_of(*x) : std::string(),
           .allowed = allowed_of<X>(field)});
    }
  }
  template <class... A>
  void alternatives(const ef::OptionField& field, const std::variant<A...>* x) const {
    std::string words;
    ((words += (words.empty() ? "" : ", ") + std::string(A::word)), ...);
    add({.name = field.name,
         .help = field.help,
         .kind = OptionKind::word,
         .fallback = x != nullptr ? ef::detail::chosen_word(*x) : "",
         .allowed = words});
    const auto fields = [&]<class Alternative>(const Alternative* chosen) {
      Alternative defaults;
      Alternative::fields(chosen != nullptr ? *chosen : defaults,
                          RowWriter{rows, group, field.name, Alternative::word});
    };
    (fields(x != nullptr ? std::get_if<A>(x) : static_cast<const A*>(nullptr)), ...);
  }
  template <class... A>
  void operator()(const ef::OptionField& field, const std::variant<A...>& x) const {
    alternatives(field, &x);
  }
  template <class... A>
  void operator()(const ef::OptionField& field, const std::optional<std::variant<A...>>& x) const {
    alternatives<A...>(field, x ? &*x : nullptr);
  }
  template <class Group>
  void operator()(const ef::OptionGroup&, const Group&) const {}  // option_rows() adds them
};

/// The fields that a stack can override: those of the model's layer and of the group.
template <class O, class Group>
void add_group_rows(std::vector<OptionRow>& rows, const char* name, const O& options, const Group& group) {
  const RowWriter writer{rows, name, {}, {}};
  decltype(options.layer)::fields(options.layer, writer);
  Group::fields(group, writer);
}

/// The fields of an options struct in their order, followed by those that a stack can override.
template <ef::OptionsStruct O>
std::vector<OptionRow> option_rows(const O& options) {
  std::vector<OptionRow> rows;
  O::fields(options, RowWriter{rows, {}, {}, {}});
  O::fields(options, [&](const auto& field, const auto& member) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, ef::OptionGroup>)
      add_group_rows(rows, field.name, options, member);
  });
  return rows;
}

}  // namespace translator
