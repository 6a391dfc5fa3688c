#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"

namespace eigenformer {

/// A model for inference only: its matrices are packed in the weight format of its folder, and its parameters
/// do not hold them a second time.
template <class M>
struct PackedModel {
  LoadedModel<M> loaded;  ///< packed parameters have no memory (release_packed_weights())
  std::shared_ptr<const detail::kernels::PackedWeights> weights;  ///< the packed matrices

  /// A context for inference with the packed weights.
  Context<float> context() const { return Context<float>::inference().with_packed_weights(weights); }
};

namespace detail {

/// Loads the weights of a file, packed in its format. Int8 panels are used in the mapped file, which
/// processes share. Vectors are loaded into the model, and the memory of its packed matrices is released.
template <class M>
std::shared_ptr<const kernels::PackedWeights> load_packed_weights(const std::filesystem::path& path, M& model,
                                                                  WeightFormat format) {
  static_assert(std::is_same_v<typename M::value_type, float>, "weights are packed of models of float");
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (format != WeightFormat::int8 || !has_int8_panels(file)) {
    load_quantized_model(path, model, format);
    return pack_weights_in_place(model, format);
  }
  auto packed = std::make_shared<kernels::PackedWeights>();
  const auto entries =
      read_int8_entries(file, model, [&](const std::vector<Int8Rows>& products, const Shape& shape) {
        for (const Int8Rows& rows : products)
          packed->add(rows.parameter, rows.first, view_int8_panels(file, rows, shape[1]));
        return Tensor<float>::without_storage(shape);
      });
  std::vector<GivenTensor> given;
  for (const auto& e : entries) given.push_back({e.name, e.value.shape()});
  try {
    match_state_dict(
        state_dict(model), given, {}, [&](std::size_t i) { return entries[i].value; },
        [&](const StateEntry<float>& entry, std::size_t i) {
          if (!entries[i].value.defined()) return;
          Tensor<float> target = entry.value;
          target.copy_from(entries[i].value);
        });
  } catch (const ValueError& error) {
    throw IoError("load_model", {"'", path.string(), "' does not fit the model: ", error.what()});
  }
  release_packed_weights(model, *packed);
  Runtime::instance().pool().trim();
  return packed;
}

}  // namespace detail

/// Writes the folder of a model that is packed in int8, from import_marian_int8() or load_packed_folder():
/// bytes, scales and input steps are kept. Throws as save_model_folder() does, and ValueError for weights of
/// another format.
template <FolderModel M>
void save_packed_folder(const std::filesystem::path& folder, const PackedModel<M>& model,
                        const nlohmann::json& training = nlohmann::json::object()) {
  const LoadedModel<M>& loaded = model.loaded;
  FolderTransaction save(folder);
  detail::stage_folder(save, loaded.model, loaded.tokenizers, training, WeightFormat::int8,
                       loaded.description.text, model.weights.get());
  save.commit();
}

/// Loads a model folder for inference. Int8 weights are used in the mapped file: nothing is converted or
/// copied, and processes that load the same folder share the memory. Their bytes and sums are not verified,
/// as load_model_folder() and `translator inspect` do. The file must not be modified in place while it is
/// mapped: truncating it ends the process (SIGBUS). Replacing it, as save_model_folder() does, is safe.
/// Throws as load_model_folder() does.
///
///     const auto model = ef::load_packed_folder("en-de");  // a translation model
///     auto sentences = ef::generate(model.loaded.model, model.context(), sources);
template <FolderModel M = Seq2SeqTransformer<float>>
PackedModel<M> load_packed_folder(const std::filesystem::path& folder) {
  std::shared_ptr<const detail::kernels::PackedWeights> weights;
  auto loaded = detail::load_folder<M>(folder, [&](const auto& path, M& model, const auto& description) {
    weights = detail::load_packed_weights(path, model, description.weights);
  });
  return {std::move(loaded), std::move(weights)};
}

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
                {"'", folder.string(), "' was saved without a tokenizer, expected a model with one"});
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

EIGENFORMER_IO_INSTANCE(LoadedModel<Seq2SeqTransformer<float>> load_model_folder<Seq2SeqTransformer<float>>(
    const std::filesystem::path&))
EIGENFORMER_IO_INSTANCE(PackedModel<Seq2SeqTransformer<float>> load_packed_folder<Seq2SeqTransformer<float>>(
    const std::filesystem::path&))
EIGENFORMER_IO_INSTANCE(void save_model_folder(const std::filesystem::path&, const Seq2SeqTransformer<float>&,
                                               const TokenizerPair&, const nlohmann::json&, WeightFormat,
                                               const ModelConventions&))
EIGENFORMER_IO_INSTANCE(void save_model_folder(const std::filesystem::path&,
                                               const LoadedModel<Seq2SeqTransformer<float>>&, WeightFormat))
EIGENFORMER_IO_INSTANCE(FolderDescription<Seq2SeqOptions> read_model_description<Seq2SeqTransformer<float>>(
    const std::filesystem::path&))

}  // namespace eigenformer
