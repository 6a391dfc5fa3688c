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

// Runs the function of a checkpoint again and records its ops on the tape.
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
  // Set for a parameter's leaf. Its gradient is in the caller's Gradients; `gradient` is a copy of the value
  // that was there before this backward, if there was one.
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
  std::vector<SavedVersion> saved;  // tensors that backwards will read, in the order of nodes
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

/// Where an op writes the gradient of one input: data = beta * data + gradient. It converts to false when the
/// input needs no gradient.
template <class T>
struct GradientSlot {
  T* data = nullptr;  ///< the first element, row-major; null when no gradient is needed
  T beta = 0;         ///< 0 for the first write (the memory is uninitialised), then 1
  Shape shape;        ///< the input's shape
  /// Whether a gradient is needed.
  explicit operator bool() const noexcept { return data != nullptr; }
};

/// The argument of an op's backward function: the gradient of the op's output, and a slot for the gradient of
/// each input.
template <class T>
class Backward {
 public:
  /// For Tape::backward, which makes one for each op.
  Backward(detail::TapeState<T>& tape, Gradients<T>* gradients, std::int32_t node)
      : tape_(tape),
        gradients_(gradients),
        node_(node),
        dy_(tape.nodes[static_cast<std::size_t>(node)].gradient) {
    detail::count_bytes<T>(dy_.numel());
  }

  /// The gradient with respect to the op's output, of the output's shape. Its memory may be shared: do not
  /// write to it.
  const Tensor<T>& dy() const noexcept { return dy_; }

  /// Whether input i needs a gradient: it is recorded, and neither a constant nor a frozen parameter.
  bool needs(std::size_t i) const noexcept { return input(i) >= 0; }

  /// The slot for the gradient of input i. It counts as written after this call, so all of it must be filled.
  /// For an op that has one Var as two inputs, both slots are the same memory: fill the first before the call
  /// for the second, or use SeparateSlots.
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
      // A gradient from pass() is shared with its producer: adding to it in place would change both. Borrowed
      // memory must not be changed either.
      n.gradient = n.gradient.clone();
    }
    const T beta = *written ? T(1) : T(0);
    *written = true;
    detail::count_bytes<T>(n.shape.numel() * (beta == T(0) ? 2 : 3));  // the input itself is read again, too
    return {target->data(), beta, n.shape};
  }

  /// Adds a complete gradient, with as many elements as input i. The first one of an input is shared without
  /// a copy, later ones are summed. For a parameter it is copied, unless it is large, has no other owner and
  /// is the first: then its memory is taken over. Without effect when input i needs no gradient.
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
  /// The same for a gradient that the caller keeps; a parameter copies it.
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
  // The entry of a parameter's gradient. Its value is copied before the first write of this backward, so that
  // it can be restored after an exception.
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

/// The slots of several inputs whose gradients an op computes together. When one Var is several of these
/// inputs, the later ones get temporary memory, which add_up() adds to the gradient.
template <class T>
class SeparateSlots {
 public:
  static constexpr std::size_t most = 6;  ///< the most inputs

  /// Slots of the inputs first .. first + count - 1; count is at most `most`.
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

  /// The slot of input first + i.
  const GradientSlot<T>& operator[](std::size_t i) const { return slots_[i]; }

  /// Must be called after all slots are filled.
  void add_up() const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (meant_[i] == nullptr) continue;
      for (index_t k = 0; k < slots_[i].shape.numel(); ++k) meant_[i][k] += slots_[i].data[k];
    }
  }

 private:
  std::array<GradientSlot<T>, most> slots_;
  std::array<T*, most> meant_{};  // where the temporary memory of a slot is added
  std::vector<Tensor<T>> scratch_;
  std::size_t count_;
};

}  // namespace eigenformer
