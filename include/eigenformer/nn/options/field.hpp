#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// The names of an enum's values in files, flags and tables, in the order of the values. Specialise it with
/// `static constexpr std::array names` for an enum that is an option.
template <class E>
struct EnumNames;

/// Specialises EnumNames: EIGENFORMER_ENUM_NAMES(Tying, "none", "target", "all"). Used in namespace
/// eigenformer.
#define EIGENFORMER_ENUM_NAMES(ENUM, ...)              \
  template <>                                          \
  struct EnumNames<ENUM> {                             \
    static constexpr std::array names = {__VA_ARGS__}; \
  };

/// The name of an enum's value. The value must be one of the enumerators.
template <class E>
constexpr const char* word_of(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// The range of values that an option allows. Every range but `any` excludes infinities and NaN.
enum class Allowed {
  any,           ///< no check
  positive,      ///< above 0
  not_negative,  ///< 0 or above
  rate,          ///< in [0, 1)
  share,         ///< in (0, 1]
  finite,        ///< any finite number
};

namespace detail {

/// What an Allowed means.
struct AllowedRange {
  const char* text;       ///< as help and tables show it
  const char* rule;       ///< as errors say it
  bool (*holds)(double);  ///< whether a value is in the range, finite or not
};
/// In the order of the enum's values.
inline constexpr AllowedRange allowed_ranges[] = {
    {"", "", [](double) { return true; }},
    {"above 0", "must be positive", [](double x) { return x > 0; }},
    {"0 or above", "must not be negative", [](double x) { return x >= 0; }},
    {"in [0, 1)", "must be in [0, 1)", [](double x) { return x >= 0 && x < 1; }},
    {"in (0, 1]", "must be in (0, 1]", [](double x) { return x > 0 && x <= 1; }},
    {"finite", "", [](double) { return true; }},
};

constexpr const AllowedRange& range_of(Allowed allowed) {
  return allowed_ranges[static_cast<std::size_t>(allowed)];
}
/// The range as help and tables show it; empty for Allowed::any.
constexpr const char* allowed_text(Allowed allowed) { return range_of(allowed).text; }

}  // namespace detail

/// One field of an options struct: name, help text and range.
///
/// An options struct lists its fields once, in `static void fields(auto& self, auto&& visit)`, which calls
/// visit(OptionField{...}, self.member) for each; the list of a nested struct is part of its owner's. A
/// member may be a number, a bool, a string, an enum with EnumNames, an optional of these, or a std::variant
/// of small structs, each with a `word` and fields of its own. Validation, JSON, flags and tables are derived
/// from the list.
struct OptionField {
  const char* name;                ///< in files and flags; unique within a model
  const char* help;                ///< one line that says what the field means
  Allowed allowed = Allowed::any;  ///< range that validate_fields() checks; used for numbers only
};

/// A nested group of options that overrides a part of its owner's, such as the decoder's layers. In files it
/// is an object under its name, in flags its name is a prefix of theirs.
struct OptionGroup {
  const char* name;  ///< key in files, prefix of flags
  const char* help;  ///< one line that says what the group overrides
};

/// A struct that lists its fields; see OptionField.
template <class O>
concept OptionsStruct = requires(O& o) {
  O::fields(o, [](const auto&, auto&) {});
};

namespace detail {

// The shortest text that reads back as the value: "0.1", "1e-09", "nan".
inline std::string number_text(double value) {
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e15);
  std::array<char, 64> text{};
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value, format).ptr};
}

// Throws ValueError that names the field and its value.
EIGENFORMER_NOINLINE inline void require_allowed(const char* op, const char* name, double value,
                                                 Allowed allowed) {
  if (allowed == Allowed::any) return;
  const char* expected = range_of(allowed).holds(value) ? nullptr : range_of(allowed).rule;
  if (expected == nullptr && !std::isfinite(value)) expected = "must be finite";
  if (expected != nullptr) throw ValueError(op, {name, " is ", number_text(value), ", ", expected});
}

inline void require_positive(const char* op, const char* name, index_t value) {
  require_allowed(op, name, static_cast<double>(value), Allowed::positive);
}
inline void require_not_negative(const char* op, const char* name, index_t value) {
  require_allowed(op, name, static_cast<double>(value), Allowed::not_negative);
}
inline void require_rate(const char* op, const char* name, double value) {
  require_allowed(op, name, value, Allowed::rate);
}

// Throws ValueError if a field is above a limit.
EIGENFORMER_NOINLINE inline void require_at_most(const char* op, const char* name, index_t value,
                                                 index_t most) {
  if (value > most) throw ValueError(op, {name, " is ", value, ", must be at most ", most});
}

// Throws ValueError if a field is above another one.
inline void require_at_most(const char* op, const char* name, index_t value, const char* other,
                            index_t most) {
  if (value <= most) return;
  throw ValueError(op, {name, " is ", value, ", must be at most ", other, ", which is ", most});
}

// Visits the fields for validate_fields(): one type for all structs, so that the list of a nested one is
// compiled once.
struct FieldCheck {
  const char* op;

  template <class Field, class Member>
  void operator()(const Field& field, const Member& member) const {
    if constexpr (requires { field.allowed; }) {
      if constexpr (is_instance<Member, std::variant>) {
        std::visit(
            [this](const auto& chosen) { std::remove_cvref_t<decltype(chosen)>::fields(chosen, *this); },
            member);
      } else if constexpr (is_instance<Member, std::optional>) {
        if (member) (*this)(field, *member);
      } else if constexpr (std::floating_point<Member>) {
        require_allowed(op, field.name, member, field.allowed);
      } else if constexpr (std::integral<Member> && !std::same_as<Member, bool>) {
        require_allowed(op, field.name, static_cast<double>(member), field.allowed);
        // The product of two sizes must fit index_t.
        if constexpr (std::same_as<Member, index_t>)
          require_at_most(op, field.name, member, std::numeric_limits<std::int32_t>::max());
      }
    }
  }
};

}  // namespace detail

/// Checks each number of an options struct against the range in its list; of a variant the chosen
/// alternative; whole numbers also against 2^31 - 1. Throws ValueError (`[op] ...`) that names the field, its
/// value and what is expected.
template <OptionsStruct O>
void validate_fields(const char* op, const O& options) {
  O::fields(options, detail::FieldCheck{op});
}

namespace detail {

/// The options, once options.validate(op) has not thrown: for the first member that a constructor makes of
/// them.
template <class O>
const O& validated(const char* op, const O& options) {
  options.validate(op);
  return options;
}

/// Calls f(std::type_identity<Alternative>{}) for every alternative of a variant.
template <class Variant, class F>
void for_each_alternative(F&& f) {
  [&]<class... Alternatives>(std::type_identity<std::variant<Alternatives...>>) {
    (f(std::type_identity<Alternatives>{}), ...);
  }(std::type_identity<Variant>{});
}

/// Sets a variant to the alternative with this word, with default values; an alternative that is already
/// chosen keeps its values. `known` receives all words, separated by commas. Returns false, and leaves the
/// variant as it is, if no alternative has the word.
template <class Variant>
bool choose_alternative(Variant& variant, const std::string& word, std::string& known) {
  bool found = false;
  for_each_alternative<Variant>([&]<class Alternative>(std::type_identity<Alternative>) {
    known += (known.empty() ? "" : ", ") + std::string(Alternative::word);
    if (word != Alternative::word) return;
    found = true;
    if (!std::holds_alternative<Alternative>(variant)) variant = Alternative{};
  });
  return found;
}

/// The word of the chosen alternative.
template <class... Alternatives>
const char* chosen_word(const std::variant<Alternatives...>& variant) {
  return std::visit([](const auto& chosen) { return std::remove_cvref_t<decltype(chosen)>::word; }, variant);
}

}  // namespace detail

}  // namespace eigenformer
