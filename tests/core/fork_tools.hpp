#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <fstream>

// The thread sanitizer starts no threads in a child of a process that has several.
#if defined(__SANITIZE_THREAD__)
#define EIGENFORMER_TEST_FORK 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EIGENFORMER_TEST_FORK 0
#endif
#endif
#ifndef EIGENFORMER_TEST_FORK
#define EIGENFORMER_TEST_FORK 1
#endif

// The address sanitizer needs more address space than any limit leaves.
#if defined(__SANITIZE_ADDRESS__)
#define EIGENFORMER_TEST_MEMORY_LIMIT 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EIGENFORMER_TEST_MEMORY_LIMIT 0
#endif
#endif
#ifndef EIGENFORMER_TEST_MEMORY_LIMIT
#define EIGENFORMER_TEST_MEMORY_LIMIT EIGENFORMER_TEST_FORK
#endif

namespace eigenformer::testing {

/// Runs f in a forked child: 0 when it returns true, 1 when false, 2 when it throws, minus the signal that
/// ended it otherwise (-14, SIGALRM, when it takes longer than `seconds`).
template <class F>
int in_child(F&& f, unsigned seconds = 30) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    int code = 2;
    try {
      code = f() ? 0 : 1;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 3;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Limits this process to `bytes` of address space beyond what it has. False when the system does not tell.
inline bool limit_memory(std::size_t bytes) {
  std::size_t pages = 0;
  if (!(std::ifstream("/proc/self/statm") >> pages)) return false;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return false;
  limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

}  // namespace eigenformer::testing
