#include "decoding_model.hpp"

namespace eigenformer {
template class TextTranslator<Ensemble<Seq2SeqTransformer<float>>>;
}  // namespace eigenformer
