#pragma once

#include <string>
#include <vector>

/// What one file computes with eigenformer, and where its state is.
struct Work {
  float product = 0;                         ///< the sum of a matrix product
  float loss_ratio = 0;                      ///< the first loss of a training divided by the last
  std::vector<std::vector<int>> hypotheses;  ///< the ids that a beam search finds
  std::vector<std::string> libraries;        ///< of each optional library "name: ok", or what using it throws
  const void* runtime = nullptr;             ///< the Runtime, which owns the threads
  int threads = 0;                           ///< of that Runtime

  /// Whether so many optional libraries work, and the others say that they are missing.
  bool has(int working) const {
    int ok = 0, clear = 0;
    for (const std::string& library : libraries) {
      ok += library.ends_with(": ok") ? 1 : 0;
      clear += library.find("built without") != std::string::npos ? 1 : 0;
    }
    return ok == working && ok + clear == static_cast<int>(libraries.size());
  }
};

/// Trains, decodes and uses the optional libraries on so many threads, with the files in tests/fixtures. The
/// file that is compiled twice has it under two names.
using WorkFunction = void(int threads, const char* fixtures, Work& work);
extern "C" WorkFunction work_first, work_second;
