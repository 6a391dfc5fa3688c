#include "sentence_translator.hpp"

namespace eigenformer {
template class TextTranslator<Ensemble<Seq2SeqTransformer<float>>>;
}  // namespace eigenformer
