#include "option_flags.hpp"

#include "command_line/checks.hpp"
#include "command_line/help_formatter.hpp"

namespace translator {

namespace {

/// Whether a list such as "none, all" contains a word.
bool is_word_of(const std::string& words, const std::string& word) {
  return (", " + words + ", ").find(", " + word + ", ") != std::string::npos;
}

/// Calls f with a value of the type that flags of a kind have.
template <class F>
auto with_type(OptionKind kind, F&& f) {
  switch (kind) {
    case OptionKind::flag:
      return f(bool{});
    case OptionKind::whole_number:
      return f(std::int64_t{});
    case OptionKind::unsigned_number:
      return f(std::uint64_t{});
    case OptionKind::number:
      return f(double{});
    default:
      return f(std::string());
  }
}

}  // namespace

RowFlags::RowFlags(CLI::App& command, std::vector<OptionRow> rows, const char* help_group,
                   const std::function<bool(const OptionRow&)>& wanted) {
  for (OptionRow& row : rows) {
    if (row.kind == OptionKind::ids || !wanted(row)) continue;
    CLI::Option* const option = add(command, row);
    option->group(row.group == "encoder"    ? encoder_group
                  : row.group == "decoder"  ? decoder_group
                  : !row.owner_word.empty() ? positions_group
                                            : help_group);
    flags_.push_back({std::move(row), option});
  }
}

CLI::Option* RowFlags::add(CLI::App& command, const OptionRow& row) {
  std::string names = flag_of_name(row.name, row.group);
  if (const std::string shorter = flag_of_field(row.name, row.group); shorter != names)
    names = shorter + "," + names;
  std::string help = row.help;
  if (!row.owner_word.empty()) help = row.owner_word + ": " + help;
  if (!row.allowed.empty()) help += " (" + row.allowed + ")";
  if (row.kind == OptionKind::flag) {
    // A flag that is on by default needs a way to turn it off.
    if (row.fallback != "false") names += ",!" + flag_of_name("no_" + row.name, row.group);
    if (row.fallback == "true") help += "; on by default";
    return command.add_flag(names, std::as_const(help))->default_str(row.fallback);
  }
  CLI::Option* const option = with_type(row.kind, [&]<class V>(const V&) {
    return command.add_option_function<V>(
        names, [](const V&) {}, help);
  });
  if (row.kind == OptionKind::word)
    option->type_name(std::string("TEXT:") + words_mark +
                      CLI::detail::find_and_replace(row.allowed, ",", ""));
  return option->default_str(row.fallback);
}

nlohmann::json RowFlags::given() const {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [row, option] : flags_) {
    if (option->count() == 0) continue;
    nlohmann::json& value = row.group.empty() ? json[row.name] : json[row.group][row.name];
    with_type(row.kind, [&value, option = option]<class V>(const V&) { value = option->as<V>(); });
    // The field's name, which the library's messages use, is the same for both stacks and the model.
    if (row.kind == OptionKind::word && !row.group.empty() && !is_word_of(row.allowed, value)) {
      throw ef::ValueError("options", {flag_of_name(row.name, row.group), " is '", value.get<std::string>(),
                                       "', expected one of ", row.allowed});
    }
  }
  return json;
}

void RowFlags::require_effect(const char* op, const nlohmann::json& effective) const {
  for (const auto& [row, option] : flags_) {
    if (option->count() == 0 || row.owner.empty()) continue;
    if ((row.group.empty() ? effective : effective.at(row.group)).contains(row.name)) continue;
    const std::string owner = flag_of_field(row.owner, row.group);
    throw ef::ValueError(op, {flag_of_field(row.name, row.group), " has no effect without ", owner,
                              (row.owner_word.empty() ? "" : " " + row.owner_word), ": give both"});
  }
}

}  // namespace translator
