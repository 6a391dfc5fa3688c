#pragma once

#include <fcntl.h>
#include <sentencepiece_trainer.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <fstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer::detail {

/// What a training of SentencePiece gave.
struct SentencePieceTraining {
  bool ok = false;
  std::string text{};  ///< the model, or why there is none
};

/// Trains in this process, which ends if memory runs out: SentencePiece works in threads, and from those no
/// exception comes back.
inline SentencePieceTraining train_sentencepiece_here(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  if (status.ok()) return {true, std::move(model)};
  // "./src/trainer_interface.cc(580) [(condition)] Vocabulary size is ..."
  std::string why = status.message();
  if (const std::size_t end = why.find("] "); why.find(".cc(") < end && end != std::string::npos)
    why.erase(0, end + 2);
  return {false, std::move(why)};
}

/// Whether allocations of this process can fail: otherwise Linux promises more memory than there is.
inline bool memory_is_limited() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  }
  int overcommit = 0;
  return std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit && overcommit == 2;
}

/// Trains in a child process, which may end for want of memory. Throws Error when it does, and when no
/// process can be started.
inline SentencePieceTraining train_sentencepiece_apart(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("subword_tokenizer", "cannot open a pipe to a process that trains");
  const pid_t child = ::fork();
  if (child == 0) {
    // A failure is to say nothing, leave no core, and call no handler of the program.
    ::signal(SIGABRT, SIG_DFL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    try {
      const SentencePieceTraining done = train_sentencepiece_here(arguments, sentences);
      const std::string message = (done.ok ? "+" : "-") + done.text + '.';
      for (std::size_t at = 0; at < message.size();) {
        const ssize_t n = ::write(ends[1], message.data() + at, message.size() - at);
        if (n < 0 && errno != EINTR) ::_exit(1);
        if (n > 0) at += static_cast<std::size_t>(n);
      }
    } catch (...) {
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string message;
  std::exception_ptr failed;
  try {
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t n = child < 0 ? 0 : ::read(ends[0], buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      message.append(buffer.data(), static_cast<std::size_t>(n));
    }
  } catch (...) {
    failed = std::current_exception();
  }
  ::close(ends[0]);
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (failed) std::rethrow_exception(failed);
  if (message.size() < 2 || message.back() != '.') {
    throw Error("subword_tokenizer",
                child < 0 ? "no process for the training can be started within the limits of this one"
                          : "out of memory: the training ended before it had a model; expected a higher "
                            "limit of this process's memory, or a lower max_sentences");
  }
  message.pop_back();
  const bool ok = message.front() == '+';
  return {ok, message.substr(1)};
}

/// Trains a model of SentencePiece, and never ends the process: where allocations can fail, a child process
/// trains. The model depends on the arguments and sentences alone. Throws Error when memory runs out.
inline SentencePieceTraining train_sentencepiece(
    const std::unordered_map<std::string, std::string>& arguments,
    sentencepiece::SentenceIterator& sentences) {
  return memory_is_limited() ? train_sentencepiece_apart(arguments, sentences)
                             : train_sentencepiece_here(arguments, sentences);
}

}  // namespace eigenformer::detail
