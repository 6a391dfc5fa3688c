#include "eigenformer/autograd/tape/tape.hpp"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#endif

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/base/random.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Tensor<double> normal(const Shape& shape, std::uint64_t seed) {
  Tensor<double> t(shape);
  RandomGenerator(seed).fill_normal(t.data(), t.numel(), 0.0, 1.0);
  return t;
}

// An op as a user writes it: y = x^3. `token` is captured, so that a test sees how long the closure lives.
Var<double> cube(const Var<double>& x, std::shared_ptr<int> token = nullptr) {
  Tensor<double> y(x.shape());
  for (index_t i = 0; i < x.numel(); ++i)
    y.data()[i] = x.value().data()[i] * x.value().data()[i] * x.value().data()[i];
  return record("cube", std::move(y), {x}, [x = x.value(), token](Backward<double>& b) {
    if (auto dx = b.grad(0)) {
      for (index_t i = 0; i < x.numel(); ++i) {
        const double g = 3 * x.data()[i] * x.data()[i] * b.dy().data()[i];
        dx.data[i] = dx.beta == 0 ? g : dx.data[i] + g;
      }
    }
  });
}

}  // namespace

TEST_CASE("Tape: the gradient of a variable, through an op of one's own") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({3}, {1, 2, -3}));
  tape.backward(sum(cube(x)));
  CHECK(values(tape.gradient(x)) == std::vector<double>{3, 12, 27});
}

TEST_CASE("Tape: a variable that the output does not depend on has a gradient of zeros") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2})),
                    y = tape.variable(Tensor<double>::ones({3}));
  (void)cube(y);
  tape.backward(sum(cube(x)));
  CHECK(values(tape.gradient(y)) == std::vector<double>{0, 0, 0});
}

TEST_CASE("Tape: an output in the middle of what was recorded") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::full({1}, 2));
  const Var<double> middle = cube(x);
  (void)(middle * 100 + x);
  tape.backward(middle);
  CHECK(tape.gradient(x).item() == 12);
}

TEST_CASE("Tape: the output may be a variable itself") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::scalar(5));
  tape.backward(x);
  CHECK(tape.gradient(x).item() == 1);
}

TEST_CASE("Tape: a Var of a cleared, consumed or destroyed tape keeps its value and refuses ops") {
  const std::string message =
      "[exp] an input of shape (2,) was recorded on a tape that has been cleared, consumed by backward or "
      "destroyed";
  Tape<double> tape;
  const Var<double> cleared = tape.variable(Tensor<double>::ones({2}));
  tape.clear();
  CHECK(tape.size() == 0);
  CHECK(message_of<ValueError>([&] { (void)exp(cleared); }) == message);
  CHECK(values(cleared.value()) == std::vector<double>{1, 1});

  const Var<double> consumed = tape.variable(Tensor<double>::ones({2}));
  const Var<double> loss = sum(consumed);
  tape.backward(loss);
  CHECK(tape.size() == 0);
  CHECK(message_of<ValueError>([&] { (void)exp(consumed); }) == message);
  CHECK(message_of<ValueError>([&] { tape.backward(loss); }) ==
        "[backward] the tape was cleared or consumed by a backward after the output was recorded");

  std::optional<Tape<double>> brief(std::in_place);
  const Var<double> orphan = brief->variable(Tensor<double>::ones({2}));
  brief.reset();
  CHECK(message_of<ValueError>([&] { (void)exp(orphan); }) == message);
  CHECK(values((orphan.detach() + 1).value()) == std::vector<double>{2, 2});
}

TEST_CASE("Tape: old Vars are not taken for new nodes with the same number") {
  Tape<double> tape;
  const Var<double> old = tape.variable(Tensor<double>::ones({2}));
  tape.clear();
  const Var<double> fresh = tape.variable(Tensor<double>::ones({2}));
  CHECK(old.node() == fresh.node());
  CHECK_THROWS_AS((void)(old + fresh), ValueError);
  CHECK_THROWS_AS((void)tape.gradient(old), ValueError);
}

TEST_CASE("Tape: inputs of different tapes") {
  Tape<double> a, b;
  const Var<double> x = a.variable(Tensor<double>::ones({2})), y = b.variable(Tensor<double>::ones({2}));
  CHECK(message_of<ValueError>([&] { (void)(x + y); }) ==
        "[add] the inputs were recorded on different tapes");
  CHECK(message_of<ValueError>([&] { b.backward(sum(x)); }) ==
        "[backward] the output was not recorded on this tape");
  CHECK(values((x + y.detach()).value()) == std::vector<double>{2, 2});
}

TEST_CASE("Tape: what backward refuses") {
  Tape<double> tape;
  Gradients<double> none;
  const Var<double> x = tape.variable(Tensor<double>::ones({2, 3}));
  CHECK(message_of<ShapeError>([&] { tape.backward(x); }) ==
        "[backward] loss of shape (2, 3) must have one element; give a cotangent for anything else");
  CHECK(message_of<ShapeError>([&] {
          tape.backward(x, Tensor<double>::ones({3, 2}), none);
        }) == "[backward] cotangent of shape (3, 2) must have the output's shape (2, 3)");
  CHECK(message_of<ValueError>([&] { tape.backward(Var<double>(Tensor<double>::scalar(1))); }) ==
        "[backward] the output was not recorded on this tape");
  const Parameter<double> p(Tensor<double>::ones({1}));
  Gradients<double> gradients({p.handle()});
  CHECK(message_of<ValueError>([&] { tape.backward(tape.parameter(p.handle()), gradients); }) ==
        "[backward] the output is a parameter itself");
  CHECK(message_of<ValueError>([&] { (void)tape.gradient(x); }) ==
        "[gradient] not a variable of this tape's last backward");
  tape.backward(sum(x), gradients);
  CHECK(values(tape.gradient(x)) == std::vector<double>(6, 1.0));
}

TEST_CASE("Tape: gradient() of anything but a leaf of the last backward") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  const Var<double> y = cube(x);
  tape.backward(sum(y));
  CHECK_THROWS_AS((void)tape.gradient(y), ValueError);
  CHECK_THROWS_AS((void)tape.gradient(Var<double>(Tensor<double>::ones({2}))), ValueError);
  CHECK_THROWS_AS((void)tape.gradient(Var<double>()), ValueError);
  const Var<double> next = tape.variable(Tensor<double>::ones({2}));
  CHECK_THROWS_AS((void)tape.gradient(next), ValueError);
  CHECK(values(tape.gradient(x)) == std::vector<double>{3, 3});
}

TEST_CASE("Tape: a cotangent is read, never written, owned or borrowed") {
  std::vector<double> memory{1, 2};
  for (const bool borrowed : {false, true}) {
    const Tensor<double> cotangent =
        borrowed ? Tensor<double>::borrow(memory.data(), {2}) : Tensor<double>::from({2}, {1, 2});
    Tape<double> tape;
    Gradients<double> none;
    const Var<double> x = tape.variable(Tensor<double>::ones({2}));
    // The sum hands its gradient on to x as it is; the cube, recorded before, adds to it.
    const Var<double> y = cube(x) + x;
    tape.backward(y, cotangent, none);
    CHECK(values(tape.gradient(x)) == std::vector<double>{4, 8});
    CHECK(values(cotangent) == std::vector<double>{1, 2});
  }
  CHECK(memory == std::vector<double>{1, 2});
}

TEST_CASE("Tape: what an op saved is freed as soon as its backward has run, the last op's first") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  auto early = std::make_shared<int>(1), late = std::make_shared<int>(2);
  const std::weak_ptr<int> watch_early = early, watch_late = late;
  Var<double> y = cube(x, std::move(early));
  bool early_alive = false, late_alive = true;
  // Runs between the two cubes' backwards.
  y = record("probe", y.value(), {y}, [&](Backward<double>& b) {
    early_alive = !watch_early.expired();
    late_alive = !watch_late.expired();
    b.pass(0, b.dy());
  });
  y = cube(y, std::move(late));
  tape.backward(sum(y));
  CHECK(early_alive);
  CHECK_FALSE(late_alive);
  CHECK(watch_early.expired());
}

TEST_CASE("Tape: nothing is kept for constants, for ops without gradient, or after clear") {
  auto token = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = token;
  (void)cube(Var<double>(Tensor<double>::ones({2})), std::move(token));
  CHECK(watch.expired());

  Tape<double> tape;
  auto second = std::make_shared<int>(2);
  const std::weak_ptr<int> watch_second = second;
  (void)cube(tape.variable(Tensor<double>::ones({2})), std::move(second));
  CHECK_FALSE(watch_second.expired());
  tape.clear();
  CHECK(watch_second.expired());
}

TEST_CASE("Tape: an op off the path from the output is not run backwards") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  bool ran = false;
  (void)record("side", x.value(), {x}, [&](Backward<double>&) { ran = true; });
  tape.backward(sum(x * 2));
  CHECK_FALSE(ran);
}

TEST_CASE("Tape: only inputs that need a gradient get a slot") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  const Var<double> constant = Tensor<double>::ones({3});
  bool checked = false;
  const Var<double> y = record("op", Tensor<double>::scalar(1), {constant, x}, [&](Backward<double>& b) {
    CHECK_FALSE(b.needs(0));
    CHECK_FALSE(static_cast<bool>(b.grad(0)));
    b.pass(0, Tensor<double>::ones({3}));
    CHECK(b.needs(1));
    CHECK_FALSE(b.needs(2));
    CHECK_FALSE(static_cast<bool>(b.grad(2)));
    const auto dx = b.grad(1);
    REQUIRE(static_cast<bool>(dx));
    CHECK(dx.beta == 0);
    CHECK(dx.shape == Shape{2});
    dx.data[0] = 4;
    dx.data[1] = 5;
    CHECK(b.grad(1).beta == 1);
    checked = true;
  });
  tape.backward(y);
  CHECK(checked);
  CHECK(values(tape.gradient(x)) == std::vector<double>{4, 5});
}

TEST_CASE(
    "Tape: an exception in a backward reaches the caller, and the half-consumed tape is not used again") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  const Var<double> bad = record(
      "bad", x.value(), {x}, [](Backward<double>&) { throw ValueError("bad", "cannot be differentiated"); });
  const Var<double> loss = sum(cube(bad));
  CHECK(message_of<ValueError>([&] { tape.backward(loss); }) == "[bad] cannot be differentiated");
  CHECK_THROWS_AS(tape.backward(loss), ValueError);
  CHECK_THROWS_AS((void)tape.gradient(x), ValueError);
  CHECK(tape.size() == 0);
  const Var<double> again = tape.variable(Tensor<double>::ones({2}));
  tape.backward(sum(again));
  CHECK(values(tape.gradient(again)) == std::vector<double>{1, 1});
}

TEST_CASE("Tape: one tape serves many steps, and moves with its Vars") {
  Tape<double> tape;
  for (int step = 1; step <= 3; ++step) {
    const Var<double> x = tape.variable(Tensor<double>::full({1}, step));
    tape.backward(cube(x));
    CHECK(tape.gradient(x).item() == 3.0 * step * step);
  }
  const Var<double> x = tape.variable(Tensor<double>::full({1}, 2));
  Tape<double> moved = std::move(tape);
  moved.backward(cube(x));
  CHECK(moved.gradient(x).item() == 12);
}

TEST_CASE("Tape: gradients passed on are shared, and adding to one does not change another") {
  Tape<double> tape;
  const Var<double> a = tape.variable(Tensor<double>::ones({2})),
                    b = tape.variable(Tensor<double>::ones({2}));
  const Var<double> h = a + b;
  const Var<double> y = (h + a) + (reshape(h, Shape{1, 2}) + reshape(b, Shape{1, 2}) * 5);
  tape.backward(sum(y));
  // y = 2 (a + b) + a + 5 b.
  CHECK(values(tape.gradient(a)) == std::vector<double>{3, 3});
  CHECK(values(tape.gradient(b)) == std::vector<double>{7, 7});
}

TEST_CASE("Tape: gradients of variables share memory with nothing, and a change of one is its own") {
  Tape<double> tape;
  Gradients<double> none;
  const auto leaf = [&] { return tape.variable(Tensor<double>::ones({2})); };
  const Tensor<double> cotangent = Tensor<double>::from({2}, {1, 2});
  {
    const Var<double> a = leaf(), b = leaf(), c = leaf();
    tape.backward(a + b + reshape(c, Shape{2}), cotangent, none);
    Tensor<double> changed = tape.gradient(a);
    changed.fill(100);
    CHECK(values(tape.gradient(b)) == std::vector<double>{1, 2});
    CHECK(values(tape.gradient(c)) == std::vector<double>{1, 2});
    CHECK(values(cotangent) == std::vector<double>{1, 2});
  }
  {
    // A variable that is made after an op with the same gradient, and one that is the output itself.
    const Var<double> a = leaf();
    const Var<double> h = a + 1.0;
    const Var<double> b = leaf();
    tape.backward(h + b, cotangent, none);
    Tensor<double> changed = tape.gradient(b);
    changed.fill(100);
    CHECK(values(tape.gradient(a)) == std::vector<double>{1, 2});
    const Var<double> output = leaf();
    tape.backward(output, cotangent, none);
    changed = tape.gradient(output);
    changed.fill(100);
    CHECK(values(cotangent) == std::vector<double>{1, 2});
  }
  {
    // An op that passes on what somebody else has, too, or borrowed memory.
    std::vector<double> memory{3, 4};
    Tensor<double> kept = Tensor<double>::from({2}, {5, 6});
    for (const Tensor<double>& given : {kept, Tensor<double>::borrow(memory.data(), {2})}) {
      const Var<double> a = leaf();
      tape.backward(
          record("op", Tensor<double>::scalar(1), {a}, [&](Backward<double>& b) { b.pass(0, given); }));
      Tensor<double> changed = tape.gradient(a);
      changed.fill(100);
    }
    CHECK(values(kept) == std::vector<double>{5, 6});
    CHECK(memory == std::vector<double>{3, 4});
  }
  {
    // One leaf alone has what the ops made, without a copy.
    const Var<double> a = leaf();
    const double* made = nullptr;
    const Var<double> y = record("op", Tensor<double>::scalar(1), {a}, [&](Backward<double>& b) {
      const auto dx = b.grad(0);
      std::fill_n(dx.data, 2, 7.0);
      made = dx.data;
    });
    tape.backward(y);
    CHECK(tape.gradient(a).data() == made);
  }
}

TEST_CASE("Tape: a backward that throws leaves the gradients as they were") {
  // A parameter for each way to a gradient: written through a slot, passed on, moved; small and large.
  for (const bool large : {false, true}) {
    const Shape shape = large ? Shape{500, 300} : Shape{2, 3};
    const auto n = static_cast<std::size_t>(shape.numel());
    const Parameter<double> slot(Tensor<double>::ones(shape)), passed(Tensor<double>::ones(shape)),
        moved(Tensor<double>::ones(shape)), untouched(Tensor<double>::ones(shape));
    const std::vector<const Parameter<double>*> all = {&slot, &passed, &moved, &untouched};
    Gradients<double> gradients({slot.handle(), passed.handle(), moved.handle(), untouched.handle()});
    const auto run = [&](bool fail) {
      Tape<double> tape;
      const Var<double> a = tape.parameter(slot.handle()), b = tape.parameter(passed.handle()),
                        c = tape.parameter(moved.handle());
      const Var<double> x = tape.variable(Tensor<double>::ones(shape));
      const Var<double> bad = record("bad", x.value(), {x}, [fail](Backward<double>& back) {
        if (fail) throw ValueError("bad", "cannot be differentiated");
        back.pass(0, back.dy());
      });
      const Var<double> moving =
          record("moving", Tensor<double>::ones(shape), {c},
                 [&](Backward<double>& back) { back.pass(0, Tensor<double>::full(shape, 4)); });
      // Recorded after the op that fails, so these have written their gradients before it does.
      const Var<double> y = sum(bad * a * 3.0 + b + moving + a * a);
      if (fail) {
        CHECK(message_of<ValueError>([&] { tape.backward(y, gradients); }) ==
              "[bad] cannot be differentiated");
        CHECK_THROWS_AS((void)tape.gradient(x), ValueError);
      } else {
        tape.backward(y, gradients);
      }
      CHECK(tape.size() == 0);
    };
    const auto expect = [&](double times) {
      CHECK(values(gradients.of(slot)) == std::vector<double>(n, 5 * times));
      CHECK(values(gradients.of(passed)) == std::vector<double>(n, times));
      CHECK(values(gradients.of(moved)) == std::vector<double>(n, 4 * times));
      for (const auto* p : all) CHECK(gradients.find(p->id())->written == (times > 0 && p != &untouched));
    };
    const auto bytes = [] { return Runtime::instance().pool().statistics().bytes_in_use; };
    const std::size_t before = bytes();
    run(true);
    expect(0);
    CHECK(bytes() == before);
    run(false);
    expect(1);
    run(true);  // what is there already was added to, and is there again
    expect(1);
    run(false);
    expect(2);
  }
}

TEST_CASE("Tape: gradients that were reset once complete are as before when the backward then throws") {
  for (const Shape& shape : {Shape{2, 3}, Shape{500, 300}}) {  // a large gradient loses its memory by reset()
    const auto n = static_cast<std::size_t>(shape.numel());
    const Parameter<double> early(Tensor<double>::ones(shape)), late(Tensor<double>::ones(shape));
    Gradients<double> gradients({early.handle(), late.handle()});
    const auto run = [&](bool fail) {
      Tape<double> tape;
      const Var<double> a = tape.parameter(early.handle());
      const Var<double> bad = record("bad", a.value(), {a}, [fail](Backward<double>& back) {
        if (fail) throw ValueError("bad", "cannot be differentiated");
        back.pass(0, back.dy());
      });
      const Var<double> y = sum(bad + tape.parameter(late.handle()) * 2.0);
      tape.backward(y, gradients, [&](Gradients<double>::Entry& entry) {
        if (fail) entry.reset();
      });
    };
    run(false);
    CHECK(message_of<ValueError>([&] { run(true); }) == "[bad] cannot be differentiated");
    for (const auto& entry : gradients.entries()) CHECK(entry.written);
    CHECK(values(gradients.of(early)) == std::vector<double>(n, 1));
    CHECK(values(gradients.of(late)) == std::vector<double>(n, 2));
  }
}

TEST_CASE("Tape: a first write of gradients needs no copy, adding to them copies what is there") {
  const Shape shape{500, 300};
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * sizeof(double);
  const Parameter<double> w(Tensor<double>::ones(shape));
  Gradients<double> gradients({w.handle()});
  MemoryPool& pool = Runtime::instance().pool();
  const auto growth = [&] {
    Tape<double> tape;
    const Var<double> y = sum(tape.parameter(w.handle()));
    pool.trim();
    pool.reset_peak();
    const std::size_t before = pool.statistics().peak_bytes;
    tape.backward(y, gradients);
    return pool.statistics().peak_bytes - before;
  };
  const std::size_t first = growth();
  CHECK(first >= bytes);
  CHECK(first < 2 * bytes);
  const std::size_t second = growth();
  CHECK(second >= bytes);  // the copy: the gradient itself has its memory
  CHECK(second < 2 * bytes);
  gradients.zero();
  CHECK(growth() == first);
}

TEST_CASE("Tape: a parameter's gradient never shares memory with what was passed") {
  const Parameter<double> p(Tensor<double>::ones({2}));
  Gradients<double> gradients({p.handle()});
  const Tensor<double> cotangent = Tensor<double>::from({2}, {1, 2});
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2}));
  tape.backward(tape.parameter(p.handle()) + x, cotangent, gradients);
  gradients.scale(100);
  CHECK(values(cotangent) == std::vector<double>{1, 2});
  CHECK(values(tape.gradient(x)) == std::vector<double>{1, 2});
}

#if defined(__linux__)
TEST_CASE("Tape: a graph of 100,000 ops needs no deep stack, to run, to drop or to destroy") {
  const auto run = [](void* result) -> void* {
    Tape<double> tape;
    const auto chain = [](Var<double> x) {
      for (int i = 0; i < 100000; ++i) x = i % 2 == 0 ? negate(x) : x + 1;
      return x;
    };
    const Var<double> x = tape.variable(Tensor<double>::scalar(1));
    tape.backward(chain(x));
    *static_cast<double*>(result) = tape.gradient(x).item();
    (void)chain(tape.variable(Tensor<double>::scalar(1)));
    tape.clear();
    (void)chain(tape.variable(Tensor<double>::scalar(1)));
    return nullptr;
  };
  double gradient = 0;
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, &attributes, run, &gradient) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  CHECK(gradient == 1);
}
#endif

TEST_CASE("Tape: a step of shapes already seen takes no memory from the system") {
  const Parameter<double> w(normal({7, 33}, 1));
  Gradients<double> gradients({w.handle()});
  const Tensor<double> x = normal({5, 33}, 2);
  const auto step = [&] {
    Tape<double> tape;
    const Var<double> v = tape.parameter(w.handle());
    const Var<double> h = softmax(slice(v, 0, 0, 5) * Var<double>(x) + slice(v, 0, 2));
    const Var<double> y = concat({h, square(h), transpose(reshape(h, {33, -1}))}, 0);
    gradients.zero();
    tape.backward(mean(y * exp(y)), gradients);
  };
  step();
  const PoolStatistics before = Runtime::instance().pool().statistics();
  for (int i = 0; i < 3; ++i) step();
  const PoolStatistics after = Runtime::instance().pool().statistics();
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.reuses > before.reuses);
  CHECK(after.bytes_in_use == before.bytes_in_use);
}

TEST_CASE("Tape: values and gradients are the same bits for any number of threads") {
  const Tensor<double> x = normal({130, 517}, 3), y = normal({517}, 4);
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<double> tape;
    const Var<double> a = tape.variable(x), b = tape.variable(y);
    const Var<double> z = softmax(a * b + b) / (square(b) + 1) - exp(transpose(transpose(a)) * 0.1);
    tape.backward(sum(z * z));
    return std::vector<std::vector<double>>{values(z.value()), values(tape.gradient(a)),
                                            values(tape.gradient(b))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("Tape: several tapes in several threads on the same constants") {
  const Tensor<double> x = normal({11, 13}, 5);
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&x, &result] {
      for (int round = 0; round < 20; ++round) {
        Tape<double> tape;
        const Var<double> v = tape.variable(x);
        tape.backward(sum(softmax(v) * x));
        result = values(tape.gradient(v));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == results[0]);
}

TEST_CASE("the profiler counts the bytes of an op's tensors, forward and backward") {
  Profiler& profiler = Runtime::instance().profiler();
  profiler.clear();
  profiler.start();
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2, 3}));
  const Var<double> y = softmax(x);
  Gradients<double> none;
  tape.backward(y, Tensor<double>::ones({2, 3}), none);
  profiler.stop();
  const auto report = profiler.report();
  profiler.clear();
  REQUIRE(report.size() == 2);
  // Forward reads x and writes y; backward reads dy and the input's place, and writes dx.
  for (const OpProfile& p : report) CHECK(p.bytes == (p.backward ? 3 : 2) * 6 * sizeof(double));
}

TEST_CASE("the profiler counts the same bytes for ops of constants, for which nothing is recorded") {
  Profiler& profiler = Runtime::instance().profiler();
  const auto bytes = [&](const auto& input) {
    profiler.clear();
    profiler.start();
    const Var<double> x = input(Tensor<double>::ones({2, 3})), r = input(Tensor<double>::ones({2, 1}));
    (void)softmax(x);
    (void)add(x, r);
    (void)concat({x, r}, 1);
    (void)reshape(x, Shape{3, 2});
    profiler.stop();
    std::vector<double> counted;
    for (const char* op : {"softmax", "add", "concat", "reshape"}) {
      for (const OpProfile& p : profiler.report()) {
        if (p.op == op) counted.push_back(p.bytes);
      }
    }
    profiler.clear();
    return counted;
  };
  Tape<double> tape;
  const auto recorded = bytes([&](const Tensor<double>& x) { return tape.variable(x); });
  CHECK(tape.size() == 2 + 4);
  REQUIRE(recorded.size() == 4);
  CHECK(recorded[1] == (6 + 6 + 2) * sizeof(double));
  CHECK(bytes([](const Tensor<double>& x) { return Var<double>(x); }) == recorded);
}

TEST_CASE("Tape: backward tells of each parameter once its gradient is complete") {
  Parameter<double> early(Tensor<double>::scalar(2)), late(Tensor<double>::scalar(3));
  Parameter<double> unused(Tensor<double>::scalar(5));
  early.set_name("early");
  late.set_name("late");
  Tape<double> tape;
  const auto ctx = Context<double>::checking(tape);
  Gradients<double> gradients({unused.handle(), early.handle(), late.handle()});
  // early is used at the beginning and at the end, so its gradient is complete last.
  const Var<double> loss =
      multiply(multiply(multiply(ctx.use(early), ctx.use(early)), ctx.use(late)), ctx.use(early));
  std::vector<std::string> names;
  std::vector<double> values;
  tape.backward(loss, gradients, [&](Gradients<double>::Entry& entry) {
    names.push_back(entry.parameter->name);
    values.push_back(entry.value.item());
    entry.reset();
  });
  CHECK(names == std::vector<std::string>{"late", "early"});
  CHECK(values == std::vector<double>{8, 36});  // early^3, 3 early^2 late
  CHECK(!gradients.entries()[1].written);
}
