#include "model_folder.hpp"

namespace eigenformer {
template TranslationModel<float> load_model_folder(const std::filesystem::path&);
template void save_model_folder(const std::filesystem::path&, const Seq2SeqTransformer<float>&,
                                const TokenizerPair&, const nlohmann::json&, WeightFormat,
                                const ModelConventions&);
}  // namespace eigenformer
