#pragma once

/// \file
/// Subwords by SentencePiece, whose headers and libraries (sentencepiece and sentencepiece_train) it needs.
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
