#include "help_formatter.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace translator {

namespace {

constexpr std::size_t help_width = 100, names_width = 34;

bool is_shown_on_request(const std::string& group) {
  return group == positions_group || group == encoder_group || group == decoder_group;
}

std::size_t text_width(const std::string& text) {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0U) == 0x80U ? 0 : 1;
  return n;
}

/// Wraps text at word boundaries to a number of columns; its own line ends are kept.
std::vector<std::string> wrapped(const std::string& text, std::size_t most) {
  std::vector<std::string> lines(1);
  std::string word;
  const auto put = [&] {
    if (word.empty()) return;
    if (!lines.back().empty() && text_width(lines.back()) + 1 + text_width(word) > most) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + std::exchange(word, "");
  };
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      word += c;
      continue;
    }
    put();
    if (c == '\n') lines.emplace_back();
  }
  put();
  return lines;
}

/// Lines with a name on the left and its meaning on the right.
std::string two_columns(const std::string& name, const std::string& meaning) {
  std::string text = "  " + name;
  bool room = text_width(text) < names_width;
  for (const std::string& line : wrapped(meaning, help_width - names_width)) {
    if (!room) text += '\n';
    text += std::string(room ? names_width - text_width(text) : names_width, ' ') + line;
    room = false;
  }
  return text + '\n';
}

std::string paragraphs(const std::string& text) {
  std::string all;
  for (const std::string& line : wrapped(text, help_width)) all += line + '\n';
  return all;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    all_ = mode == CLI::AppFormatMode::All;
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    // Omitted groups leave empty lines.
    for (std::size_t at; (at = help.find("\n\n\n")) != std::string::npos;) help.erase(at, 1);
    return help;
  }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (!all_ && is_shown_on_request(group)) return {};
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return two_columns(make_option_name(option, is_positional) + make_option_opts(option),
                       make_option_desc(option));
  }

  /// "--bias,--no-bias" instead of "--bias,--no-bias{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::string off = "{false}";
    if (const std::size_t at = name.find(off); at != std::string::npos) name.erase(at, off.size());
    return name;
  }

  /// The type, the default, and whether it is required.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_expected_max() == 0) return {};  // a flag
    std::string text = " " + option->get_type_name();
    if (const std::size_t check = text.find(':'); check != std::string::npos) text.erase(check);
    if (!option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_required()) text += " REQUIRED";
    return text;
  }

  /// Adds which options it needs and excludes.
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const auto list = [&](const char* title, const std::set<CLI::Option*>& others) {
      std::vector<std::string> names;
      for (const CLI::Option* other : others) names.push_back("--" + other->get_lnames().front());
      std::sort(names.begin(), names.end());  // the set is ordered by addresses
      if (!names.empty()) text += std::string("; ") + title + " " + CLI::detail::join(names, ", ");
    };
    list("needs", option->get_needs());
    list("not with", option->get_excludes());
    return text;
  }

  std::string make_subcommand(const CLI::App* sub) const override {
    return two_columns(sub->get_name(), sub->get_description());
  }

  std::string make_description(const CLI::App* app) const override {
    return paragraphs(app->get_description());
  }

  std::string make_footer(const CLI::App* app) const override {
    return app->get_footer().empty() ? std::string() : paragraphs(app->get_footer());
  }

 private:
  mutable bool all_ = false;
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace translator
