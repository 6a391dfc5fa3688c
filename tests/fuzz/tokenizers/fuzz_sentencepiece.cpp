#include <string>
#include <vector>

#include "../fuzz.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"

using namespace eigenformer;

// What the check lets through, the library must bear: loading, encoding, decoding, drawing segmentations.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const detail::SentencePieceProcessor processor(std::string(reinterpret_cast<const char*>(data), size));
    std::string text = " the  dog \xEF\xAC\x81 12\xE3\x80\x80\xE7\x8A\xAC <sep>e\xCC\x81";
    text += '\0';
    for (int c = 1; c < 128; ++c) text += static_cast<char>(c);
    (void)processor.decode(processor.encode<std::string>(text));
    (void)processor.decode(processor.encode<int>(text));
    std::vector<int> all;
    for (int id = 0; id < processor.size(); ++id) all.push_back(id);
    (void)processor.decode(all);
    RandomGenerator rng(1);
    const detail::SentencePieceSampler sampler(processor.model());
    (void)processor.sample(
        text, sampler.is_bpe() ? SubwordSampling{.bpe_dropout = 0.3} : SubwordSampling{.unigram_alpha = 0.3},
        rng);
  } catch (const ValueError&) {
    return 0;
  }
  return 0;
}
