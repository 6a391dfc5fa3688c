#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/programs/library_ops.hpp"
#include "autograd/programs/reference_ops.hpp"
#include "isa.hpp"

namespace eigenformer::testing::programs {

/// Values of all nodes and gradients of all leaves, those of constants empty.
struct Results {
  std::vector<std::vector<double>> values, gradients;
};

/// The gradient of the loss by an element of an output.
inline std::vector<double> cotangent(const Program& program, int output) {
  const Node& node = program.nodes[static_cast<std::size_t>(output)];
  RandomGenerator random(program.seed * 31 + 7);
  std::vector<double> c;
  for (index_t i = 0; i < node.shape.numel(); ++i)
    c.push_back(static_cast<double>(static_cast<float>(random.normal())));
  return c;
}

/// The reference's results, and how much rounding errors change them.
class Reference {
 public:
  static constexpr double noise = 0x1p-40;
  static constexpr int repetitions = 3;

  explicit Reference(const Program& program) {
    std::vector<double> kinks;
    results_ = run(program, 0, 1, kinks);
    spread_ = Results{std::vector<std::vector<double>>(program.nodes.size(), {0.0}),
                      std::vector<std::vector<double>>(program.nodes.size(), {0.0})};
    std::vector<double> moved(kinks.size(), 0);
    for (int r = 0; r < repetitions; ++r) {
      std::vector<double> others;
      const Results noisy = run(program, noise, program.seed * 8 + static_cast<std::uint64_t>(r), others);
      const auto widen = [](const auto& exact, const auto& with_noise, auto& spread) {
        for (std::size_t i = 0; i < exact.size(); ++i) {
          for (std::size_t k = 0; k < exact[i].size(); ++k)
            spread[i][0] = std::max(spread[i][0], std::abs(with_noise[i][k] - exact[i][k]));
        }
      };
      widen(results_.values, noisy.values, spread_.values);
      widen(results_.gradients, noisy.gradients, spread_.gradients);
      if (others.size() != kinks.size()) {
        nearest_kink_ = 0;
        return;
      }
      for (std::size_t k = 0; k < kinks.size(); ++k)
        moved[k] = std::max(moved[k], std::abs(others[k] - kinks[k]));
    }
    for (std::size_t k = 0; k < kinks.size(); ++k) {
      // An exact 0 is that of a mask or of equal numbers.
      if (kinks[k] != 0 && moved[k] > 0)
        nearest_kink_ = std::min(nearest_kink_, std::abs(kinks[k]) / moved[k]);
    }
  }

  const Results& results() const { return results_; }
  const Results& spread() const { return spread_; }
  /// Whether rounding errors of this size could choose the other branch of a function.
  bool near_kink(double unit) const { return nearest_kink_ < factor * unit / noise; }
  /// The largest difference that rounding errors of this size explain; negative where they explain any.
  double tolerance(const std::vector<double>& exact, double spread, double unit) const {
    double most = 0;
    for (const double x : exact) most = std::max(most, std::abs(x));
    // Products of two rounding errors are where the exact result is 0.
    const double t = factor * (spread * unit / noise + unit * most) + 1e6 * unit * unit;
    return t > 0.05 * most && most > 0 ? -1 : t;
  }

 private:
  static constexpr double factor = 200;

  static Results run(const Program& program, double u, std::uint64_t seed, std::vector<double>& kinks) {
    Graph numbers(u, seed);
    graph() = &numbers;
    Evaluation evaluation{program.drops, program.key, 0};
    std::vector<Numbers> all;
    for (const Node& node : program.nodes) all.push_back(reference::evaluate(node, all, evaluation));
    std::vector<std::pair<std::int32_t, double>> cotangents;
    for (const int o : program.outputs) {
      const auto c = cotangent(program, o);
      for (std::size_t i = 0; i < c.size(); ++i)
        cotangents.push_back({all[static_cast<std::size_t>(o)].at[i].id, c[i]});
    }
    const std::vector<double> adjoints = numbers.backward(cotangents);
    Results results;
    for (std::size_t i = 0; i < all.size(); ++i) {
      results.values.emplace_back();
      results.gradients.emplace_back();
      const Op op = program.nodes[i].op;
      for (const Scalar s : all[i].at) {
        results.values.back().push_back(s.value());
        if (op == Op::variable || op == Op::parameter)
          results.gradients.back().push_back(adjoints[static_cast<std::size_t>(s.id)]);
      }
    }
    kinks = numbers.kinks();
    graph() = nullptr;
    return results;
  }

  Results results_, spread_;
  double nearest_kink_ = std::numeric_limits<double>::infinity();
};

/// A way to run a program.
struct Way {
  bool tape = true;
  GemmPrecision precision{};
  bool cache = false;
};

/// The library's results; `error` receives what it throws, and says where memory beside a leaf was written.
template <class T>
Results run_library(const Program& program, const Way& way, std::string& error) {
  Results results;
  const auto copy = [](const Tensor<T>& t) {
    std::vector<double> v;
    for (const T x : t.span()) v.push_back(static_cast<double>(x));
    return v;
  };
  try {
    Tape<T> tape;
    Context<T> ctx = !way.tape       ? Context<T>::inference()
                     : program.drops ? Context<T>::training(tape, program.key)
                                     : Context<T>::checking(tape);
    ctx = ctx.with_precision(way.precision);
    if (way.cache) ctx = ctx.with_weight_cache(std::make_shared<eigenformer::detail::kernels::WeightCache>());
    const LibraryRun<T> run(program, ctx, way.tape ? &tape : nullptr);
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Var<T>& y = run.var(static_cast<int>(i));
      if (y.shape() != program.nodes[i].shape) {
        error = "%" + std::to_string(i) + " has shape " + y.shape().str();
        return results;
      }
      results.values.push_back(copy(y.value()));
    }
    results.gradients.resize(program.nodes.size());
    if (!way.tape) return results;

    Gradients<T> gradients(run.trained());
    std::vector<int> recorded;
    bool leaf = false;  // an op that returned its input
    for (const int o : program.outputs) {
      if (!run.var(o).recorded()) continue;
      recorded.push_back(o);
      const Op op = program.nodes[static_cast<std::size_t>(o)].op;
      leaf = leaf || op == Op::dropout || op == Op::stochastic_depth || op == Op::activate;
    }
    const auto weights = [&](int o) {
      Tensor<T> c(run.var(o).shape());
      const auto numbers = cotangent(program, o);
      for (std::size_t i = 0; i < numbers.size(); ++i) c.data()[i] = static_cast<T>(numbers[i]);
      return c;
    };
    if (recorded.size() == 1 && !leaf) {
      tape.backward(run.var(recorded[0]), weights(recorded[0]), gradients);
    } else if (!recorded.empty()) {
      Var<T> loss;
      for (const int o : recorded) {
        const Var<T> term = sum(multiply(run.var(o), Var<T>(weights(o))));
        loss = loss.defined() ? loss + term : term;
      }
      tape.backward(loss, gradients);
    }
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const auto zeros = [&] {
        return std::vector<double>(static_cast<std::size_t>(node.shape.numel()), 0.0);
      };
      if (node.op == Op::variable)
        results.gradients[i] = recorded.empty() ? zeros() : copy(tape.gradient(run.var(static_cast<int>(i))));
      if (node.op == Op::parameter)
        results.gradients[i] = copy(gradients.of(*run.parameter(static_cast<int>(i))));
    }
    if (!run.surroundings_unchanged()) error = "memory beside a leaf was written";
  } catch (const std::exception& e) {
    error = std::string("it throws: ") + e.what();
  }
  return results;
}

/// The first difference from the reference, or "".
inline std::string difference(const Program& program, const Reference& reference, const Results& found,
                              double unit, bool gradients) {
  const auto compare = [&](const char* what, std::size_t i, const std::vector<double>& expected,
                           double spread, const std::vector<double>& actual) -> std::string {
    const double tolerance = reference.tolerance(expected, spread, unit);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const bool finite = std::isfinite(actual[k]);
      if (finite && (tolerance < 0 || std::abs(actual[k] - expected[k]) <= tolerance)) continue;
      std::ostringstream out;
      out.precision(17);
      out << what << " of %" << i << " " << name_of(program.nodes[i].op) << " at " << k << " is " << actual[k]
          << ", expected " << expected[k] << " within " << tolerance;
      return out.str();
    }
    return "";
  };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    std::string d =
        compare("value", i, reference.results().values[i], reference.spread().values[i][0], found.values[i]);
    if (!d.empty()) return d;
  }
  for (std::size_t i = 0; i < program.nodes.size() && gradients; ++i) {
    if (found.gradients[i].empty()) continue;
    std::string d = compare("gradient", i, reference.results().gradients[i],
                            reference.spread().gradients[i][0], found.gradients[i]);
    if (!d.empty()) return d;
  }
  return "";
}

/// What was compared and what could not be.
struct Tally {
  index_t programs = 0, runs = 0, near_kinks = 0;
};

/// Runs a program in every way; "", or what is wrong with the first that differs.
class Checker {
 public:
  std::string check(const Program& program) {
    const Reference reference(program);
    ++tally_.programs;
    std::string wrong;
    for (const eigenformer::detail::kernels::IsaPath& path : eigenformer::detail::kernels::isa_paths) {
      if (!path_is_here(path)) continue;
      const WithIsa with(path.isa);
      wrong = on_path<double>(program, reference);
      if (wrong.empty()) wrong = on_path<float>(program, reference);
      if (!wrong.empty()) return wrong + ", on path " + path.name;
    }
    return low_precision(program, reference);
  }
  const Tally& tally() const { return tally_; }

 private:
  template <class T>
  std::string on_path(const Program& program, const Reference& reference) {
    const double unit = std::numeric_limits<T>::epsilon() / 2;
    const std::string type = std::is_same_v<T, float> ? "float" : "double";
    const bool smooth = !reference.near_kink(unit);
    tally_.near_kinks += smooth ? 0 : 1;
    std::string wrong;
    const auto compared = [&](const Way& way, const std::string& how) {
      const Results r = run_library<T>(program, way, wrong);
      ++tally_.runs;
      if (wrong.empty() && smooth) wrong = difference(program, reference, r, unit, way.tape);
      if (!wrong.empty()) wrong += ", in " + type + " " + how;
      return r;
    };
    Results one, two;
    {
      const ThreadScope scope(one_thread_);
      one = compared({}, "on one thread");
    }
    if (!wrong.empty()) return wrong;
    {
      const ThreadScope scope(two_threads_);
      two = compared({}, "on two threads");
    }
    if (wrong.empty()) wrong = same_bits(program, one, two, type + " on one and on two threads");
    if (wrong.empty() && !program.drops) (void)compared({.tape = false}, "without a tape");
    return wrong;
  }

  // Products of inputs rounded to bfloat16.
  std::string low_precision(const Program& program, const Reference& reference) {
    const double unit = 0x1p-8;
    std::string wrong;
    Way way{.precision = GemmPrecision::bf16};
    const Results plain = run_library<float>(program, way, wrong);
    way.cache = true;
    const Results cached = wrong.empty() ? run_library<float>(program, way, wrong) : Results{};
    tally_.runs += 2;
    if (wrong.empty()) wrong = same_bits(program, plain, cached, "bf16 with and without a cache of weights");
    if (wrong.empty() && !reference.near_kink(unit)) {
      wrong = difference(program, reference, plain, unit, true);
      if (!wrong.empty()) wrong += ", in bf16";
    }
    return wrong;
  }

  static std::string same_bits(const Program& program, const Results& a, const Results& b,
                               const std::string& how) {
    const auto differ = [](const std::vector<double>& x, const std::vector<double>& y) {
      return x.size() != y.size() ||
             (!x.empty() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) != 0);
    };
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      for (const bool gradient : {false, true}) {
        if (differ(gradient ? a.gradients[i] : a.values[i], gradient ? b.gradients[i] : b.values[i])) {
          return std::string(gradient ? "gradients" : "values") + " of %" + std::to_string(i) + " " +
                 name_of(program.nodes[i].op) + " differ: " + how;
        }
      }
    }
    return "";
  }

  Tally tally_;
  std::shared_ptr<ThreadPool> one_thread_ = std::make_shared<ThreadPool>(1),
                              two_threads_ = std::make_shared<ThreadPool>(2);
};

/// The program without nodes that nothing uses.
inline Program compacted(const Program& program) {
  Program result = program;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = static_cast<int>(result.nodes.size()) - 1; i >= 0; --i) {
      if (result.used(i)) continue;
      result.nodes.erase(result.nodes.begin() + i);
      const auto shift = [i](int& k) { k -= k > i ? 1 : 0; };
      for (Node& node : result.nodes)
        for (int& k : node.in) shift(k);
      for (int& o : result.outputs) shift(o);
      changed = true;
    }
  }
  return result;
}

/// A smaller program that `fails`, too: with fewer outputs, and with leaves in place of ops.
template <class F>
Program shrunk(Program program, const F& fails) {
  program = compacted(program);
  for (bool smaller = true; smaller;) {
    smaller = false;
    const auto attempt = [&](Program candidate) {
      candidate = compacted(candidate);
      if (!fails(candidate)) return false;
      program = std::move(candidate);
      return smaller = true;
    };
    for (std::size_t o = 0; o < program.outputs.size() && program.outputs.size() > 1;) {
      Program candidate = program;
      candidate.outputs.erase(candidate.outputs.begin() + static_cast<std::ptrdiff_t>(o));
      if (!attempt(std::move(candidate))) ++o;
    }
    const Reference reference(program);
    for (std::size_t i = program.nodes.size(); i-- > 0;) {
      if (program.nodes[i].leaf()) continue;
      Program candidate = program;
      // The ops before it, of which one may be where it fails.
      if (std::find(program.outputs.begin(), program.outputs.end(), static_cast<int>(i)) !=
          program.outputs.end()) {
        candidate.outputs.clear();
        for (const int k : program.nodes[i].in)
          if (k >= 0 && !program.nodes[static_cast<std::size_t>(k)].leaf()) candidate.outputs.push_back(k);
        if (!candidate.outputs.empty() && attempt(candidate)) break;
        continue;
      }
      Node leaf;
      leaf.op = Op::variable;
      leaf.shape = program.nodes[i].shape;
      for (const double x : reference.results().values[i])
        leaf.x.push_back(static_cast<double>(static_cast<float>(x)));
      candidate.nodes[i] = leaf;
      if (attempt(std::move(candidate))) break;
    }
  }
  return program;
}

}  // namespace eigenformer::testing::programs
