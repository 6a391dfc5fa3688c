#pragma once

/// What needs SentencePiece (headers and the libraries sentencepiece and sentencepiece_train): subwords.
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
