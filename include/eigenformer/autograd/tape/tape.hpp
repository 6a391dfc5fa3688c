#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/autograd/tape/var.hpp"
#include "eigenformer/core/runtime/profiler.hpp"

namespace eigenformer {

template <class T>
class Backward;

namespace detail {

template <class T>
struct TapeNode {
  const char* op = "";
  std::vector<std::int32_t> inputs;  // -1: an input that needs no gradient
  std::function<void(Backward<T>&)> backward;
  Shape shape;
  Tensor<T> gradient;
  bool written = false;
  bool leaf = false;
  ParameterHandle<T> parameter;  // set for a parameter's leaf: its gradient lives in the caller's Gradients
};

template <class T>
struct TapeState {
  std::vector<TapeNode<T>> nodes;
  std::unordered_map<std::uint64_t, std::int32_t> parameters;
  std::uint64_t generation = 1;
  bool alive = true;
  std::vector<Tensor<T>> leaf_gradients;  // of the last backward, by node
  std::uint64_t leaf_generation = 0;

  void clear() {
    nodes.clear();
    parameters.clear();
    ++generation;
  }
};

}  // namespace detail

/// Where an op writes the gradient of one input: `data` of the input's shape, with data = beta * data +
/// gradient. beta is 0 at the first write (the memory is uninitialised) and 1 afterwards. False: no gradient
/// is wanted.
template <class T>
struct GradientSlot {
  T* data = nullptr;
  T beta = 0;
  Shape shape;
  explicit operator bool() const noexcept { return data != nullptr; }
};

/// What the closure of an op's backward sees: the gradient of its output, and a slot for each input's
/// gradient.
template <class T>
class Backward {
 public:
  Backward(detail::TapeState<T>& tape, Gradients<T>* gradients, std::int32_t node)
      : tape_(tape),
        gradients_(gradients),
        node_(node),
        dy_(tape.nodes[static_cast<std::size_t>(node)].gradient) {
    detail::count_bytes<T>(dy_.numel());
  }

  /// The gradient with respect to the op's output.
  const Tensor<T>& dy() const noexcept { return dy_; }

  /// Whether input i needs a gradient.
  bool needs(std::size_t i) const noexcept { return input(i) >= 0; }

  /// The place for input i's gradient; it counts as written from now on, so fill all of it.
  GradientSlot<T> grad(std::size_t i) {
    const std::int32_t id = input(i);
    if (id < 0) return {};
    detail::TapeNode<T>& n = tape_.nodes[static_cast<std::size_t>(id)];
    Tensor<T>* target = &n.gradient;
    bool* written = &n.written;
    if (n.parameter != nullptr) {
      auto* entry = gradients_->find(n.parameter->id);
      target = &entry->value;
      written = &entry->written;
      if (!target->defined()) *target = Tensor<T>(n.shape);
    } else if (!n.gradient.defined()) {
      n.gradient = Tensor<T>(n.shape);
    } else if (n.gradient.use_count() != 1) {
      // A gradient handed on by pass() is shared with its producer: adding to it in place would change both.
      // (0: the memory is borrowed, and not ours to change either.)
      n.gradient = n.gradient.clone();
    }
    const T beta = *written ? T(1) : T(0);
    *written = true;
    detail::count_bytes<T>(n.shape.numel() * (beta == T(0) ? 2 : 3));  // the input itself is read again, too
    return {target->data(), beta, n.shape};
  }

  /// Adds a finished gradient for input i: shared without a copy when it is the first, summed otherwise. A
  /// parameter takes over the memory of a large one that is moved here and has no other owner, and copies any
  /// other.
  void pass(std::size_t i, Tensor<T>&& gradient) {
    const std::int32_t id = input(i);
    if (id >= 0 && gradient.use_count() == 1 && Gradients<T>::large(gradient)) {
      const detail::TapeNode<T>& n = tape_.nodes[static_cast<std::size_t>(id)];
      auto* entry = n.parameter == nullptr ? nullptr : gradients_->find(n.parameter->id);
      if (entry != nullptr && !entry->written) {
        entry->value = gradient.reshape(n.shape);
        entry->written = true;
        gradient = Tensor<T>();
        return;
      }
    }
    pass(i, static_cast<const Tensor<T>&>(gradient));
  }
  void pass(std::size_t i, const Tensor<T>& gradient) {
    const std::int32_t id = input(i);
    if (id < 0) return;
    detail::TapeNode<T>& n = tape_.nodes[static_cast<std::size_t>(id)];
    if (n.parameter == nullptr && !n.written) {
      n.gradient = gradient.reshape(n.shape);
      n.written = true;
      return;
    }
    const GradientSlot<T> slot = grad(i);
    const T* g = gradient.data();
    parallel_for(gradient.numel(), 1 << 15, [&](index_t begin, index_t end) {
      if (slot.beta == T(0)) {
        std::copy(g + begin, g + end, slot.data + begin);
      } else {
        for (index_t k = begin; k < end; ++k) slot.data[k] += g[k];
      }
    });
  }

 private:
  std::int32_t input(std::size_t i) const noexcept {
    const auto& inputs = tape_.nodes[static_cast<std::size_t>(node_)].inputs;
    return i < inputs.size() ? inputs[i] : -1;
  }

  detail::TapeState<T>& tape_;
  Gradients<T>* gradients_;
  std::int32_t node_;
  Tensor<T> dy_;
};

/// A record of ops, in the order they ran: nodes are indices in a vector, and backward is one reverse loop
/// that frees each op's saved tensors as it passes it. Used by one thread at a time.
template <class T>
class Tape {
 public:
  Tape() : state_(std::make_shared<detail::TapeState<T>>()) {}
  ~Tape() {
    if (state_ == nullptr) return;
    state_->clear();
    state_->alive = false;
  }
  Tape(Tape&&) noexcept = default;
  Tape& operator=(Tape&&) noexcept = delete;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A leaf whose gradient gradient() gives after backward.
  Var<T> variable(Tensor<T> value) {
    detail::TapeNode<T> node;
    node.op = "variable";
    node.leaf = true;
    return append(std::move(node), std::move(value));
  }

  /// The leaf of a parameter: one per parameter, however often it is used.
  Var<T> parameter(const ParameterHandle<T>& p) {
    const auto at = state_->parameters.find(p->id);
    if (at != state_->parameters.end()) return Var<T>(p->value, state_, state_->generation, at->second);
    detail::TapeNode<T> node;
    node.op = "parameter";
    node.leaf = true;
    node.parameter = p;
    Var<T> v = append(std::move(node), p->value);
    state_->parameters.emplace(p->id, v.node());
    return v;
  }

  /// Forgets everything recorded; Vars recorded before throw when used again.
  void clear() { state_->clear(); }
  std::size_t size() const noexcept { return state_->nodes.size(); }

  /// Accumulates d loss / d parameter into `gradients` for every recorded parameter, and consumes the tape.
  /// Throws ShapeError when loss has more than one element, ValueError when it is not recorded here or a
  /// recorded, unfrozen parameter is missing in `gradients`.
  void backward(const Var<T>& loss, Gradients<T>& gradients) {
    if (loss.numel() != 1) {
      throw ShapeError("backward",
                       "loss of shape " + loss.shape().str() +
                           " must have one element; give a cotangent "
                           "for anything else",
                       {loss.shape()});
    }
    backward(loss, Tensor<T>::ones(loss.shape()), gradients);
  }
  /// The same without parameters: only variable() leaves.
  void backward(const Var<T>& loss) {
    Gradients<T> none;
    backward(loss, none);
  }
  /// From an output of any shape, given the gradient that arrives at it.
  void backward(const Var<T>& output, const Tensor<T>& cotangent, Gradients<T>& gradients) {
    check_here(output);
    if (cotangent.shape() != output.shape()) {
      throw ShapeError("backward",
                       "cotangent of shape " + cotangent.shape().str() + " must have the output's shape " +
                           output.shape().str(),
                       {cotangent.shape(), output.shape()});
    }
    for (const auto& node : state_->nodes) {
      if (node.parameter == nullptr) continue;
      const auto* entry = gradients.find(node.parameter->id);
      if (entry != nullptr && entry->value.shape() != node.shape) {
        throw ShapeError("backward",
                         "the gradients hold parameter '" + node.parameter->name + "' with shape " +
                             entry->value.shape().str() + ", it was recorded with " + node.shape.str(),
                         {entry->value.shape(), node.shape});
      }
      if (entry == nullptr) {
        throw ValueError("backward",
                         "parameter '" + node.parameter->name + "' of shape " + node.shape.str() +
                             " was recorded but has no place in the gradients; list it or freeze it");
      }
    }
    auto& nodes = state_->nodes;
    auto& last = nodes[static_cast<std::size_t>(output.node())];
    if (last.parameter != nullptr) throw ValueError("backward", "the output is a parameter itself");
    last.gradient = cotangent;
    last.written = true;
    state_->leaf_gradients.assign(nodes.size(), Tensor<T>());
    state_->leaf_generation = state_->generation;
    // Consumed even when an op throws: half of the closures are gone by then.
    const Consumer consumer{*state_};
    Profiler& profiler = Runtime::instance().profiler();
    for (auto i = static_cast<std::int32_t>(nodes.size()) - 1; i >= 0; --i) {
      auto& node = nodes[static_cast<std::size_t>(i)];
      if (node.leaf) {
        if (node.parameter == nullptr) {
          state_->leaf_gradients[static_cast<std::size_t>(i)] =
              node.written ? std::move(node.gradient) : Tensor<T>::zeros(node.shape);
        }
        continue;
      }
      if (node.written && node.backward) {
        const OpScope scope(profiler, node.op, true);
        Backward<T> b(*state_, &gradients, i);
        node.gradient = Tensor<T>();
        node.backward(b);
      }
      node.backward = nullptr;
      node.gradient = Tensor<T>();
    }
  }

  /// The gradient of a variable() leaf found by the last backward. Throws ValueError for anything else.
  Tensor<T> gradient(const Var<T>& leaf) const {
    if (leaf.tape() != state_ || leaf.generation() != state_->leaf_generation ||
        !state_->leaf_gradients[static_cast<std::size_t>(leaf.node())].defined()) {
      throw ValueError("gradient", "not a variable of this tape's last backward");
    }
    return state_->leaf_gradients[static_cast<std::size_t>(leaf.node())];
  }

 private:
  struct Consumer {
    detail::TapeState<T>& state;
    ~Consumer() { state.clear(); }
  };

  Var<T> append(detail::TapeNode<T> node, Tensor<T> value) {
    node.shape = value.shape();
    state_->nodes.push_back(std::move(node));
    return Var<T>(std::move(value), state_, state_->generation,
                  static_cast<std::int32_t>(state_->nodes.size()) - 1);
  }

  void check_here(const Var<T>& v) const {
    if (!v.recorded() || v.tape() != state_)
      throw ValueError("backward", "the output was not recorded on this tape");
    if (v.generation() != state_->generation) {
      throw ValueError("backward",
                       "the tape was cleared or consumed by a backward after the output was recorded");
    }
  }

  std::shared_ptr<detail::TapeState<T>> state_;
};

namespace detail {

/// What the inputs of an op were recorded on; none when no input was. Throws ValueError for an input of a
/// dead tape or of another tape.
template <class T>
EIGENFORMER_NOINLINE std::shared_ptr<TapeState<T>> tape_of(const char* op, const Tensor<T>& y,
                                                           std::span<const Var<T>* const> inputs) {
  std::shared_ptr<TapeState<T>> tape;
  count_bytes<T>(y.numel());
  for (const Var<T>* x : inputs) {
    count_bytes<T>(x->shape().numel());
    if (!x->recorded()) continue;
    if (!x->tape()->alive || x->generation() != x->tape()->generation) {
      throw ValueError(
          op, "an input of shape " + x->shape().str() +
                  " was recorded on a tape that has been cleared, consumed by backward or destroyed");
    }
    if (tape != nullptr && tape != x->tape())
      throw ValueError(op, "the inputs were recorded on different tapes");
    tape = x->tape();
  }
  return tape;
}

template <class T>
EIGENFORMER_NOINLINE std::vector<const Var<T>*> addresses(std::span<const Var<T>> inputs) {
  std::vector<const Var<T>*> result;
  result.reserve(inputs.size());
  for (const Var<T>& x : inputs) result.push_back(&x);
  return result;
}

/// Appends an op's node to a tape.
template <class T>
EIGENFORMER_NOINLINE Var<T> append_op(const char* op, Tensor<T> y, std::span<const Var<T>* const> inputs,
                                      std::shared_ptr<TapeState<T>> tape,
                                      std::function<void(Backward<T>&)> backward) {
  TapeNode<T> node;
  node.op = op;
  node.shape = y.shape();
  node.inputs.reserve(inputs.size());
  for (const Var<T>* x : inputs) node.inputs.push_back(x->node());
  node.backward = std::move(backward);
  tape->nodes.push_back(std::move(node));
  const std::uint64_t generation = tape->generation;
  const auto id = static_cast<std::int32_t>(tape->nodes.size()) - 1;
  return Var<T>(std::move(y), std::move(tape), generation, id);
}

}  // namespace detail

/// Makes an op of a forward result and its backward: `backward` is kept, with what it captured, when an input
/// is recorded, and dropped otherwise. It is called at most once. Throws ValueError for an input of a dead
/// tape or of another tape.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, std::span<const Var<T>* const> inputs,
                            F&& backward) {
  auto tape = detail::tape_of<T>(op, y, inputs);
  if (tape == nullptr) return Var<T>(std::move(y));
  return detail::append_op<T>(op, std::move(y), inputs, std::move(tape), std::forward<F>(backward));
}

template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, std::initializer_list<Var<T>> inputs, F&& backward) {
  return record(op, std::move(y), std::span<const Var<T>* const>(detail::addresses<T>(inputs)),
                std::forward<F>(backward));
}
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, const std::vector<Var<T>>& inputs, F&& backward) {
  return record(op, std::move(y), std::span<const Var<T>* const>(detail::addresses<T>(inputs)),
                std::forward<F>(backward));
}

EIGENFORMER_INSTANCES(class Tape)

}  // namespace eigenformer
