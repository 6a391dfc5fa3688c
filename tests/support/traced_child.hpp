#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <set>
#include <stdexcept>

namespace eigenformer::testing {

/// How a traced child ended.
struct TracedEnd {
  bool killed = false;  ///< at the call that was asked for
  int code = -1;        ///< otherwise: exit code, or 1000 + the signal that killed it
  int calls = 0;  ///< system calls that change files which it came to, the one it was killed at included
};

namespace tracing {

enum class Change { none, write, other };

/// Whether a system call changes files: their names, their bytes, their rights. Those to open streams do not
/// count.
inline Change change_of(const __ptrace_syscall_info& call) {
  const auto* args = call.entry.args;
  switch (static_cast<long>(call.entry.nr)) {
#ifdef SYS_open
    case SYS_open:
      return (args[1] & (O_CREAT | O_TRUNC)) != 0 ? Change::other : Change::none;
    case SYS_creat:
    case SYS_rename:
    case SYS_unlink:
    case SYS_rmdir:
    case SYS_mkdir:
    case SYS_chmod:
    case SYS_link:
    case SYS_symlink:
#endif
    case SYS_unlinkat:
    case SYS_mkdirat:
    case SYS_linkat:
    case SYS_symlinkat:
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_fchmod:
    case SYS_fchmodat:
    case SYS_ftruncate:
    case SYS_fallocate:
      return Change::other;
    case SYS_openat:
      return (args[2] & (O_CREAT | O_TRUNC)) != 0 ? Change::other : Change::none;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
      return args[0] > STDERR_FILENO ? Change::write : Change::none;
    default:
      return Change::none;
  }
}

}  // namespace tracing

/// Runs `body` in a child process, which ends with what it returns, and kills the child with SIGKILL where it
/// is about to make its kill_at-th system call that changes files, counted from 1; 0: nowhere. Of writes one
/// after another the first and every 16th count. The body may call exec. Throws std::runtime_error where
/// processes cannot be traced.
inline TracedEnd run_traced(const std::function<int()>& body, int kill_at) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    // The sanitizers' search for leaks does not work in a traced process.
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(126);
    ::raise(SIGSTOP);
    int code = 125;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  TracedEnd end;
  int status = 0, writes = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) throw std::runtime_error("processes cannot be traced here");
  constexpr long options =
      PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, options);
  ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  for (;;) {
    const pid_t stopped = ::waitpid(-1, &status, __WALL);
    if (stopped < 0) {
      if (errno == EINTR) continue;
      throw std::runtime_error("a traced child got lost");
    }
    if (!WIFSTOPPED(status)) {
      if (stopped != child) continue;  // a thread that ended
      if (!end.killed) end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      return end;
    }
    const int signal = WSTOPSIG(status);
    long deliver = 0;
    if (signal == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info call{};
      const long size = ::ptrace(PTRACE_GET_SYSCALL_INFO, stopped, sizeof call, &call);
      const tracing::Change change =
          size > 0 && call.op == PTRACE_SYSCALL_INFO_ENTRY ? tracing::change_of(call) : tracing::Change::none;
      if (change != tracing::Change::none) {
        writes = change == tracing::Change::write ? writes + 1 : 0;
        if ((writes < 2 || writes % 16 == 0) && ++end.calls == kill_at) {
          end.killed = true;
          ::kill(child, SIGKILL);
          continue;
        }
      }
    } else if (signal != SIGTRAP && signal != SIGSTOP) {
      deliver = signal;
    }
    ::ptrace(PTRACE_SYSCALL, stopped, nullptr, deliver);
  }
}

}  // namespace eigenformer::testing
