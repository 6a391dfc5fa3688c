#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/autograd/tape/saved.hpp"
#include "eigenformer/autograd/tape/var.hpp"
#include "eigenformer/core/runtime/profiler.hpp"

namespace eigenformer {

template <class T>
class Backward;
template <class T>
class Tape;

namespace detail {

// Runs the function of a checkpoint again, recording on the tape.
template <class T>
using Recomputation = std::function<Var<T>(Tape<T>&)>;

template <class T>
struct TapeNode {
  const char* op = "";
  std::vector<std::int32_t> inputs;  // -1: an input that needs no gradient
  std::function<void(Backward<T>&)> backward;
  std::unique_ptr<Recomputation<T>> again;  // of a checkpoint, in place of `backward`
  Shape shape;
  Tensor<T> gradient;
  bool written = false;
  bool leaf = false;
  // Set for a parameter's leaf. Its gradient lives in the caller's Gradients; `gradient` is a copy of what
  // that held before this backward, where it held something.
  ParameterHandle<T> parameter;
};

template <class T>
struct TapeState {
  std::vector<TapeNode<T>> nodes;
  std::unordered_map<std::uint64_t, std::int32_t> parameters;
  std::uint64_t generation = 1;
  bool alive = true;
  std::vector<Tensor<T>> leaf_gradients;  // of the last backward, by node
  std::uint64_t leaf_generation = 0;
  std::vector<SavedVersion> saved;  // what backwards are going to read, in the order of nodes
  // While the function of a checkpoint runs forward: the parameters that it uses, which are not recorded.
  std::vector<ParameterHandle<T>>* checkpointed = nullptr;
  bool checkpoints_layers = false;

  void clear() {
    nodes.clear();
    parameters.clear();
    saved.clear();
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
      auto& entry = entry_of(n);
      target = &entry.value;
      written = &entry.written;
      if (!target->defined()) *target = Tensor<T>(n.shape);
      target->mark_changed();
    } else if (!n.gradient.defined()) {
      n.gradient = Tensor<T>(n.shape);
    } else if (!n.gradient.unique()) {
      // A gradient handed on by pass() is shared with its producer: adding to it in place would change both.
      // Borrowed memory is not ours to change either.
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
    if (id >= 0 && gradient.unique() && Gradients<T>::large(gradient)) {
      detail::TapeNode<T>& n = tape_.nodes[static_cast<std::size_t>(id)];
      auto* entry = n.parameter == nullptr ? nullptr : &entry_of(n);
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
  // The place of a parameter's gradient. What is in it before the first write of this backward is copied, so
  // that an exception can be undone.
  typename Gradients<T>::Entry& entry_of(detail::TapeNode<T>& n) {
    auto& entry = *gradients_->find(n.parameter->id);
    if (!n.written && entry.written) n.gradient = entry.value.clone();
    n.written = true;
    return entry;
  }

  std::int32_t input(std::size_t i) const noexcept {
    const auto& inputs = tape_.nodes[static_cast<std::size_t>(node_)].inputs;
    return i < inputs.size() ? inputs[i] : -1;
  }

  detail::TapeState<T>& tape_;
  Gradients<T>* gradients_;
  std::int32_t node_;
  Tensor<T> dy_;
};

/// The slots of several inputs whose gradients an op computes at once. One Var may be several inputs: then
/// the later slots are memory of their own, and add_up() adds it to the place that was meant.
template <class T>
class SeparateSlots {
 public:
  static constexpr std::size_t most = 6;

  /// Slots of inputs first .. first + count - 1, at most six.
  SeparateSlots(Backward<T>& b, std::size_t first, std::size_t count) : count_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      slots_[i] = b.grad(first + i);
      for (std::size_t j = 0; slots_[i] && j < i; ++j) {
        if (slots_[i].data != (meant_[j] != nullptr ? meant_[j] : slots_[j].data)) continue;
        meant_[i] = slots_[i].data;
        scratch_.emplace_back(slots_[i].shape);
        slots_[i].data = scratch_.back().data();
        slots_[i].beta = T(0);
      }
    }
  }
  SeparateSlots(const SeparateSlots&) = delete;
  SeparateSlots& operator=(const SeparateSlots&) = delete;

  const GradientSlot<T>& operator[](std::size_t i) const { return slots_[i]; }

  /// To be called when all slots are written.
  void add_up() const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (meant_[i] == nullptr) continue;
      for (index_t k = 0; k < slots_[i].shape.numel(); ++k) meant_[i][k] += slots_[i].data[k];
    }
  }

 private:
  std::array<GradientSlot<T>, most> slots_;
  std::array<T*, most> meant_{};  // of a slot with memory of its own
  std::vector<Tensor<T>> scratch_;
  std::size_t count_;
};

}  // namespace eigenformer
