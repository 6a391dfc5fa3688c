#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace translator {

/// The name of an option as files have it: its first long one, without dashes.
inline std::string option_key(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : option.get_lnames().front();
}

/// The options that a command was given, on the command line or in a file: names and values.
inline std::map<std::string, std::string> given_options(const CLI::App& command) {
  std::map<std::string, std::string> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    std::string& value = given[option_key(*option)];
    for (const std::string& result : option->results()) value += (value.empty() ? "" : " ") + result;
  }
  return given;
}

/// What --print-config throws, for main() to print.
struct ConfigRequest {
  std::string text;
};

/// Adds --config and --print-config to a command. To be called when it has all of its other options.
///
/// A file has lines "key = value", where keys are the options' long names without dashes and values are
/// numbers, true or false, words or "strings", and lists "[a, b]" for an option that may be given again. "#"
/// begins a comment. What stands after a line "[translate]" is for that command alone. The command line wins.
/// Throws IoError for a file that cannot be read, and ValueError that names file and line for what is wrong
/// in it.
void add_config(CLI::App& command);

/// Says for a message that names an option, which line of a file gave it; empty: none.
std::string config_place(const std::string& message);

}  // namespace translator
