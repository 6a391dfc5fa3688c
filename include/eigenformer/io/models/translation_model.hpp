#pragma once

#include <concepts>
#include <filesystem>

#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/io/models/packed_folder.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"

namespace eigenformer {

/// A Seq2SeqTransformer with its description and tokenizers, which translates text.
template <class T = float>
using TranslationModel = LoadedModel<Seq2SeqTransformer<T>>;

/// The contents of its folder's options.json.
using ModelDescription = FolderDescription<Seq2SeqOptions>;

/// Reads the options.json of a translation model's folder, without its weights. Throws IoError that names the
/// file and what is wrong with it.
inline ModelDescription read_model_description(const std::filesystem::path& folder) {
  return read_model_description<Seq2SeqTransformer<float>>(folder);
}

namespace detail {

/// Throws IoError for a model that was saved without tokenizers, for programs that need text.
inline void require_tokenizers(const std::filesystem::path& folder, const TokenizerPair& tokenizers) {
  if (tokenizers.source) return;
  throw IoError("load_model_folder",
                "'" + folder.string() + "' was saved without a tokenizer, expected a model with one");
}

}  // namespace detail

/// Loads a translation model's folder, with the tokenizers that it was saved with, if any. Throws as
/// `load_model_folder<M>()` does.
///
///     ef::save_model_folder("en-de", model, tokenizers);  // or without tokenizers
///     auto loaded = ef::load_model_folder("en-de");
template <std::floating_point T = float>
TranslationModel<T> load_model_folder(const std::filesystem::path& folder) {
  return load_model_folder<Seq2SeqTransformer<T>>(folder);
}

/// Loads a translation model's folder for inference: see `load_packed_folder<M>()`. Throws as
/// load_model_folder() does.
inline PackedModel<Seq2SeqTransformer<float>> load_packed_folder(const std::filesystem::path& folder) {
  return load_packed_folder<Seq2SeqTransformer<float>>(folder);
}

}  // namespace eigenformer
