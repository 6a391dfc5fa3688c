// Compiled twice, with different flags and optional libraries. EXPORTED is the name of the function.
#include "library.hpp"

#include <exception>

#include "../work.hpp"
#if defined(CLIENT_WITH_IO)
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/io/huggingface/tokenizer_json.hpp"
#include "eigenformer/io/numpy/npz.hpp"
#endif

namespace ef = eigenformer;

static std::vector<std::vector<int>> search() {
  ef::RandomGenerator rng(3);
  const ef::Seq2SeqTransformer<float> model(small_options(), rng);
  const std::vector<std::vector<std::int32_t>> sentences = {{4, 5, 6}, {7, 8}};
  std::vector<std::vector<int>> found;
  for (const auto& hypotheses :
       ef::generate(model, ef::Context<float>::inference(), sentences, {.beam_size = 2, .max_length = 8})) {
    found.emplace_back(hypotheses[0].ids.begin(), hypotheses[0].ids.end());
  }
  return found;
}

#if defined(CLIENT_WITH_IO)
// "ok" or the message of what f throws.
template <class F>
static std::string result_of(F&& f) {
  try {
    f();
    return "ok";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// One thing with each optional library, by functions that both objects have.
static std::vector<std::string> use_libraries(const std::string& fixtures) {
  return {"zlib: " + result_of([&] { ef::NpzFile::open(fixtures + "/numpy/compressed.npz"); }),
          "SentencePiece: " + result_of([&] {
            const std::vector<std::string> text = {"the old dog and the young dog", "a cat and an old dog"};
            (void)ef::train_tokenizer({.kind = "subword", .vocabulary_size = 24}, text);
          }),
          "ICU: " + result_of([&] {
            const auto json = ef::detail::TokenizerJson::open(fixtures + "/tokenizers/bert/tokenizer.json");
            ef::detail::ForeignVocabulary vocabulary;
            for (const auto& [token, id] : json.vocabulary()) {
              if (vocabulary.tokens.size() <= static_cast<std::size_t>(id))
                vocabulary.tokens.resize(static_cast<std::size_t>(id) + 1);
              vocabulary.tokens[static_cast<std::size_t>(id)] = token;
              if (token == json.unknown()) vocabulary.unknown_id = static_cast<std::int32_t>(id);
            }
            (void)json.tokenizer(vocabulary);
          }),
          "zstd: " + result_of([&] { (void)ef::compress(ef::Compression::zstd, "text"); })};
}
#endif

extern "C" __attribute__((visibility("default"))) void EXPORTED(int threads,
                                                                [[maybe_unused]] const char* fixtures,
                                                                Work& work) {
  ef::Runtime::instance().set_threads(threads);
  work.product = product_sum();
  work.loss_ratio = loss_ratio();
  work.hypotheses = search();
#if defined(CLIENT_WITH_IO)
  work.libraries = use_libraries(fixtures);
#endif
  work.runtime = &ef::Runtime::instance();
  work.threads = ef::Runtime::instance().threads();
}
