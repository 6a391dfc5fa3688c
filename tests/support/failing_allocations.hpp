#pragma once

#include <algorithm>
#include <new>
#include <string>

namespace eigenformer::testing {

/// While it lives, one request for memory of this process fails, whichever thread makes it: operator new
/// throws std::bad_alloc, aligned_alloc returns null. For programs with failing_allocations.cpp, which
/// replaces both.
class FailingAllocation {
 public:
  /// The request that comes after `before` others fails.
  explicit FailingAllocation(long before);
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation();

  /// Whether so many requests were made that one failed.
  static bool reached();
  /// Which functions of the library the request that failed came from, one in each line, the innermost first.
  static std::string where();
};

/// The number of blocks that operator new gave and that were not freed.
long live_blocks();

/// What fail_each_allocation() saw.
struct AllocationFailures {
  long failures = 0;   ///< runs in which a request failed
  long survived = 0;   ///< of these, runs that did without the memory
  long leaked = 0;     ///< blocks that are still there after them
  std::string places;  ///< where the requests failed that a run survived, or after which something is left
};

/// Which request fails after the one that came after `before` others: each of the first 16, then fewer and
/// fewer.
inline long next_failing(long before) { return before + std::max(1L, before / 16); }

/// Runs `operation` until no request of it fails any more: first its first request fails, then its second,
/// and so on; after the first 16 some are left out. Calls `check` after each run. An exception other than
/// std::bad_alloc leaves this function.
template <class Operation, class Check>
AllocationFailures fail_each_allocation(Operation&& operation, Check&& check) {
  operation();  // what is kept for later, such as pools and buffers of threads, is made here
  check();
  AllocationFailures seen;
  for (long before = 0;; before = next_failing(before)) {
    const long live = live_blocks();
    bool thrown = false, reached = false;
    {
      const FailingAllocation failing(before);
      try {
        operation();
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      reached = FailingAllocation::reached();
    }
    const long left = live_blocks() - live;
    check();
    if (!reached) return seen;
    ++seen.failures;
    seen.leaked += left;
    if (!thrown) ++seen.survived;
    if (left != 0 || !thrown) {
      seen.places += "\nrequest " + std::to_string(before) +
                     (thrown ? " left " + std::to_string(left) + " blocks" : " survived") +
                     FailingAllocation::where();
    }
  }
}

}  // namespace eigenformer::testing
