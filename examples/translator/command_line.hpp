#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

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

/// Names the user's options after a message that names the library's: "..., must be at least 1 (--layers)".
inline std::string with_option_names(std::string message, bool training) {
  static constexpr std::array<std::pair<std::string_view, const char*>, 9> of_training = {{
      {"num_key_value_heads", "--kv-heads"},
      {"num_heads", "--heads"},
      {"dim_feedforward", "--ff"},
      {"num_encoder_layers", "--layers"},
      {"num_decoder_layers", "--layers"},
      {"clip_norm", "--clip"},
      {"attention_window", "--window"},
      {"query_key_norm", "--qk-norm"},
      {"query_key_norm_kind", "--qk-norm-kind"},
  }};
  static constexpr std::array<std::pair<std::string_view, const char*>, 2> of_decoding = {{
      {"beam_size", "--beam"},
      {"no_repeat_ngram_size", "--no-repeat-ngram"},
  }};
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const std::string said = message;
  const auto name = [&](const auto& table) {
    for (const auto& [theirs, ours] : table) {
      const std::size_t at = said.find(theirs);
      if (at == std::string::npos || (at > 0 && in_word(said[at - 1]))) continue;
      const std::size_t end = at + theirs.size();
      if (end < said.size() && in_word(said[end])) continue;
      message += std::string(" (") + ours + ")";
    }
  };
  if (training) {
    name(of_training);
  } else {
    name(of_decoding);
  }
  return message;
}

}  // namespace translator
