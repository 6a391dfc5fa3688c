#pragma once

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "option_names.hpp"

/// What the command line says of bad values, in the user's words.
namespace translator {

/// What is wrong with the text of a number, or nothing.
template <class T>
std::string number_problem(const std::string& text) {
  T value{};
  const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec == std::errc::result_out_of_range) return text + " is out of range";
  return {};
}

/// Gives every numeric option checks of its own, ahead of the conversion: an unsigned number would take -1
/// for the largest one.
inline void check_numbers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type == "UINT") {
        option->check(CLI::Validator(
            [](std::string& text) -> std::string {
              if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
                return "must be a whole number, 0 or more";
              }
              return number_problem<std::uint64_t>(text);
            },
            ""));
      } else if (type == "INT") {
        option->check(
            CLI::Validator([](std::string& text) { return number_problem<std::int64_t>(text); }, ""));
      }
    }
  }
}

/// Names the user's options after a message that names the library's: "..., must be positive (--heads)".
inline std::string with_option_names(std::string message, bool training) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const std::string said = message;
  const auto named = [&](std::string_view field) {
    const std::size_t at = said.find(field);
    if (at == std::string::npos || (at > 0 && in_word(said[at - 1]))) return false;
    const std::size_t end = at + field.size();
    return end >= said.size() || !in_word(said[end]);
  };
  if (!training) {
    for (const ShortName& entry : decoding_short_names) {
      if (named(entry.field)) message += " (" + flag_of_name(entry.name) + ")";
    }
    return message;
  }
  // "[train, encoder.layer] ...": of one stack's own options.
  const std::string group = said.find(", encoder.layer]") != std::string::npos   ? "encoder"
                            : said.find(", decoder.layer]") != std::string::npos ? "decoder"
                                                                                 : "";
  for (const ShortName& entry : training_short_names) {
    if (named(entry.field)) message += " (" + flag_of_field(entry.field, group) + ")";
  }
  if (named("num_encoder_layers") || named("num_decoder_layers")) message += " (--layers)";
  return message;
}

}  // namespace translator
