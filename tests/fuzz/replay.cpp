// replay READER FOLDER...: fuzz targets where libFuzzer is not. Runs the target of a reader on every file of
// the folders, on the file cut short at some places, on it with some bytes changed, the same ones every
// time, and on it while one request for memory after the other fails.
#include "replay.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "failing_allocations.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;

eigenformer::fuzz::Target target = nullptr;

void run(const Bytes& bytes) { target(bytes.data(), bytes.size()); }

void run_around(const Bytes& seed) {
  run(seed);
  if (seed.empty()) return;
  for (std::size_t i = 0; i < 32; ++i)
    run({seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(seed.size() * i / 32)});
  std::uint64_t state = seed.size();
  const auto next = [&](std::size_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state >> 33U) % n;
  };
  for (int i = 0; i < 200; ++i) {
    Bytes changed = seed;
    for (std::size_t k = 0; k <= next(3); ++k)
      changed[next(seed.size())] = static_cast<std::uint8_t>(next(256));
    run(changed);
  }
}

// Whether a reader that gets no memory leaves some behind.
bool leaks(const Bytes& seed) {
  using namespace eigenformer::testing;
  return fail_each_allocation([&] { run(seed); }, [] {}).leaked != 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [name, function] : eigenformer::fuzz::targets) {
    if (argc > 1 && name == argv[1]) target = function;
  }
  if (target == nullptr) return 2;
  int files = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const Bytes seed(std::istreambuf_iterator<char>(file), {});
      run_around(seed);
      // SentencePiece's library crashes without memory.
      if (std::string(argv[1]) != "sentencepiece" && leaks(seed)) {
        std::printf("%s: memory is lost when a request for memory fails\n", entry.path().c_str());
        return 1;
      }
      ++files;
    }
  }
  std::printf("%d seeds, no crash\n", files);
  return files > 0 ? 0 : 1;
}
