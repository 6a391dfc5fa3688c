#pragma once

/// What needs SentencePiece (headers and the libraries sentencepiece and sentencepiece_train): subwords.
#include "eigenformer/data/tokenizers/subword_tokenizer.hpp"
