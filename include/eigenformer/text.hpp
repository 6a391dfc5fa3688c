#pragma once

/// What needs SentencePiece (headers and the libraries sentencepiece and sentencepiece_train): subwords.

// First, because it refuses targets and flags that the library does not support.
#include "eigenformer/core/base/config.hpp"

#include "eigenformer/data/tokenizers/subword_tokenizer.hpp"
