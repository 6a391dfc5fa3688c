#include "../fuzz.hpp"
#include "eigenformer/search/constraints/glossary.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const auto glossary = Glossary::load(path, true);
    const std::string text = detail::read_text_file(path);
    for (const GlossaryTerm& term : glossary.find(text)) {
      if (term.span.of(text) != term.source || term.targets.empty())
        throw Error("fuzz", "a term is not what its span has");
    }
  });
}
