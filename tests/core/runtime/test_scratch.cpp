#include "eigenformer/core/runtime/scratch.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::values;

namespace {

/// Runs its tasks in the caller, and between them a job of somebody else's: what an executor that steals work
/// does while a caller waits.
class StealingExecutor final : public Executor {
 public:
  explicit StealingExecutor(std::function<void()> job) : job_(std::move(job)) {}
  int threads() const override { return 3; }
  void run(index_t count, TaskRef task) override {
    for (index_t i = 0; i < count; ++i) {
      if (i > 0 && !stealing_) {
        stealing_ = true;
        job_();
        stealing_ = false;
        ++stolen;
      }
      task(i);
    }
  }
  int stolen = 0;

 private:
  std::function<void()> job_;
  bool stealing_ = false;
};

Tensor<float> random(const Shape& shape, std::uint64_t seed) {
  Tensor<float> t(shape);
  RandomGenerator(seed).fill_normal(t.data(), t.numel(), 0, 1);
  return t;
}

using Job = std::function<std::vector<float>()>;

Job packed_product(detail::kernels::PackedMatrix::Format format, index_t m, index_t n, index_t k) {
  const auto packed = detail::kernels::PackedMatrix::pack(random({n, k}, 1).data(), n, k, format);
  return [=, x = random({m, k}, 2)] {
    Tensor<float> y(Shape{m, n});
    detail::kernels::gemm_packed(m, x.data(), k, packed, 0.0F, y.data(), n);
    return values(y);
  };
}

Job attention_step(index_t batch, index_t length, index_t width) {
  const Shape shape{batch, length, width};
  return [queries = random(shape, 1), keys = random(shape, 2), values_of = random(shape, 3),
          cotangent = random(shape, 4)] {
    Tape<float> tape;
    const Var<float> q = tape.variable(queries), k = tape.variable(keys), v = tape.variable(values_of);
    const Var<float> y = attention(q, k, v, AttentionMask::causal());
    Gradients<float> none;
    tape.backward(y, cotangent, none);
    std::vector<float> all = values(y.value());
    for (const auto& leaf : {q, k, v}) {
      const std::vector<float> gradient = values(tape.gradient(leaf));
      all.insert(all.end(), gradient.begin(), gradient.end());
    }
    return all;
  };
}

}  // namespace

TEST_CASE("scratch: leases of one thread never share, and what ended is used again") {
  using Lease = detail::ThreadLease<std::vector<int>, struct ScratchTest>;
  std::vector<int>* first = nullptr;
  std::vector<int>* second = nullptr;
  for (int round = 0; round < 3; ++round) {
    const Lease a;
    const Lease b;
    CHECK(&*a != &*b);
    if (round == 0) {
      first = &*a;
      second = &*b;
      a->reserve(1000);
    }
    CHECK(&*a == first);
    CHECK(&*b == second);
    CHECK(a->capacity() >= 1000);
    std::thread([&] {
      const Lease c;
      CHECK(&*c != first);
      CHECK(&*c != second);
    }).join();
  }
  const detail::ThreadLease<std::vector<int>, struct OtherScratchTest> other;
  CHECK(&*other != first);
}

TEST_CASE("scratch: memory is aligned, kept while it is large enough, and zero when it is new") {
  detail::Scratch scratch;
  double* const small = scratch.reserve<double>(100);
  CHECK(reinterpret_cast<std::uintptr_t>(small) % 64 == 0);
  for (int i = 0; i < 100; ++i) REQUIRE(small[i] == 0.0);
  small[7] = 3.0;
  CHECK(scratch.reserve<float>(20) == static_cast<void*>(small));
  CHECK(scratch.reserve<double>(100)[7] == 3.0);
  const float* const large = scratch.reserve<float>(100000);
  CHECK(reinterpret_cast<std::uintptr_t>(large) % 64 == 0);
  bool zero = true;
  for (int i = 0; i < 100000; ++i) zero = zero && large[i] == 0.0F;
  CHECK(zero);
}

TEST_CASE("scratch: a number of elements whose bytes overflow is refused") {
  detail::Scratch scratch;
  CHECK_THROWS_AS(scratch.reserve<double>(index_t{1} << 61), std::bad_alloc);
  CHECK_THROWS_AS(scratch.reserve<double>(std::numeric_limits<index_t>::max()), std::bad_alloc);
  CHECK(scratch.reserve<double>(3) != nullptr);
}

TEST_CASE("scratch: a thread's kernels do not share buffers with what an executor runs while they wait") {
  using Format = detail::kernels::PackedMatrix::Format;
  const std::vector<Job> jobs{
      packed_product(Format::int8, 64, 96, 4096), packed_product(Format::int8, 130, 200, 1000),
      packed_product(Format::float32, 60, 100, 700), attention_step(3, 290, 16), attention_step(5, 130, 70)};
  std::vector<std::vector<float>> expected;
  for (const Job& job : jobs) {
    const ThreadScope alone(1);
    expected.push_back(job());
  }
  for (std::size_t outer = 0; outer < jobs.size(); ++outer) {
    for (std::size_t inner = 0; inner < jobs.size(); ++inner) {
      CAPTURE(outer);
      CAPTURE(inner);
      bool right = true;
      const auto executor =
          std::make_shared<StealingExecutor>([&] { right = right && jobs[inner]() == expected[inner]; });
      const ThreadScope scope(executor);
      const bool same = jobs[outer]() == expected[outer];
      CHECK(same);
      CHECK(right);
      // A product that the other backend does in one task leaves nothing to steal.
      if (!detail::kernels::multiplies_by_eigen()) CHECK(executor->stolen > 0);
    }
  }
}
