#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "folders.hpp"
#include "temporary_folder.hpp"

namespace eigenformer::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// How a program ended, and what it wrote.
struct Ended {
  int code = -1;  ///< exit code, or 1000 + the signal that killed it
  std::string out;
  std::string err;
  std::size_t peak_bytes = 0;  ///< of resident memory, at most; of the test's as well before it started
};

/// One of the built programs, running with its streams tied to files.
class Program {
 public:
  struct Limits {
    rlim_t file_size = RLIM_INFINITY;  ///< bytes of any file that it writes
    std::string out{};  ///< where its standard output goes in place of the file that wait() reads
    std::string err{};  ///< and its standard error
  };

  Program(const std::string& name, const std::vector<std::string>& arguments, const std::string& input = "")
      : Program(name, arguments, input, Limits{}) {}
  Program(const std::string& name, const std::vector<std::string>& arguments, const std::string& input,
          const Limits& limits) {
    const std::string program = (programs_folder() / name).string();
    if (!std::filesystem::exists(program)) throw std::runtime_error(program + " is not built");
    const std::string in = folder_.write("in", input).string();
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) {
      const std::filesystem::path base = folder_.path();
      redirect(in, O_RDONLY, STDIN_FILENO);
      redirect(limits.out.empty() ? (base / "out").string() : limits.out, O_WRONLY | O_CREAT, STDOUT_FILENO);
      redirect(limits.err.empty() ? (base / "err").string() : limits.err, O_WRONLY | O_CREAT, STDERR_FILENO);
      if (limits.file_size != RLIM_INFINITY) {
        const rlimit limit{limits.file_size, limits.file_size};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Program() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) { ::kill(pid_, number); }

  /// Whether it wrote some text to stderr within two minutes, still running or not.
  bool says(const std::string& text) {
    for (int i = 0; i < 12000; ++i) {
      if (read_file(folder_.path() / "err").find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  /// What it has written to stderr so far.
  std::string err() const { return read_file(folder_.path() / "err"); }

  Ended wait() {
    int status = 0;
    rusage usage{};
    ::wait4(pid_, &status, 0, &usage);
    pid_ = 0;
    Ended ended;
    ended.peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) << 10;
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    ended.out = read_file(folder_.path() / "out");
    ended.err = read_file(folder_.path() / "err");
    return ended;
  }

 private:
  static void redirect(const std::string& path, int flags, int to) {
    const int from = ::open(path.c_str(), flags, 0600);
    if (from < 0 || ::dup2(from, to) < 0) ::_exit(126);
  }

  TemporaryFolder folder_;
  pid_t pid_ = 0;
};

inline Ended run(const std::string& name, const std::vector<std::string>& arguments,
                 const std::string& input = "") {
  return Program(name, arguments, input).wait();
}

/// The lines of a text.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace eigenformer::testing
