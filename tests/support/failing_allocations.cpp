#include "failing_allocations.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

std::atomic<long> left = -1;  // requests until the one that fails; below zero: none fails
std::atomic<bool> failed = false;
std::atomic<long> live = 0;

std::array<void*, 64> frames{};
int frame_count = 0;

int frames_of_call() { return frame_count = backtrace(frames.data(), static_cast<int>(frames.size())); }

// The destructor and the comparisons of nlohmann-json, and the directory iterators of libstdc++, ask for
// memory where nothing may be thrown, so the process ends where there is none. Nothing that uses them could
// pass: their requests never fail. (Programs are linked with -rdynamic for dladdr.)
bool in_other_noexcept() {
  const int count = frames_of_call();
  for (int i = 0; i < count; ++i) {
    Dl_info found{};
    if (dladdr(frames[static_cast<std::size_t>(i)], &found) == 0) continue;
    if (found.dli_sname == nullptr) continue;
    const auto has = [&](const char* part) { return std::strstr(found.dli_sname, part) != nullptr; };
    if (has("json_value7destroy") || (has("nlohmann") && has("EEeqI")) || has("directory_iterator"))
      return true;
  }
  return false;
}

bool fails() {
  if (left.load(std::memory_order_relaxed) < 0) return false;
  if (left.fetch_sub(1) != 0) return false;
  if (in_other_noexcept()) {
    left = 0;
    return false;
  }
  failed = true;
  return true;
}

void* request(std::size_t bytes, std::size_t alignment) {
  if (fails()) throw std::bad_alloc();
  void* block = alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                       : memalign(alignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  ++live;
  return block;
}

void* request_or_null(std::size_t bytes) noexcept {
  try {
    return request(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  --live;
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return request(bytes, 1); }
void* operator new[](std::size_t bytes) { return request(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return request(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return request(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return request_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return request_or_null(bytes); }
void operator delete(void* block) noexcept { release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { release(block); }

// The sanitizers have an aligned_alloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define EIGENFORMER_REPLACE_ALIGNED_ALLOC
#elif !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define EIGENFORMER_REPLACE_ALIGNED_ALLOC
#endif
#endif
#ifdef EIGENFORMER_REPLACE_ALIGNED_ALLOC
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return fails() ? nullptr : memalign(alignment, bytes);
}
#endif

namespace eigenformer::testing {

FailingAllocation::FailingAllocation(long before) {
  (void)frames_of_call();  // backtrace() loads a library at its first call
  failed = false;
  left = before;
}
FailingAllocation::~FailingAllocation() { left = -1; }
bool FailingAllocation::reached() { return failed; }

std::string FailingAllocation::where() {
  std::string names;
  for (int i = 0; i < frame_count; ++i) {
    Dl_info found{};
    if (dladdr(frames[static_cast<std::size_t>(i)], &found) == 0 || found.dli_sname == nullptr) continue;
    int status = 0;
    char* const name = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status);
    const std::string_view view = name == nullptr ? found.dli_sname : name;
    if (view.find("eigenformer") != view.npos && view.substr(0, 5) != "std::")
      names += "\n  " + std::string(view.substr(0, 160));
    std::free(name);
  }
  return names;
}

long live_blocks() { return live; }

}  // namespace eigenformer::testing
