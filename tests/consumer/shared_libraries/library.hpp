#pragma once

#include <vector>

/// What one shared library computes with eigenformer, and where its state is.
struct Work {
  float loss_ratio = 0;                      ///< the first loss of a training divided by the last
  std::vector<std::vector<int>> hypotheses;  ///< the ids that a beam search finds
  bool has_sentencepiece = false;            ///< whether it can train a SentencePiece tokenizer
  const void* runtime = nullptr;             ///< the Runtime, which owns the threads
  int threads = 0;                           ///< of that Runtime
};

/// Trains and decodes on so many threads. Each library exports one under its own name.
using WorkFunction = void (*)(int threads, Work& work);
