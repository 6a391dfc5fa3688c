#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace translator {

/// The name of an option in files: its first long name, without dashes.
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

/// Adds --config and --print-config to a command. Call it after all other options were added. A file has
/// lines "key = value", where keys are the options' long names without dashes and values are numbers, true or
/// false, words or "strings", and lists "[a, b]" for an option that may be repeated. "#" begins a comment.
/// Lines after "[translate]" are for that command alone. The command line takes precedence. Throws IoError
/// for a file that cannot be read, and ValueError that names file and line for invalid contents.
void add_config(CLI::App& command);

/// Returns which line of a file gave an option that a message names; empty: none.
std::string config_place(const std::string& message);

}  // namespace translator
