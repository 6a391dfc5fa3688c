#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace translator {

/// Groups of flags that only --help-all shows.
inline constexpr const char* positions_group = "Positions: options of a single kind";
inline constexpr const char* encoder_group = "Encoder: values that differ from the decoder's";
inline constexpr const char* decoder_group = "Decoder: values that differ from the encoder's";

/// Help in lines of at most 100 columns: names on the left, meanings on the right. The groups above are
/// omitted, except by --help-all.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace translator
