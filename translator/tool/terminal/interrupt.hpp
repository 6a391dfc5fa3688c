#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <stop_token>
#include <thread>

namespace translator {

/// The exit code of an interrupted command that can be resumed: the shells' code for SIGINT.
inline constexpr int interrupted_exit_code = 130;

/// Turns the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (closed terminal) into a stop request; the second one
/// ends the program at once, which damages no file because all are written under temporary names. The signals
/// are blocked in this thread and in those that it starts later, and are received by a separate thread, so
/// that no code runs inside a signal handler. Create it before any other thread.
class InterruptWatcher {
 public:
  /// what: what is finished before the program ends, such as "this update". note: a line printed after that;
  /// empty: none.
  explicit InterruptWatcher(const char* what, const char* note = "") : what_(what), note_(note) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    // Under nohup SIGHUP is ignored and stays so; if it were blocked, it would be received.
    struct sigaction hang_up {};
    if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
      sigaddset(&signals_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    thread_ = std::thread([this] { watch(); });
  }
  ~InterruptWatcher() {
    over_ = true;
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  /// Is set instead by a first Ctrl-C after offer_decay().
  std::stop_token decay_token() const { return decay_.get_token(); }
  /// From now on a first Ctrl-C on a terminal asks for an early decay of the learning rate. The second one
  /// stops.
  void offer_decay() { offers_decay_ = isatty(STDERR_FILENO) == 1; }
  /// Prints nothing from now on.
  void silence() { silent_ = true; }

 private:
  void watch() {
    while (!over_) {
      const int number = take_signal();
      if (number <= 0) continue;
      if (stop_.stop_requested()) _exit(interrupted_exit_code);
      if (number == SIGINT && offers_decay_ && !decay_.stop_requested()) {
        decay_.request_stop();
        if (!silent_) {
          std::fputs(
              "\ninterrupted: finishing well, by a decay of the learning rate; Ctrl-C again stops now\n",
              stderr);
        }
        continue;
      }
      stop_.request_stop();
      if (silent_) continue;
      if (isatty(STDERR_FILENO) == 1) std::fputc('\n', stderr);  // below the line of progress
      std::fprintf(stderr, "interrupted: finishing %s, then saving; once more ends at once\n%s", what_,
                   note_);
    }
  }

  /// Waits for one of the signals for a moment; returns its number, or 0 or less if none arrived.
  int take_signal() const {
    const timespec a_moment{0, 50'000'000};
#ifdef __APPLE__  // has no sigtimedwait
    sigset_t pending;
    int number = 0;
    sigpending(&pending);
    for (const int one : {SIGINT, SIGTERM, SIGHUP}) {
      if (sigismember(&pending, one) == 1 && sigismember(&signals_, one) == 1)
        return sigwait(&signals_, &number) == 0 ? number : 0;
    }
    nanosleep(&a_moment, nullptr);
    return 0;
#else
    return sigtimedwait(&signals_, nullptr, &a_moment);
#endif
  }

  const char* what_;
  const char* note_;
  sigset_t signals_{};
  sigset_t before_{};
  std::stop_source stop_, decay_;
  std::atomic<bool> offers_decay_{false};
  std::atomic<bool> over_{false};
  std::atomic<bool> silent_{false};
  std::thread thread_;
};

}  // namespace translator
