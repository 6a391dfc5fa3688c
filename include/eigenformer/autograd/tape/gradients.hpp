#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/parameter.hpp"

namespace eigenformer {

/// The gradients of a list of parameters, owned by the caller. Tape::backward accumulates into them, so two
/// backwards are gradient accumulation, and one Gradients a worker, added in order, is data parallelism. A
/// large gradient has memory from its first write to zero(): call that before the next forward pass, which
/// can use the memory.
template <class T>
class Gradients {
 public:
  struct Entry {
    ParameterHandle<T> parameter;
    Tensor<T> value;       ///< of the parameter's shape; it may be without memory when it is not written
    bool written = false;  ///< false: zero

    /// The value to be written to, with memory, which holds nothing yet if it was not written before.
    Tensor<T>& writable() {
      if (!value.defined()) value = Tensor<T>(value.shape());
      written = true;
      return value;
    }

    /// Adds the gradient of the same parameter from elsewhere; one that is not written adds nothing.
    void add(const Entry& other) {
      if (!other.written) return;
      if (!written) {
        writable().copy_from(other.value);
        return;
      }
      value.mark_changed();
      T* a = value.data();
      const T* b = other.value.data();
      parallel_for(value.numel(), 1 << 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) a[i] += b[i];
      });
    }

    /// Zero again; a large value gives its memory back.
    void reset() {
      if (large(value)) value = Tensor<T>::without_storage(value.shape());
      written = false;
    }
  };

  Gradients() = default;
  /// Gradients for the given parameters, all zero; a parameter listed twice (tied) is held once.
  explicit Gradients(const std::vector<ParameterHandle<T>>& parameters) {
    for (const auto& p : parameters) add(p);
  }

  /// A copy has values of its own: one for each worker can be made from one.
  Gradients(const Gradients& other) : entries_(other.entries_), index_(other.index_) {
    for (Entry& e : entries_) {
      if (e.value.defined()) e.value = e.written ? e.value.clone() : Tensor<T>(e.value.shape());
    }
  }
  Gradients(Gradients&&) noexcept = default;
  Gradients& operator=(const Gradients& other) {
    if (this != &other) *this = Gradients(other);
    return *this;
  }
  Gradients& operator=(Gradients&&) noexcept = default;
  ~Gradients() = default;

  void add(const ParameterHandle<T>& parameter) {
    if (!index_.emplace(parameter->id, entries_.size()).second) return;
    const Shape& shape = parameter->value.shape();
    entries_.push_back({parameter, Tensor<T>::without_storage(shape), false});
    if (!large(entries_.back().value)) entries_.back().value = Tensor<T>(shape);
  }

  std::vector<Entry>& entries() noexcept { return entries_; }
  const std::vector<Entry>& entries() const noexcept { return entries_; }

  Entry* find(std::uint64_t id) noexcept {
    const auto at = index_.find(id);
    return at == index_.end() ? nullptr : &entries_[at->second];
  }
  const Entry* find(std::uint64_t id) const noexcept { return const_cast<Gradients*>(this)->find(id); }

  /// The gradient of a parameter; zeros when nothing was accumulated. Throws ValueError when it is not in the
  /// list.
  Tensor<T> of(const Parameter<T>& parameter) const {
    const Entry* entry = find(parameter.id());
    if (entry == nullptr)
      throw ValueError("gradients", "there is no gradient of parameter '" + parameter.name() + "'");
    return entry->written ? entry->value : Tensor<T>::zeros(parameter.shape());
  }

  /// Starts again from zero; the memory of large gradients goes back to the pool.
  void zero() {
    for (Entry& e : entries_) e.reset();
  }

  /// Whether a gradient has memory only while it is written. Small ones keep theirs: with activations they
  /// would divide the pool's classes of small blocks in another way in each step, and these would never
  /// settle.
  static bool large(const Tensor<T>& gradient) noexcept {
    return static_cast<std::size_t>(gradient.numel()) * sizeof(T) >= MemoryPool::large;
  }

  /// Adds the gradients of another worker, entry by entry. Throws ValueError when the parameters differ.
  void accumulate(const Gradients& other) {
    for (const Entry& theirs : other.entries_) {
      Entry* ours = find(theirs.parameter->id);
      if (ours == nullptr) {
        throw ValueError("gradients", "parameter '" + theirs.parameter->name +
                                          "' of the other gradients is missing in these");
      }
      ours->add(theirs);
    }
  }

  /// Multiplies every gradient by a factor.
  void scale(T factor) {
    for (Entry& e : entries_) {
      if (!e.written) continue;
      e.value.mark_changed();
      T* a = e.value.data();
      parallel_for(e.value.numel(), 1 << 16, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) a[i] *= factor;
      });
    }
  }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

EIGENFORMER_INSTANCES(class Gradients)

}  // namespace eigenformer
