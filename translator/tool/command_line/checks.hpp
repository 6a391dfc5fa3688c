#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "options/option_names.hpp"

/// Messages of the command line about invalid values, in the user's terms.
namespace translator {

/// All commands of the program.
inline std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// What is wrong with the text of a number, or nothing. expected: a description of valid values.
template <class T>
std::string number_problem(std::string_view text, const char* expected) {
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  T value{};
  const char* const end = digits.data() + digits.size();
  const std::from_chars_result read = std::from_chars(digits.data(), end, value);
  if (read.ec == std::errc::result_out_of_range)
    return "is " + std::string(text) + ", which is out of range; expected " + expected;
  if (read.ec == std::errc() && read.ptr == end) return {};
  return "is '" + std::string(text) + "', expected " + expected;
}

/// Stands before the words of one_of() in the type of an option; help does not show what is after the colon.
inline constexpr const char* words_mark = "one of: ";

/// A check that a word is one of the given ones; its message lists them. The description has them, too.
inline CLI::Validator one_of(std::vector<std::string> words) {
  const std::string description = words_mark + CLI::detail::join(words, " ");
  const auto problem = [words = std::move(words)](std::string& text) {
    std::string list;
    for (const std::string& word : words) {
      if (word == text) return std::string();
      list += (list.empty() ? "" : ", ") + word;
    }
    return "is '" + text + "', expected one of " + list;
  };
  return CLI::Validator(problem, description);
}

/// The message of an error that CLI11 found, without the colon that it puts between an option and a problem:
/// "--beam is 'x', expected ...".
inline std::string message_of(const CLI::ParseError& error) {
  std::string text = error.what();
  const std::size_t colon = text.find(": is ");
  if (text.starts_with('-') && colon < text.find(' ')) text.erase(colon, 1);
  const bool mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  if (mismatch && text.starts_with('-') && text.ends_with(" missing"))
    text = text.substr(0, text.find_first_of(": ")) + " needs a value";
  return text;
}

/// Checks texts before CLI11 does, which reads an empty text as 0, -1 as the largest unsigned number, and any
/// number as true.
inline void check_values(CLI::App& app) {
  const auto check = [](CLI::Option* option, auto&& problem) {
    option->check(CLI::Validator([problem](std::string& text) -> std::string { return problem(text); }, ""));
  };
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type == "UINT") {
        check(option, [](const std::string& text) {
          return text.starts_with('-') ? "is '" + text + "', expected a whole number, 0 or more"
                                       : number_problem<std::uint64_t>(text, "a whole number, 0 or more");
        });
      } else if (type == "INT") {
        check(option, [](const std::string& text) {
          // Sizes are multiplied with each other: the product of two of these fits in 64 bits.
          constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
          std::string problem = number_problem<std::int64_t>(text, "a whole number");
          if (problem.empty() && std::abs(std::stoll(text)) > most)
            problem = "is " + text + ", expected at most " + std::to_string(most);
          return problem;
        });
      } else if (type == "FLOAT") {
        check(option, [](const std::string& text) { return number_problem<double>(text, "a number"); });
      } else if (option->get_expected_max() == 0 && option->get_name() != "--help" &&
                 option->get_name() != "--help-all") {
        check(option, [](const std::string& text) {
          return text == "true" || text == "false" ? "" : "is '" + text + "', expected true or false";
        });
      }
    }
  }
}

/// The number of insertions, deletions and replacements of single characters that turn `from` into `to`
/// (Levenshtein 1966).
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, replaced}));
    }
  }
  return row.back();
}

/// The one of `names` that is most similar to `name`, or begins with it; empty: none is similar. A suggestion
/// keeps most of the letters: nothing is similar to "--lr".
inline std::string nearest_name(const std::vector<std::string>& names, const std::string& name) {
  std::string nearest;
  const std::size_t letters = name.size() - std::min(name.size(), name.find_first_not_of('-'));
  std::size_t least = std::min(std::max<std::size_t>(2, name.size() / 4) + 1, letters / 2 + 1);
  for (const std::string& known : names) {
    const bool begins = letters >= 3 && known.starts_with(name);
    const std::size_t distance = begins ? 1 : edit_distance(name, known);
    if (distance < least) {
      least = distance;
      nearest = known;
    }
  }
  return nearest;
}

/// The option of a command that is most similar to a name such as "--beems"; empty: none is similar.
inline std::string nearest_option(const CLI::App& command, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  return nearest_name(names, name);
}

/// The message about a command that does not exist, with the one that may have been meant.
inline std::string unknown_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  const std::string nearest = nearest_name(names, name);
  return "there is no command '" + name + "'" + (nearest.empty() ? "" : ": did you mean '" + nearest + "'?");
}

/// The message about the first argument that a command does not know, with the option that may have been
/// meant.
inline std::string unknown_argument(const CLI::App& command) {
  const std::vector<std::string> unknown = command.remaining();
  const std::string argument = unknown.empty() ? std::string() : unknown.front();
  if (!argument.starts_with('-'))
    return "unexpected argument '" + argument + "', expected options, which begin with --";
  const std::string name = argument.substr(0, argument.find('='));
  const std::string nearest = nearest_option(command, name);
  return "unknown option '" + name + "'" + (nearest.empty() ? "" : ": did you mean '" + nearest + "'?");
}

/// Whether an option may be repeated to name several things.
inline bool takes_several(const CLI::Option& option) {
  const CLI::MultiOptionPolicy policy = option.get_multi_option_policy();
  return policy == CLI::MultiOptionPolicy::TakeAll || policy == CLI::MultiOptionPolicy::Join;
}

/// Throws ValueError for an option with one value that was given more than once; a flag may be repeated.
inline void require_given_once(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> values = option->results();
    if (values.size() < 2 || takes_several(*option)) continue;
    const bool flag = option->get_expected_max() == 0;
    if (flag && std::count(values.begin(), values.end(), values[0]) == std::ptrdiff_t(values.size()))
      continue;
    std::string list = values[0];
    for (std::size_t i = 1; i < values.size(); ++i)
      list += (i + 1 == values.size() ? " and " : ", ") + values[i];
    throw eigenformer::ValueError(
        "options", {"--", option->get_lnames().front(), " is given ",
                    (values.size() == 2 ? "twice" : std::to_string(values.size()) + " times"), ": ", list,
                    "; expected once"});
  }
}

/// Whether a text has a word that is not part of a longer one of letters, digits, `_` and `more`.
inline bool has_word(std::string_view text, std::string_view word, std::string_view more = "") {
  const auto in_word = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || more.find(c) != more.npos;
  };
  for (std::size_t at = 0; (at = text.find(word, at)) != text.npos; ++at) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

/// Appends the user's options to a library's message: "..., must be positive (--heads)".
inline std::string with_option_names(std::string message, bool training) {
  const std::string said = message;
  const auto named = [&](std::string_view field) { return has_word(said, field); };
  if (!training) {
    for (const ShortName& entry : decoding_short_names) {
      if (named(entry.field)) message += " (" + flag_of_name(entry.name) + ")";
    }
    return message;
  }
  // "[train, encoder.layer] ...": an option of one stack.
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
