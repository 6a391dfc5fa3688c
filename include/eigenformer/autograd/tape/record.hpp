#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/autograd/tape/var.hpp"
#include "eigenformer/core/runtime/profiler.hpp"

namespace eigenformer {

namespace detail {

// A hash of 64 bits. Four independent sums, so that their multiplications overlap.
inline std::uint64_t checksum(const unsigned char* bytes, std::size_t count) noexcept {
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15u;
  std::uint64_t sums[4] = {1, 2, 3, 4};
  const auto mix = [](std::uint64_t& sum, std::uint64_t word) {
    sum = (sum ^ word) * factor;
    sum ^= sum >> 32;
  };
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes + i, 32);
    for (int k = 0; k < 4; ++k) mix(sums[k], words[k]);
  }
  std::uint64_t rest[4] = {};
  if (i < count) std::memcpy(rest, bytes + i, count - i);
  for (int k = 0; k < 4; ++k) mix(sums[k], rest[k]);
  for (int k = 1; k < 4; ++k) mix(sums[0], sums[k]);
  return sums[0];
}

// A tensor that an op's backward will read, with its version when the op was recorded.
struct SavedVersion {
  static constexpr std::int32_t output = -1, other = -2;

  StorageWatch watch;
  const unsigned char* data;  // the first element
  bool by_value;              // whether its bytes are compared, too
  std::size_t byte_count;
  std::uint64_t sum = 0;
  std::int32_t node = 0;       // of the op
  std::int32_t input = other;  // the index of the input that the tensor is

  template <class T>
  explicit SavedVersion(const Tensor<T>& x)
      : watch(x.watch()),
        data(reinterpret_cast<const unsigned char*>(x.data())),
        by_value(!std::is_floating_point_v<T>),
        byte_count(static_cast<std::size_t>(x.numel()) * sizeof(T)) {
    if (by_value) sum = checksum(data, byte_count);
  }

  bool changed() const noexcept {
    if (watch.changed()) return true;
    if (!by_value) return false;
    const auto memory = watch.storage();
    return memory != nullptr && checksum(data, byte_count) != sum;
  }
};

}  // namespace detail

/// The tensors that an op's backward reads in addition to the gradient of its output: values of inputs, the
/// output, indices. record() stores their versions, and Tape::backward throws ValueError when one was changed
/// in place afterwards.
///
/// Changes of floating-point tensors are detected by their version (Tensor::mark_changed), those of integers
/// and flags also by their values.
class SavedTensors {
 public:
  /// For a backward that reads no tensor.
  SavedTensors() = default;
  /// For a backward that reads these Tensors and Vars; undefined ones are ignored.
  template <class... X>
  explicit SavedTensors(const X&... tensors) {
    (add(tensors), ...);
  }
  /// The default for a backward of type F: it may read all inputs and the output, unless it captures nothing.
  template <class F>
  static SavedTensors assumed() {
    SavedTensors all;
    all.everything_ = !std::is_empty_v<std::remove_cvref_t<F>>;
    return all;
  }

  /// Adds a tensor; an undefined one is ignored.
  template <class T>
  SavedTensors& add(const Tensor<T>& tensor) {
    if (!tensor.defined()) return *this;
    if (versions_.empty()) versions_.reserve(4);  // few ops save more
    versions_.emplace_back(tensor);
    return *this;
  }
  /// Adds the value of a Var.
  template <class T>
  SavedTensors& add(const Var<T>& x) {
    return add(x.value());
  }
  /// add(x) if the condition holds, as for a factor that is read only when the other factor needs a gradient.
  template <class X>
  SavedTensors& add_if(bool condition, const X& x) {
    return condition ? add(x) : *this;
  }

  /// Whether all inputs and the output count as read (assumed()).
  bool everything() const noexcept { return everything_; }

  /// The tensors' versions when they were added.
  const std::vector<detail::SavedVersion>& versions() const noexcept { return versions_; }

 private:
  std::vector<detail::SavedVersion> versions_;
  bool everything_ = false;
};

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

  TapeNode<T>& node(std::int32_t i) { return nodes[static_cast<std::size_t>(i)]; }
  void clear() {
    nodes.clear();
    parameters.clear();
    saved.clear();
    ++generation;
  }
};

/// Where an op writes the gradient of one input: data = beta * data + gradient. It converts to false when the
/// input needs no gradient.
template <class T>
struct GradientSlot {
  T* data = nullptr;  ///< the first element, row-major; null when no gradient is needed
  T beta = 0;         ///< 0 for the first write (the memory is uninitialised), then 1
  Shape shape;        ///< the input's shape
  /// Whether a gradient is needed.
  explicit operator bool() const noexcept { return data != nullptr; }
  /// Before sums into parts of it: zeros at the first write.
  void start_sum() const {
    if (beta == T(0)) std::fill_n(data, shape.numel(), T(0));
  }
  /// Writes one element, or adds to it.
  void put(index_t i, T value) const { data[i] = beta == T(0) ? value : data[i] + value; }
};

}  // namespace detail

/// The argument of an op's backward function: the gradient of the op's output, and a slot for the gradient of
/// each input.
template <class T>
class Backward {
 public:
  /// For Tape::backward, which makes one for each op.
  Backward(detail::TapeState<T>& tape, Gradients<T>* gradients, std::int32_t node)
      : tape_(tape), gradients_(gradients), node_(node), dy_(tape.node(node).gradient) {
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
  detail::GradientSlot<T> grad(std::size_t i) {
    const std::int32_t id = input(i);
    if (id < 0) return {};
    detail::TapeNode<T>& n = tape_.node(id);
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
  void pass(std::size_t i, Tensor<T> gradient) {
    const std::int32_t id = input(i);
    if (id < 0) return;
    detail::TapeNode<T>& n = tape_.node(id);
    if (n.parameter == nullptr && !n.written) {
      n.gradient = gradient.reshape(n.shape);
      n.written = true;
      return;
    }
    if (n.parameter != nullptr && gradient.unique() && Gradients<T>::large(gradient)) {
      auto& entry = entry_of(n);
      if (!entry.written) {
        entry.value = gradient.reshape(n.shape);
        entry.written = true;
        return;
      }
    }
    const detail::GradientSlot<T> slot = grad(i);
    detail::kernels::axpby<T>(T(1), gradient.data(), slot.beta, slot.data, gradient.numel());
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
    const auto& inputs = tape_.node(node_).inputs;
    return i < inputs.size() ? inputs[i] : -1;
  }

  detail::TapeState<T>& tape_;
  Gradients<T>* gradients_;
  std::int32_t node_;
  Tensor<T> dy_;
};

namespace detail {

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

/// The tape of an op's recorded inputs; null when none is recorded. Throws ValueError when one is on a tape
/// that was cleared or destroyed, or when two are on different tapes.
template <class T>
EIGENFORMER_NOINLINE std::shared_ptr<TapeState<T>> tape_of(const char* op, const Tensor<T>& y,
                                                           std::span<const Var<T>* const> inputs) {
  std::shared_ptr<TapeState<T>> tape;
  count_bytes<T>(y.numel());
  for (const Var<T>* x : inputs) {
    count_bytes<T>(x->shape().numel());
    if (!x->recorded()) continue;
    if (!x->tape()->alive || x->generation() != x->tape()->generation) {
      throw ValueError(op,
                       {"an input of shape ", x->shape(),
                        " was recorded on a tape that has been cleared, consumed by backward or destroyed"});
    }
    if (tape != nullptr && tape != x->tape())
      throw ValueError(op, "the inputs were recorded on different tapes");
    tape = x->tape();
  }
  return tape;
}

/// Whether any of an op's inputs is recorded.
template <class... X>
bool any_recorded(const X&... inputs) {
  return (inputs.recorded() || ...);
}

/// Whether none of an op's inputs is recorded: the op then returns its result `y` without making a closure
/// for record().
template <class T, class... X>
bool not_recorded(const Tensor<T>& y, const X&... inputs) {
  if (any_recorded(inputs...)) return false;
  count_bytes<T>((y.numel() + ... + inputs.shape().numel()));
  return true;
}
template <class T>
bool not_recorded(const Tensor<T>& y, const std::vector<Var<T>>& inputs) {
  for (const Var<T>& x : inputs) {
    if (x.recorded()) return false;
  }
  count_bytes<T>(y.numel());
  for (const Var<T>& x : inputs) count_bytes<T>(x.shape().numel());
  return true;
}

template <class T>
EIGENFORMER_NOINLINE std::vector<const Var<T>*> addresses(std::span<const Var<T>> inputs) {
  std::vector<const Var<T>*> result;
  result.reserve(inputs.size());
  for (const Var<T>& x : inputs) result.push_back(&x);
  return result;
}

// Stores the versions of the tensors that the backward of the op recorded last will read.
template <class T>
EIGENFORMER_NOINLINE void note_saved(TapeState<T>& tape, const Tensor<T>& y,
                                     std::span<const Var<T>* const> inputs, const SavedTensors& saved) {
  const auto note = [&](SavedVersion version) {
    const auto is = [&](const Tensor<T>& x) { return static_cast<const void*>(x.data()) == version.data; };
    version.node = static_cast<std::int32_t>(tape.nodes.size()) - 1;
    if (is(y)) version.input = SavedVersion::output;
    for (std::size_t i = inputs.size(); i-- > 0;) {
      if (is(inputs[i]->value())) version.input = static_cast<std::int32_t>(i);
    }
    tape.saved.push_back(std::move(version));
  };
  for (const SavedVersion& version : saved.versions()) note(version);
  if (!saved.everything()) return;
  for (const Var<T>* x : inputs) {
    if (x->defined()) note(SavedVersion(x->value()));
  }
  note(SavedVersion(y));
}

/// Appends a node with this value to a tape.
template <class T>
EIGENFORMER_NOINLINE Var<T> append_node(std::shared_ptr<TapeState<T>> tape, TapeNode<T> node,
                                        Tensor<T> value) {
  TapeState<T>& state = *tape;
  node.shape = value.shape();
  state.nodes.push_back(std::move(node));
  const auto id = static_cast<std::int32_t>(state.nodes.size()) - 1;
  return Var<T>(std::move(value), std::move(tape), state.generation, id);
}

/// The same for an op.
template <class T>
EIGENFORMER_NOINLINE Var<T> append_op(const char* op, Tensor<T> y, std::span<const Var<T>* const> inputs,
                                      std::shared_ptr<TapeState<T>> tape, const SavedTensors& saved,
                                      std::function<void(Backward<T>&)> backward) {
  TapeNode<T> node;
  node.op = op;
  node.inputs.reserve(inputs.size());
  for (const Var<T>* x : inputs) node.inputs.push_back(x->node());
  node.backward = std::move(backward);
  Var<T> result = append_node(std::move(tape), std::move(node), std::move(y));
  note_saved(*result.tape(), result.value(), inputs, saved);
  return result;
}

}  // namespace detail

/// Makes an op of a forward result `y` and a backward, (Backward<T>&) -> void. The result is recorded when an
/// input is; otherwise it is a constant, and `backward` is discarded. `backward` is called at most once, and
/// must read no tensors except `saved` and those that it alone owns. `op` must outlive the tape (a string
/// literal). Throws ValueError when an input is on a tape that was cleared, consumed or destroyed, or when
/// two inputs are on different tapes.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, std::span<const Var<T>* const> inputs,
                            const SavedTensors& saved, F&& backward) {
  auto tape = detail::tape_of<T>(op, y, inputs);
  if (tape == nullptr) return Var<T>(std::move(y));
  return detail::append_op<T>(op, std::move(y), inputs, std::move(tape), saved, std::forward<F>(backward));
}

/// The same for inputs in braces.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, std::initializer_list<Var<T>> inputs,
                            const SavedTensors& saved, F&& backward) {
  return record(op, std::move(y), std::span<const Var<T>* const>(detail::addresses<T>(inputs)), saved,
                std::forward<F>(backward));
}
/// The same for a vector of inputs.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, const std::vector<Var<T>>& inputs,
                            const SavedTensors& saved, F&& backward) {
  return record(op, std::move(y), std::span<const Var<T>* const>(detail::addresses<T>(inputs)), saved,
                std::forward<F>(backward));
}
/// The same for a backward that may read every input and the output, or none if it captures nothing.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, std::initializer_list<Var<T>> inputs, F&& backward) {
  return record(op, std::move(y), inputs, SavedTensors::assumed<F>(), std::forward<F>(backward));
}

namespace detail {

/// record() of an op of one input, whose backward(dx, dy), if the input needs a gradient, is called with the
/// slot of that gradient and the gradient of the output.
template <class T, class F>
[[nodiscard]] Var<T> record_one(const char* op, Tensor<T> y, const Var<T>& x, const SavedTensors& saved,
                                F backward) {
  const Var<T>* const input = &x;
  return record(op, std::move(y), std::span<const Var<T>* const>(&input, 1), saved,
                [backward = std::move(backward)](Backward<T>& back) {
                  if (const GradientSlot<T> dx = back.grad(0)) backward(dx, back.dy());
                });
}

}  // namespace detail

}  // namespace eigenformer
