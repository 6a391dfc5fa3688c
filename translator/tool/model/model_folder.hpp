#pragma once

#include "eigenformer/io/models/translation_model.hpp"

// Reading and writing model folders is compiled once, in model_folder.cpp, instead of in every command.
namespace eigenformer {
extern template TranslationModel<float> load_model_folder(const std::filesystem::path&);
extern template void save_model_folder(const std::filesystem::path&, const Seq2SeqTransformer<float>&,
                                       const TokenizerPair&, const nlohmann::json&, WeightFormat,
                                       const ModelConventions&);
}  // namespace eigenformer
