#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace translator {

/// The name of an option as messages and files have it: its first long one, without dashes.
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

}  // namespace translator
