#pragma once

#include <string>

#include "model_folder.hpp"

namespace translator {

/// A model as decoding wants it: its weights packed in the format of its folder, and nothing held twice.
struct DecodingModel {
  eigenformer::PackedModel<eigenformer::Seq2SeqTransformer<float>> packed;
  eigenformer::TranslationModel<float>& loaded;
  eigenformer::Context<float> ctx;  ///< with the packed weights

  /// Throws as load_packed_folder does.
  explicit DecodingModel(const std::string& folder)
      : packed(eigenformer::load_packed_folder(folder)), loaded(packed.loaded), ctx(packed.context()) {}
  DecodingModel(const DecodingModel&) = delete;
  DecodingModel& operator=(const DecodingModel&) = delete;
};

}  // namespace translator
