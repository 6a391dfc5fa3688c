#pragma once

#include <string>

#include "eigenformer/generation/decoding/packed_model.hpp"
#include "model_folder.hpp"

namespace translator {

/// A model as decoding wants it: its weights packed in the format of its folder, and nothing held twice.
struct DecodingModel {
  eigenformer::TranslationModel<float> loaded;
  eigenformer::Context<float> ctx;  ///< with the packed weights

  /// Throws as load_model_folder does.
  explicit DecodingModel(const std::string& folder)
      : loaded(eigenformer::load_model_folder<float>(folder)),
        ctx(eigenformer::Context<float>::inference().with_packed_weights(
            eigenformer::pack_weights_in_place(loaded.model, loaded.description.weights))) {}
};

}  // namespace translator
