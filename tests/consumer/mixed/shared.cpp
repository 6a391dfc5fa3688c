// client RUNTIMES FIRST SECOND FIXTURES WORKING: loads two shared libraries that contain eigenformer,
// compiled with different flags. Both train and decode, also in a forked child and after one was closed and
// loaded again. RUNTIMES is how many copies of the library's state there must be. WORKING is the number of
// optional libraries that the first was compiled with.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "library.hpp"

namespace {

int failures = 0;
const char* fixtures = nullptr;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

struct Library {
  void* handle = nullptr;
  WorkFunction* function = nullptr;

  Library(const char* path, const char* name, int scope) : handle(dlopen(path, RTLD_NOW | scope)) {
    if (handle != nullptr) function = reinterpret_cast<WorkFunction*>(dlsym(handle, name));
    if (function == nullptr) {
      std::printf("FAILED: %s\n", dlerror());
      std::exit(1);
    }
  }

  void work(int threads, Work& work) const { function(threads, fixtures, work); }
};

bool same(const Work& a, const Work& b) {
  return std::abs(a.loss_ratio / b.loss_ratio - 1) < 1e-2F && a.hypotheses == b.hypotheses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int runtimes = std::atoi(argv[1]), working = std::atoi(argv[5]);
  fixtures = argv[4];
  const int scope = runtimes == 1 ? RTLD_GLOBAL : RTLD_LOCAL;  // linking with both is as RTLD_GLOBAL
  const Library first(argv[2], "work_first", scope), second(argv[3], "work_second", scope);
  Work a, b;
  first.work(2, a);
  second.work(3, b);
  std::printf("losses divided by %.6g and %.6g, %d runtime(s), %d and %d threads\n",
              static_cast<double>(a.loss_ratio), static_cast<double>(b.loss_ratio),
              a.runtime == b.runtime ? 1 : 2, a.threads, b.threads);
  expect(a.loss_ratio > 2, "the first library trains");
  expect(same(a, b), "both libraries compute the same");
  expect((a.runtime == b.runtime ? 1 : 2) == runtimes, "there are as many runtimes as expected");
  expect(a.has(working), "the first library has the components it was built with");
  expect(b.has(runtimes == 1 ? working : 0), "the second library has those of its runtime");

  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    Work in_child, other;
    first.work(2, in_child);
    second.work(2, other);
    _exit(same(a, in_child) && same(a, other) ? 0 : 1);
  }
  int status = 0;
  expect(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "a forked child trains with both libraries");

  dlclose(second.handle);
  void* const still = dlopen(argv[3], RTLD_NOW | RTLD_NOLOAD);
  std::printf("after dlclose() the second library is %s\n", still != nullptr ? "still loaded" : "unloaded");
  if (still != nullptr) dlclose(still);
  Work again;
  first.work(2, again);
  expect(same(a, again), "the first library works after the second was closed");
  const Library reloaded(argv[3], "work_second", scope);
  reloaded.work(2, again);
  expect(same(a, again), "the second library works after it was loaded again");
  return failures == 0 ? 0 : 1;
}
