#include "config_file.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "checks.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/version.hpp"

namespace translator {

namespace {

namespace ef = eigenformer;

/// One line "key = value".
struct Entry {
  std::string section, key;
  std::vector<std::string> values{};
  bool list = false;
  std::size_t line = 0;
};

/// Which line of a file gave an option, for main() to report values that are found to be invalid later.
struct Given {
  std::vector<std::string> names;
  std::string place;
};
std::vector<Given>& given_by_files() {
  static std::vector<Given> given;
  return given;
}

/// What a string in quotes escapes, and the letter that stands for it after a backslash.
constexpr std::string_view escaped_characters = "\\\"\n\t\r", escape_letters = "\\\"ntr";

/// Reads a file line by line.
class ConfigParser {
 public:
  explicit ConfigParser(std::string path) : path_(std::move(path)) {}

  std::vector<Entry> parse() {
    std::vector<Entry> entries;
    std::string section;
    for (const std::string& line : ef::read_lines(path_)) {
      ++line_;
      rest_ = line;
      skip_space();
      if (at_end()) continue;
      if (rest_.front() == '[') {
        const std::size_t end = rest_.find(']');
        if (end == std::string_view::npos) fail("a section has no ']', expected for example [translate]");
        section = trimmed(rest_.substr(1, end - 1));
        rest_.remove_prefix(end + 1);
        require_end();
        continue;
      }
      entries.push_back(read_entry(section));
    }
    return entries;
  }

  std::string place(std::size_t line) const { return "'" + path_ + "', line " + std::to_string(line); }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw ef::ValueError("config", {place(line_), ": ", why});
  }

  static std::string trimmed(std::string_view text) {
    text.remove_suffix(text.size() - (text.find_last_not_of(" \t") + 1));  // npos + 1 is 0
    return std::string(text.substr(std::min(text.find_first_not_of(" \t"), text.size())));
  }
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }
  bool at_end() const { return rest_.empty() || rest_.front() == '#'; }
  void require_end() {
    skip_space();
    if (!at_end()) fail("'" + std::string(rest_) + "' follows the value, expected the end of the line");
  }

  Entry read_entry(const std::string& section) {
    const std::size_t equals = rest_.find('=');
    if (equals == std::string_view::npos)
      fail("'" + std::string(rest_) + "' has no '=', expected key = value");
    Entry entry{.section = section, .key = trimmed(rest_.substr(0, equals)), .line = line_};
    // A field's name in JSON is accepted, too.
    std::replace(entry.key.begin(), entry.key.end(), '_', '-');
    rest_.remove_prefix(equals + 1);
    skip_space();
    if (!rest_.empty() && rest_.front() == '[') {
      entry.list = true;
      rest_.remove_prefix(1);
      skip_space();
      while (!rest_.empty() && rest_.front() != ']') {
        entry.values.push_back(read_value(",]"));
        skip_space();
        if (rest_.empty() || (rest_.front() != ',' && rest_.front() != ']'))
          fail("a list has no ']', expected [a, b] in one line");
        if (rest_.front() == ',') rest_.remove_prefix(1);
        skip_space();
      }
      if (rest_.empty()) fail("a list has no ']', expected [a, b] in one line");
      rest_.remove_prefix(1);
    } else {
      entry.values.push_back(read_value(""));
    }
    require_end();
    return entry;
  }

  // A string in quotes, or the text up to one of `ends` or a comment.
  std::string read_value(std::string_view ends) {
    if (at_end()) fail("a value is missing, expected key = value");
    const char quote = rest_.front();
    if (quote != '"' && quote != '\'') {
      const std::size_t end = std::min(rest_.find_first_of(std::string(ends) + "#"), rest_.size());
      const std::string value = trimmed(rest_.substr(0, end));
      rest_.remove_prefix(end);
      return value;
    }
    std::string value;
    std::size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      char c = rest_[i];
      if (c == '\\' && quote == '"') {
        const std::size_t known = i + 1 < rest_.size() ? escape_letters.find(rest_[i + 1]) : rest_.npos;
        if (known == rest_.npos) fail("a string has an unknown escape, expected \\\\, \\\", \\n, \\t or \\r");
        c = escaped_characters[known];
        ++i;
      }
      value += c;
    }
    if (i == rest_.size()) fail("a string is not closed, expected " + std::string(1, quote));
    rest_.remove_prefix(i + 1);
    return value;
  }

  std::string path_;
  std::size_t line_ = 0;
  std::string_view rest_;
};

CLI::Option* find_option(CLI::App& command, const std::string& key) {
  for (CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    const auto& names = option->get_lnames();
    if (std::find(names.begin(), names.end(), key) != names.end()) return option;
  }
  return nullptr;
}

bool is_of_use(const CLI::Option& option) {
  return option.get_configurable() && !option.get_lnames().empty();
}

/// Gives a command the options of a file that the command line does not have.
void apply_config(CLI::App& command, const std::string& path) {
  ConfigParser parser(path);
  const auto commands = commands_of(*command.get_parent());
  // What the command's own section gives comes before what stands above all sections.
  std::vector<Entry> entries = parser.parse();
  std::stable_partition(entries.begin(), entries.end(),
                        [](const Entry& entry) { return !entry.section.empty(); });
  std::map<const CLI::Option*, const Entry*> taken;
  for (const Entry& entry : entries) {
    const auto fail = [&](const std::string& why) {
      throw ef::ValueError("config", {parser.place(entry.line), ": ", why});
    };
    if (!entry.section.empty() && std::none_of(commands.begin(), commands.end(), [&](const CLI::App* other) {
          return other->get_name() == entry.section;
        })) {
      const std::string why = unknown_command(*command.get_parent(), entry.section);
      fail(why + (why.ends_with('?') ? "" : ", expected a section named after a command"));
    }
    if (!entry.section.empty() && entry.section != command.get_name()) continue;
    CLI::Option* const option = find_option(command, entry.key);
    if (entry.key == "config" || entry.key == "print-config")
      fail("'" + entry.key + "' is allowed on the command line only, not in an options file");
    if (option == nullptr || !is_of_use(*option)) {
      const std::string nearest = nearest_option(command, "--" + entry.key);
      fail("there is no option '" + entry.key + "' of translator " + command.get_name() +
           (nearest.empty() ? "" : ": did you mean '" + nearest.substr(2) + "'?"));
    }
    const auto [earlier, is_new] = taken.try_emplace(option, &entry);
    const bool several = takes_several(*option);
    if (!is_new && earlier->second->section != entry.section) continue;
    if (!is_new) {
      fail(option_key(*option) + " is given twice, expected once: line " +
           std::to_string(earlier->second->line) + " has it" +
           (several ? "; give several values as a list: " + entry.key + " = [\"a\", \"b\"]" : ""));
    }
    if (entry.list && !several) fail(option_key(*option) + " is a list, expected one value");
    if (option->count() > 0) continue;
    // A flag that is off, as by default, counts as not given: other options may exclude it.
    const bool off = option->get_expected_max() == 0 && option->get_fnames().empty() &&
                     entry.values == std::vector<std::string>{"false"};
    if (off) continue;
    try {
      for (const std::string& value : entry.values) {
        option->add_result(option->get_expected_max() == 0 ? option->get_flag_value(entry.key, value)
                                                           : value);
      }
      if (option->count() > 0) option->run_callback();
    } catch (const CLI::ParseError& error) {
      fail(message_of(error));
    }
    Given given{.names = option->get_lnames(), .place = parser.place(entry.line)};
    given_by_files().push_back(std::move(given));
  }
}

std::string quoted(const std::string& text) {
  std::string value = "\"";
  for (const char c : text) {
    const std::size_t escape = escaped_characters.find(c);
    if (escape != escaped_characters.npos) value += '\\';
    value += escape != escaped_characters.npos ? escape_letters[escape] : c;
  }
  return value + '"';
}

/// A command's options as a file: the given ones, and the defaults of the others as comments.
std::string config_text(const CLI::App& command) {
  std::string text = "# eigenformer " + std::string(ef::version_string()) +
                     "; options behind # were not given, and show their defaults\n[" + command.get_name() +
                     "]\n";
  for (const std::string& group : command.get_groups()) {
    std::string lines;
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_group() != group || !is_of_use(*option)) continue;
      const bool flag = option->get_expected_max() == 0;
      const bool is_text = option->get_type_name().starts_with("TEXT");
      const auto value_text = [&](const std::string& value) {
        return is_text && !flag ? quoted(value) : value;
      };
      std::string value;
      if (option->count() == 0) {
        // Neither on nor off, such as what a stack has of the model's options.
        if (flag && option->get_default_str().empty() && !option->get_fnames().empty()) continue;
        const std::string fallback = option->get_default_str();
        value = !fallback.empty() ? value_text(fallback) : flag ? "false" : "";
      } else if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
                 option->results().size() > 1) {
        for (const std::string& one : option->results())
          value += (value.empty() ? "[" : ", ") + value_text(one);
        value += "]";
      } else {
        value = value_text(option->results().back());
      }
      lines += (option->count() == 0 ? "# " : "") + option_key(*option) + " =" +
               (value.empty() ? "" : " " + value) + '\n';
    }
    if (!lines.empty()) text += "\n# " + group + "\n" + lines;
  }
  return text;
}

}  // namespace

void add_config(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--config", [&command](const std::string& path) { apply_config(command, path); },
          "options file, one \"key = value\" per line; options on the command line take precedence")
      ->configurable(false);
  // After --config in the order of options, because they are read in this order.
  command
      .add_flag_function(
          "--print-config",
          [&command](std::int64_t given) {
            if (given <= 0) return;
            require_given_once(command);
            throw ConfigRequest{config_text(command)};
          },
          "print all options as an options file for --config, and exit")
      ->configurable(false);
}

std::string config_place(const std::string& message) {
  const auto names = [&](const std::string& word) { return has_word(message, word, "-"); };
  for (const Given& given : given_by_files()) {
    for (std::string name : given.names) {
      const bool flag = names("--" + name);
      std::replace(name.begin(), name.end(), '-', '_');
      if (flag || message.find("] " + name + " is ") != std::string::npos ||
          (name.find('_') != std::string::npos && names(name)))
        return given.place;
    }
  }
  return {};
}

}  // namespace translator
