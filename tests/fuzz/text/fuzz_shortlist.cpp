#include "../fuzz.hpp"
#include "eigenformer/data/corpus/shortlist.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto shortlist = Shortlist::parse({reinterpret_cast<const char*>(data), size}, "input");
    std::vector<std::int32_t> sources;
    for (std::int32_t id = -1; id <= shortlist.source_size() && id < 1000; ++id) sources.push_back(id);
    (void)shortlist.choose(sources, 100);
  } catch (const IoError&) {
    return 0;
  }
  return 0;
}
