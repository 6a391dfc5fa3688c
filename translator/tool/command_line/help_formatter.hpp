#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace translator {

/// Groups of flags that only --help-all shows.
inline constexpr const char* positions_group = "Positions: options of a single kind";
inline constexpr const char* encoder_group = "Encoder: values that differ from the decoder's";
inline constexpr const char* decoder_group = "Decoder: values that differ from the encoder's";

/// Help in lines of at most 100 columns: names on the left, meanings on the right. The groups above are
/// omitted, except by --help-all.
class HelpFormatter : public CLI::Formatter {
 public:
  static constexpr std::size_t width = 100, left_width = 34;

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  /// "--bias,--no-bias" instead of "--bias,--no-bias{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  /// The type, the default, and whether it is required.
  std::string make_option_opts(const CLI::Option* option) const override;
  /// Adds which options it needs and excludes.
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  mutable bool all_ = false;
};

}  // namespace translator
