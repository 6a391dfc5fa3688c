#include "../fuzz.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = nlohmann::json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  try {
    const auto options = options_from_json<Seq2SeqOptions>(json);
    options.validate("options");
    (void)options_to_json(options).dump();
  } catch (const ValueError&) {
    return 0;
  }
  return 0;
}
