#pragma once

/// Shared by the examples: texts and numbers from the command line, a usage line, error messages, and the
/// terminal.

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

/// The width of the terminal on std::clog, for ef::ConsoleSink; empty if it is not a terminal.
inline std::function<std::size_t()> terminal() {
  if (isatty(STDERR_FILENO) != 1) return {};
  return [] { return std::size_t{79}; };
}

/// An invalid argument.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The arguments of a program; all of them are optional.
class Arguments {
 public:
  Arguments(std::vector<std::string> names, std::vector<std::string> given)
      : names_(std::move(names)), given_(std::move(given)) {
    if (given_.size() > names_.size())
      throw UsageError("unexpected argument '" + given_[names_.size()] + "'");
  }

  /// Argument i, or an empty text. Throws UsageError for what looks like an option.
  std::string text(std::size_t i) const {
    if (i >= given_.size()) return {};
    if (given_[i].empty() || given_[i][0] == '-')
      throw UsageError(names_[i] + " is '" + given_[i] + "', expected a name");
    return given_[i];
  }
  /// Argument i, a whole number from 1 to 10^9, or `missing`. Throws UsageError.
  std::int64_t whole(std::size_t i, std::int64_t missing) const {
    return read(i, missing, "a whole number from 1 to 1000000000",
                [](std::int64_t x) { return x >= 1 && x <= 1'000'000'000; });
  }
  /// Argument i, a number that is not negative, or `missing`. Throws UsageError.
  double number(std::size_t i, double missing) const {
    return read(i, missing, "a number that is not negative",
                [](double x) { return std::isfinite(x) && x >= 0; });
  }

 private:
  template <class X, class F>
  X read(std::size_t i, X missing, const char* expected, F&& good) const {
    if (i >= given_.size()) return missing;
    const std::string& text = given_[i];
    X x{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    if (error == std::errc() && end == text.data() + text.size() && good(x)) return x;
    throw UsageError(names_[i] + " is '" + text + "', expected " + expected);
  }

  std::vector<std::string> names_, given_;
};

/// Calls body(arguments) and returns what it returns. --help prints the usage line; bad arguments end with 2,
/// errors with 1.
inline int run(int argc, char** argv, const std::vector<std::string>& names, int (*body)(const Arguments&)) {
  const std::string_view path = argv[0];
  const std::string name(path.substr(path.rfind('/') + 1));
  std::string usage = "usage: " + name;
  for (const std::string& n : names) usage += " [" + n;
  usage += std::string(names.size(), ']');
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::puts(usage.c_str());
    return 0;
  }
  try {
    return body(Arguments(names, {argv + 1, argv + argc}));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n%s\n", name.c_str(), error.what(), usage.c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

}  // namespace example
