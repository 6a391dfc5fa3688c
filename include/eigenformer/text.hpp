#pragma once

/// \file
/// Subwords by SentencePiece, whose headers and libraries (sentencepiece and sentencepiece_train) it needs.

// First, because it refuses targets and flags that the library does not support.
#include "eigenformer/core/base/config.hpp"

#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
