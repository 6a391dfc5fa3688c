#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/backward.hpp"

namespace eigenformer {

namespace detail {

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

/// Whether none of an op's inputs is recorded: the op then returns its result `y` without making a closure
/// for record().
template <class T, class... X>
bool not_recorded(const Tensor<T>& y, const X&... inputs) {
  if ((inputs.recorded() || ...)) return false;
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
  const auto note = [&](const void* data, SavedVersion version) {
    version.node = static_cast<std::int32_t>(tape.nodes.size()) - 1;
    version.input = y.data() == data ? SavedVersion::output : SavedVersion::other;
    for (std::size_t i = inputs.size(); i-- > 0;) {
      if (inputs[i]->value().data() == data) version.input = static_cast<std::int32_t>(i);
    }
    tape.saved.push_back(std::move(version));
  };
  saved.for_each(note);
  if (!saved.everything()) return;
  for (const Var<T>* x : inputs) {
    if (x->defined()) note(x->value().data(), SavedTensors::version_of<T>(&x->value()));
  }
  note(y.data(), SavedTensors::version_of<T>(&y));
}

/// Appends an op's node to a tape.
template <class T>
EIGENFORMER_NOINLINE Var<T> append_op(const char* op, Tensor<T> y, std::span<const Var<T>* const> inputs,
                                      std::shared_ptr<TapeState<T>> tape, const SavedTensors& saved,
                                      std::function<void(Backward<T>&)> backward) {
  TapeNode<T> node;
  node.op = op;
  node.shape = y.shape();
  node.inputs.reserve(inputs.size());
  for (const Var<T>* x : inputs) node.inputs.push_back(x->node());
  node.backward = std::move(backward);
  tape->nodes.push_back(std::move(node));
  note_saved(*tape, y, inputs, saved);
  const std::uint64_t generation = tape->generation;
  const auto id = static_cast<std::int32_t>(tape->nodes.size()) - 1;
  return Var<T>(std::move(y), std::move(tape), generation, id);
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
/// The same for a vector of inputs.
template <class T, class F>
[[nodiscard]] Var<T> record(const char* op, Tensor<T> y, const std::vector<Var<T>>& inputs, F&& backward) {
  return record(op, std::move(y), inputs, SavedTensors::assumed<F>(), std::forward<F>(backward));
}

}  // namespace eigenformer
