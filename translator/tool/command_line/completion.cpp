/// Completion of command lines by shells, written from the commands and options that CLI11 knows.

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks.hpp"
#include "commands.hpp"

namespace translator {

namespace {

/// What may follow an option.
enum class Follows { nothing, words, file, anything };

struct OptionText {
  std::vector<std::string> names;  ///< such as "--beam" and "-b"
  std::string meaning;
  Follows follows = Follows::nothing;
  std::vector<std::string> words{};
};

OptionText option_text(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  text.meaning = option.get_description();
  if (option.get_expected_max() == 0) return text;
  const std::string type = option.get_type_name();
  if (type == "INT" || type == "UINT" || type == "FLOAT") {
    text.follows = Follows::anything;
  } else if (const std::size_t words = type.find(words_mark); words != std::string::npos) {
    text.follows = Follows::words;
    text.words = CLI::detail::split(type.substr(words + std::string(words_mark).size()), ' ');
  } else {
    text.follows = Follows::file;
  }
  return text;
}

std::vector<OptionText> options_of(const CLI::App& command) {
  std::vector<OptionText> options;
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional() && !option->get_group().empty()) options.push_back(option_text(*option));
  }
  return options;
}

std::string joined(const std::vector<std::string>& words, const std::string& between = " ") {
  return CLI::detail::join(words, between);
}

/// A text between single quotes, for any of the shells' scripts.
std::string quoted(const std::string& text, const std::string& quote) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? quote : std::string(1, c);
  return all + "'";
}

std::string bash_script(const CLI::App& app) {
  std::string names, cases, values;
  for (const OptionText& option : options_of(app)) names += joined(option.names) + " ";
  for (const CLI::App* command : commands_of(app)) {
    const std::string& command_name = command->get_name();
    names += command_name + " ";
    std::vector<std::string> options;
    for (const OptionText& option : options_of(*command)) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.follows == Follows::nothing) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back("'" + command_name + " " + name + "'");
      values += "    " + joined(patterns, " | ") + ")\n";
      if (option.follows == Follows::words)
        values += "      COMPREPLY=($(compgen -W '" + joined(option.words) + "' -- \"$word\"))\n";
      if (option.follows == Follows::file) values += "      COMPREPLY=($(compgen -f -- \"$word\"))\n";
      values += "      return ;;\n";
    }
    cases += "    " + command_name + ") options='" + joined(options) + "' ;;\n";
  }
  return "# Completion of translator's command line for bash; written by: translator completion bash\n"
         "_translator() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD - 1]}\" options=''\n"
         "  local IFS=$' \\t\\n'\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W '" +
         names +
         "' -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  # bash takes the = of --option=value for a word of its own.\n"
         "  if [[ $word == = ]]; then\n"
         "    word=''\n"
         "  elif [[ $before == = ]]; then\n"
         "    before=\"${COMP_WORDS[COMP_CWORD - 2]}\"\n"
         "  fi\n"
         "  case \"${COMP_WORDS[1]} $before\" in\n" +
         values +
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         cases +
         "  esac\n"
         "  IFS=$'\\n'\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(IFS=' '; compgen -W \"$options\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _translator translator\n";
}

std::string zsh_script(const CLI::App& app) {
  const auto described = [](const std::string& text) {
    std::string all;
    for (const char c : text) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') all += '\\';
      all += c;
    }
    return all;
  };
  std::string names, cases;
  for (const CLI::App* command : commands_of(app)) {
    names += "    " +
             quoted(described(command->get_name()) + ":" + described(command->get_description()), "'\\''") +
             "\n";
    cases += "    " + command->get_name() + ")\n      _arguments";
    for (const OptionText& option : options_of(*command)) {
      for (const std::string& name : option.names) {
        std::string argument = "*" + name + "[" + described(option.meaning) + "]";
        if (option.follows == Follows::words) argument += ":word:(" + joined(option.words) + ")";
        if (option.follows == Follows::file) argument += ":file:_files";
        if (option.follows == Follows::anything) argument += ":value: ";
        cases += " \\\n        " + quoted(argument, "'\\''");
      }
    }
    cases += " \\\n        '*:file:_files' ;;\n";
  }
  return "#compdef translator\n"
         "# Completion of translator's command line for zsh; written by: translator completion zsh\n"
         "_translator() {\n"
         "  local -a commands=(\n" +
         names +
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _translator translator\n";
}

std::string fish_script(const CLI::App& app) {
  std::string script =
      "# Completion of translator's command line for fish; written by: translator completion fish\n";
  for (const CLI::App* command : commands_of(app)) {
    script += "complete -c translator -f -n __fish_use_subcommand -a " + command->get_name() + " -d " +
              quoted(command->get_description(), "\\'") + "\n";
    for (const OptionText& option : options_of(*command)) {
      script += "complete -c translator -n '__fish_seen_subcommand_from " + command->get_name() + "'";
      for (const std::string& name : option.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.follows == Follows::words) script += " -x -a '" + joined(option.words) + "'";
      if (option.follows == Follows::file) script += " -r -F";
      if (option.follows == Follows::anything) script += " -x";
      script += " -d " + quoted(option.meaning, "\\'") + "\n";
    }
  }
  return script;
}

}  // namespace

void add_completion(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand(
      "completion", "Prints a script by which a shell completes commands, options and their values");
  auto shell = std::make_shared<std::string>();
  sub->add_option("shell", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
  sub->footer(
      "For bash: source <(translator completion bash), for example in ~/.bashrc. zsh: translator completion "
      "zsh > FOLDER/_translator, where FOLDER is in $fpath. fish: translator completion fish > "
      "~/.config/fish/completions/translator.fish.");
  sub->callback([&app, &run, shell] {
    run = [&app, shell] {
      const std::map<std::string, std::string (*)(const CLI::App&)> scripts = {
          {"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
      std::fputs(scripts.at(*shell)(app).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace translator
