#pragma once

#include <exception>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/files/compressed_text.hpp"
#include "eigenformer/io/huggingface/tokenizer_json.hpp"
#include "eigenformer/io/numpy/npz.hpp"

/// "ok" or the message of what f throws.
template <class F>
static std::string result_of(F&& f) {
  try {
    f();
    return "ok";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Does one thing with each optional library, by functions that both files share; a line for each.
static std::vector<std::string> use_libraries(const std::string& fixtures) {
  namespace ef = eigenformer;
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
