#include "eigenformer/autograd/ops.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "fixtures.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

namespace {

// The operands and other arguments of a call in the fixture.
template <class T>
struct Call {
  std::vector<Var<T>> x{};
  Tensor<std::int64_t> index{};
  std::vector<Tensor<bool>> masks{};
  nlohmann::json arguments{};

  index_t number(std::size_t i) const { return arguments[i].get<index_t>(); }
  double real(std::size_t i) const { return arguments[i].get<double>(); }
  bool flag(std::size_t i) const { return arguments[i].get<bool>(); }
  std::vector<index_t> list(std::size_t i) const { return arguments[i].get<std::vector<index_t>>(); }
  std::vector<std::pair<index_t, index_t>> pairs(std::size_t i) const {
    return arguments[i].get<std::vector<std::pair<index_t, index_t>>>();
  }
  // A number, a list of begin, end and step, of which none means all, null for a new axis, or "...".
  Index at(std::size_t i) const {
    const nlohmann::json& a = arguments[i];
    if (a.is_null()) return newaxis;
    if (a.is_string()) return ellipsis;
    if (!a.is_array()) return number(i);
    return a.empty() ? range(0) : range(a[0].get<index_t>(), a[1].get<index_t>(), a[2].get<index_t>());
  }
};

// What an operation returns, as Vars.
template <class T>
struct Result {
  std::vector<Var<T>> parts;

  Result(const Var<T>& y) : parts{y} {}                                 // NOLINT(google-explicit-constructor)
  Result(const std::vector<Var<T>>& y) : parts(y) {}                    // NOLINT(google-explicit-constructor)
  Result(const Tensor<bool>& y) : Result(Var<T>(y.to<T>())) {}          // NOLINT(google-explicit-constructor)
  Result(const Tensor<std::int64_t>& y) : Result(Var<T>(y.to<T>())) {}  // NOLINT(google-explicit-constructor)
};

// The operations by their names in the fixture; another name's end tells of other arguments.
template <class T>
std::map<std::string, Result<T> (*)(const Call<T>&)> operations() {
  using C = const Call<T>&;
  using R = Result<T>;
  return {
      {"add", [](C c) -> R { return add(c.x[0], c.x[1]); }},
      {"subtract", [](C c) -> R { return subtract(c.x[0], c.x[1]); }},
      {"multiply", [](C c) -> R { return multiply(c.x[0], c.x[1]); }},
      {"divide", [](C c) -> R { return divide(c.x[0], c.x[1]); }},
      {"negate", [](C c) -> R { return negate(c.x[0]); }},
      {"exp", [](C c) -> R { return ef::exp(c.x[0]); }},
      {"log", [](C c) -> R { return ef::log(c.x[0]); }},
      {"sqrt", [](C c) -> R { return ef::sqrt(c.x[0]); }},
      {"square", [](C c) -> R { return square(c.x[0]); }},
      {"elu_plus_one", [](C c) -> R { return elu_plus_one(c.x[0]); }},
      {"activate", [](C c) -> R { return activate(c.x[0], Activation::elu_plus_one); }},
      {"less", [](C c) -> R { return ef::less(c.x[0], c.x[1]); }},
      {"less_equal", [](C c) -> R { return ef::less_equal(c.x[0], c.x[1]); }},
      {"greater", [](C c) -> R { return ef::greater(c.x[0], c.x[1]); }},
      {"greater_equal", [](C c) -> R { return ef::greater_equal(c.x[0], c.x[1]); }},
      {"equal", [](C c) -> R { return ef::equal(c.x[0], c.x[1]); }},
      {"not_equal", [](C c) -> R { return not_equal(c.x[0], c.x[1]); }},
      {"where", [](C c) -> R { return where(c.masks[0], c.x[0], c.x[1]); }},
      {"logical_and", [](C c) -> R { return ef::logical_and(c.masks[0], c.masks[1]); }},
      {"logical_or", [](C c) -> R { return ef::logical_or(c.masks[0], c.masks[1]); }},
      {"logical_xor", [](C c) -> R { return logical_xor(c.masks[0], c.masks[1]); }},
      {"logical_not", [](C c) -> R { return ef::logical_not(c.masks[0]); }},
      {"isnan", [](C c) -> R { return ef::isnan(c.x[0]); }},
      {"isinf", [](C c) -> R { return ef::isinf(c.x[0]); }},
      {"isfinite", [](C c) -> R { return ef::isfinite(c.x[0]); }},
      {"isclose", [](C c) -> R { return isclose(c.x[0], c.x[1], c.real(0), c.real(1), c.flag(2)); }},
      {"sum", [](C c) -> R { return sum(c.x[0], c.list(0), c.flag(1)); }},
      {"mean", [](C c) -> R { return mean(c.x[0], c.list(0), c.flag(1)); }},
      {"reshape",
       [](C c) -> R {
         return reshape(c.x[0], {c.list(0)[0], c.list(0)[1]});
       }},
      {"permute", [](C c) -> R { return permute(c.x[0], c.list(0)); }},
      {"transpose", [](C c) -> R { return transpose(c.x[0], c.number(0), c.number(1)); }},
      {"swapaxes", [](C c) -> R { return swapaxes(c.x[0], c.number(0), c.number(1)); }},
      {"moveaxis", [](C c) -> R { return moveaxis(c.x[0], c.list(0), c.list(1)); }},
      {"slice", [](C c) -> R { return ef::slice(c.x[0], c.number(0), c.number(1), c.number(2)); }},
      {"concat", [](C c) -> R { return concat(c.x, c.number(0)); }},
      {"stack", [](C c) -> R { return stack(c.x, c.number(0)); }},
      {"gather", [](C c) -> R { return gather(c.x[0], c.number(0), c.index); }},
      {"index_select", [](C c) -> R { return index_select(c.x[0], c.index.template to<std::int32_t>()); }},
      {"broadcast_to", [](C c) -> R { return broadcast_to(c.x[0], Shape(c.list(0))); }},
      {"squeeze", [](C c) -> R { return squeeze(c.x[0], c.list(0)); }},
      {"unsqueeze", [](C c) -> R { return unsqueeze(c.x[0], c.number(0)); }},
      {"flatten", [](C c) -> R { return flatten(c.x[0], c.number(0), c.number(1)); }},
      {"atleast_1d", [](C c) -> R { return atleast_1d(c.x[0]); }},
      {"atleast_2d", [](C c) -> R { return atleast_2d(c.x[0]); }},
      {"atleast_3d", [](C c) -> R { return atleast_3d(c.x[0]); }},
      {"split", [](C c) -> R { return split(c.x[0], c.list(0), c.number(1)); }},
      {"split_size", [](C c) -> R { return split(c.x[0], c.number(0), c.number(1)); }},
      {"chunk", [](C c) -> R { return chunk(c.x[0], c.number(0), c.number(1)); }},
      {"unstack", [](C c) -> R { return unstack(c.x[0], c.number(0)); }},
      {"repeat", [](C c) -> R { return repeat(c.x[0], c.list(0), c.number(1)); }},
      {"tile", [](C c) -> R { return tile(c.x[0], c.list(0)); }},
      {"flip", [](C c) -> R { return flip(c.x[0], c.list(0)); }},
      {"roll", [](C c) -> R { return roll(c.x[0], c.list(0), c.list(1)); }},
      {"pad", [](C c) -> R { return pad(c.x[0], c.pairs(0), PadMode::constant, c.real(1)); }},
      {"pad_reflect", [](C c) -> R { return pad(c.x[0], c.pairs(0), PadMode::reflect); }},
      {"pad_edge", [](C c) -> R { return pad(c.x[0], c.pairs(0), PadMode::edge); }},
      {"diag", [](C c) -> R { return diag(c.x[0], c.number(0)); }},
      {"diagonal", [](C c) -> R { return diagonal(c.x[0], c.number(0), c.number(1), c.number(2)); }},
      {"tril", [](C c) -> R { return tril(c.x[0], c.number(0)); }},
      {"triu", [](C c) -> R { return triu(c.x[0], c.number(0)); }},
      {"index", [](C c) -> R { return c.x[0](c.at(0), c.at(1)); }},
      {"assign",
       [](C c) -> R {
         return assign(c.x[0], {c.at(0), c.at(1)}, c.x[1]);
       }},
      {"take", [](C c) -> R { return take(c.x[0], c.index); }},
      {"take_axis", [](C c) -> R { return take(c.x[0], c.index, c.number(0)); }},
      {"take_along_axis", [](C c) -> R { return take_along_axis(c.x[0], c.index, c.number(0)); }},
      {"put_along_axis", [](C c) -> R { return put_along_axis(c.x[0], c.index, c.x[1], c.number(0)); }},
      {"scatter_add", [](C c) -> R { return scatter_add(c.x[0], c.number(0), c.index, c.x[1]); }},
      {"index_add", [](C c) -> R { return index_add(c.x[0], c.number(0), c.index, c.x[1]); }},
      {"masked_fill", [](C c) -> R { return masked_fill(c.x[0], c.masks[0], c.real(0)); }},
      {"masked_fill_one", [](C c) -> R { return masked_fill(c.x[0], c.masks[0], c.x[1]); }},
      {"masked_select", [](C c) -> R { return masked_select(c.x[0], c.masks[0]); }},
      {"nonzero", [](C c) -> R { return nonzero(c.x[0]); }},
      {"nonzero_mask", [](C c) -> R { return nonzero(c.masks[0]); }},
      {"searchsorted", [](C c) -> R { return searchsorted(c.x[0], c.x[1], c.flag(0)); }},
  };
}

// CHECKs out.KEY of f(inputs), and grad_in.KEY of one input or grad_in.KEY.INPUT of several.
template <class T, class F>
void check_fixture(const Fixture& fixture, const std::string& key, const std::vector<std::string>& inputs,
                   const F& f) {
  const bool single = std::is_same_v<T, float>;
  Tape<T> tape;
  std::vector<Var<T>> x;
  for (const auto& name : inputs) x.push_back(tape.variable(fixture.get<T>("in." + name)));
  const Var<T> y = f(x);
  check_close(y.value(), fixture.get<T>("out." + key), single ? 1e-5 : 1e-12, key);
  tape.backward(fixture.contains("in.cotangent") ? sum(y * fixture.get<T>("in.cotangent")) : y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto name = "grad_in." + key + (inputs.size() == 1 ? "" : "." + inputs[i]);
    check_close(tape.gradient(x[i]), fixture.get<T>(name), single ? 1e-4 : 1e-12, name);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("operations that copy, compare or combine elements, and their gradients, are PyTorch's", T,
                   float, double) {
  const Fixture fixture("ops/copies");
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-12;
  // Others are the same to the last bit. (Square roots of PyTorch are not rounded correctly.)
  const std::set<std::string> inexact = {"exp", "log",  "sqrt",      "elu_plus_one", "activate",
                                         "sum", "mean", "index_add", "scatter_add"};
  const auto table = operations<T>();
  std::set<std::string> called;
  const auto calls = fixture.options().at("calls");
  for (std::size_t n = 0; n < calls.size(); ++n) {
    const std::string key = std::to_string(n) + ".", what = calls[n].dump();
    const auto op = calls[n][0].get<std::string>();
    called.insert(op);
    for (const bool twice : {false, true}) {
      Tape<T> tape;
      Call<T> call{.arguments = calls[n][2]};
      for (const auto& source : calls[n][1]) {
        const auto name = "in." + source.get<std::string>();
        if (name[3] == 'i') {
          call.index = fixture.get<std::int64_t>(name);
        } else if (name[3] == 'm') {
          call.masks.push_back(fixture.get<bool>(name));
        } else {
          call.x.push_back(tape.variable(fixture.get<T>(name)));
        }
      }
      const auto parts = table.at(op)(call).parts;
      Var<T> loss(Tensor<T>::scalar(0));
      index_t count = 0;
      for (std::size_t k = 0; k < parts.size(); ++k) {
        check_close(parts[k].value(), fixture.get<T>("out." + key + std::to_string(k)),
                    inexact.contains(op) ? tolerance : 0, what);
        Tensor<T> cotangent(parts[k].shape());
        for (T& e : cotangent.span()) e = T(0.5) + static_cast<T>(count++) / 64;
        loss = loss + sum(parts[k] * cotangent);
      }
      CHECK_MESSAGE(!fixture.contains("out." + key + std::to_string(parts.size())), what);
      if (!fixture.contains("grad_in." + key + "0")) continue;
      // Recorded later, so that its gradient is there first.
      for (const Var<T>& v : call.x) loss = twice ? loss + sum(v) : loss;
      tape.backward(loss);
      for (std::size_t k = 0; k < call.x.size(); ++k) {
        auto expected = fixture.get<T>("grad_in." + key + std::to_string(k)).clone();
        for (T& e : expected.span()) e += twice ? T(1) : T(0);
        check_close(tape.gradient(call.x[k]), expected, tolerance,
                    "gradient " + std::to_string(k) + " of " + what);
      }
    }
  }
  CHECK(called.size() == table.size());
}

TEST_CASE_TEMPLATE("activations, softmax, cross entropy and attention, and their gradients, are PyTorch's", T,
                   float, double) {
  using X = const std::vector<Var<T>>&;
  const Fixture activations("ops/activations"), softmaxes("ops/softmax"), losses("ops/cross_entropy"),
      attentions("attention/attention");
  check_fixture<T>(activations, "relu", {"x"}, [](X x) { return relu(x[0]); });
  check_fixture<T>(activations, "gelu", {"x"}, [](X x) { return gelu(x[0]); });
  check_fixture<T>(activations, "gelu_tanh", {"x"}, [](X x) { return gelu_tanh(x[0]); });
  check_fixture<T>(activations, "silu", {"x"}, [](X x) { return silu(x[0]); });
  check_fixture<T>(activations, "sigmoid", {"x"}, [](X x) { return sigmoid(x[0]); });
  check_fixture<T>(activations, "tanh", {"x"}, [](X x) { return ef::tanh(x[0]); });
  check_fixture<T>(softmaxes, "softmax", {"x"}, [](X x) { return softmax(x[0]); });
  check_fixture<T>(softmaxes, "log_softmax", {"x"}, [](X x) { return log_softmax(x[0]); });
  const auto targets = losses.get<std::int32_t>("in.targets");
  const auto ignored = losses.option<index_t>("ignore_index");
  for (const auto reduction : {CrossEntropyOptions::Reduction::mean, CrossEntropyOptions::Reduction::sum}) {
    const std::string name = reduction == CrossEntropyOptions::Reduction::mean ? "mean" : "sum";
    for (const double smoothing : {0.0, losses.option<double>("label_smoothing")}) {
      check_fixture<T>(losses, (smoothing > 0 ? "smooth_" : "") + name, {"logits"}, [&](X x) {
        return cross_entropy(x[0], targets, {ignored, smoothing, reduction});
      });
    }
  }
  const std::map<std::string, AttentionMask> masks = {
      {"plain", AttentionMask::none()},
      {"block", AttentionMask::block(attentions.get<bool>("in.block"))},
      {"additive", AttentionMask::additive(attentions.get<float>("in.additive"))}};
  for (const auto& [key, mask] : masks) {
    check_fixture<T>(attentions, key, {"q", "k", "v"},
                     [&, &m = mask](X x) { return attention(x[0], x[1], x[2], m); });
  }
}
