#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"

namespace eigenformer {

/// A model of a folder that is here to translate, not to train: its matrices are packed in the format of the
/// folder, and nothing is held twice.
template <class M>
struct PackedModel {
  LoadedModel<M> loaded;  ///< the parameters that are packed have no memory (release_packed_weights)
  std::shared_ptr<const kernels::PackedWeights> weights;

  /// A context for inference with the packed weights.
  Context<float> context() const { return Context<float>::inference().with_packed_weights(weights); }
};

namespace detail {

/// Weights of a file, packed in its format; int8 panels stay where they are, in the mapped file, which
/// processes share. Vectors are loaded into the model, whose packed matrices have no memory then.
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
  const auto entries = read_int8_entries(
      file, model, [&](const std::string&, const std::vector<Int8Rows>& products, const Shape& shape) {
        for (const Int8Rows& rows : products)
          packed->add(rows.parameter, rows.first, view_int8_panels(file, rows, shape[1]));
        return Tensor<float>::without_storage(shape);
      });
  std::vector<GivenTensor> given;
  for (const auto& e : entries) given.push_back({e.name, e.value.shape()});
  try {
    match_state_dict(state_dict(model), given, {}, [&](const StateEntry<float>& entry, std::size_t i) {
      if (!entries[i].value.defined()) return;
      Tensor<float> target = entry.value;
      target.copy_from(entries[i].value);
    });
  } catch (const ValueError& error) {
    throw IoError("load_model", "'" + path.string() + "' does not fit the model: " + error.what());
  }
  release_packed_weights(model, *packed);
  Runtime::instance().pool().trim();
  return packed;
}

}  // namespace detail

/// Writes the folder of a model that was packed in int8 and is held packed alone, as import_marian_int8() and
/// load_packed_folder() give it: bytes, scales and input steps are kept. Throws as save_model_folder does,
/// and ValueError for weights of another format.
template <FolderModel M>
void save_packed_folder(const std::filesystem::path& folder, const PackedModel<M>& model,
                        const nlohmann::json& training = nlohmann::json::object()) {
  const LoadedModel<M>& loaded = model.loaded;
  detail::save_folder(folder, loaded.model, loaded.tokenizers, training, WeightFormat::int8,
                      loaded.description.text, 6,
                      [&](const auto& path) { save_packed_model(path, loaded.model, *model.weights); });
}

/// Reads a model folder for inference. Int8 weights are the mapped file: nothing is converted or copied, and
/// processes that load one folder share its memory. Their bytes and sums are not checked (load_model_folder
/// does, and so does `translator inspect`). The file must not be written to while it is mapped: a process
/// that reads what another cut off gets SIGBUS. save_model_folder puts a new file in its place, which is
/// safe. Throws as load_model_folder does.
///
///     const auto model = ef::load_packed_folder<ef::Seq2SeqTransformer<float>>("en-de");
///     auto sentences = ef::generate(model.loaded.model, model.context(), sources);
template <FolderModel M>
PackedModel<M> load_packed_folder(const std::filesystem::path& folder) {
  std::shared_ptr<const kernels::PackedWeights> weights;
  auto loaded = detail::load_folder<M>(folder, [&](const auto& path, M& model, const auto& description) {
    weights = detail::load_packed_weights(path, model, description.weights);
  });
  return {std::move(loaded), std::move(weights)};
}

}  // namespace eigenformer
