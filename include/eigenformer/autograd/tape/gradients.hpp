#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/parameter.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"

namespace eigenformer {

/// The gradients of a list of parameters, owned by the caller. Tape::backward adds to them: two backwards
/// accumulate gradients, and one Gradients for each worker, summed in a fixed order by accumulate(), is data
/// parallelism. A large gradient has memory from its first write until zero(); call zero() before the next
/// forward pass, which then reuses the memory.
template <class T>
class Gradients {
 public:
  /// The gradient of one parameter.
  struct Entry {
    ParameterHandle<T> parameter;  ///< the parameter
    Tensor<T> value;       ///< of the parameter's shape; valid if `written`, else perhaps without memory
    bool written = false;  ///< whether a backward wrote to it; false: the gradient is zero

    /// The value, with memory, marked as written; uninitialised if it was not written before.
    Tensor<T>& writable() {
      if (!value.defined()) value = Tensor<T>(value.shape());
      written = true;
      return value;
    }

    /// Adds the gradient of the same parameter from another Gradients; one that is not written is zero.
    void add(const Entry& other) {
      if (!other.written) return;
      if (!written) return writable().copy_from(other.value);
      value.mark_changed();
      detail::kernels::axpby<T>(T(1), other.value.data(), T(1), value.data(), value.numel());
    }

    /// Sets it to zero; a large one releases its memory.
    void reset() {
      if (large(value)) value = Tensor<T>::without_storage(value.shape());
      written = false;
    }
  };

  /// Gradients of no parameters.
  Gradients() = default;
  /// Gradients of the given parameters, all zero; a parameter listed twice (tied) has one entry.
  explicit Gradients(const std::vector<ParameterHandle<T>>& parameters);

  /// A copy with its own values, for the same parameters.
  Gradients(const Gradients& other) : entries_(other.entries_), index_(other.index_) {
    for (Entry& e : entries_) {
      if (e.value.defined()) e.value = e.written ? e.value.clone() : Tensor<T>(e.value.shape());
    }
  }
  /// Takes the entries of the other object.
  Gradients(Gradients&&) noexcept = default;
  /// Becomes a copy with its own values.
  Gradients& operator=(const Gradients& other) {
    if (this != &other) *this = Gradients(other);
    return *this;
  }
  /// Takes the entries of the other object.
  Gradients& operator=(Gradients&&) noexcept = default;
  ~Gradients() = default;

  /// Appends a parameter with a gradient of zero; without effect if it is listed, or when memory runs out. It
  /// invalidates references to entries.
  void add(const ParameterHandle<T>& parameter);

  /// All entries, in the order in which they were added. Do not add or remove any.
  std::vector<Entry>& entries() noexcept { return entries_; }
  /// All entries, for reading.
  const std::vector<Entry>& entries() const noexcept { return entries_; }

  /// The entry of the parameter with this id (Parameter::id()); null when it is not listed.
  Entry* find(std::uint64_t id) noexcept {
    const auto at = index_.find(id);
    return at == index_.end() ? nullptr : &entries_[at->second];
  }
  /// The same, for reading.
  const Entry* find(std::uint64_t id) const noexcept { return const_cast<Gradients*>(this)->find(id); }

  /// The gradient of a parameter, sharing memory with its entry; new zeros when no backward wrote to it.
  /// Throws ValueError when the parameter is not listed.
  Tensor<T> of(const Parameter<T>& parameter) const {
    const Entry* entry = find(parameter.id());
    if (entry == nullptr)
      throw ValueError("gradients", {"there is no gradient of parameter '", parameter.name(), "'"});
    return entry->written ? entry->value : Tensor<T>::zeros(parameter.shape());
  }

  /// Sets all gradients to zero; large ones return their memory to the pool.
  void zero() {
    for (Entry& e : entries_) e.reset();
  }

  /// Whether a gradient has memory only while it is written: from MemoryPool::large bytes on. Smaller ones
  /// keep their memory, so that the pool's classes of small blocks have the same size in each step.
  static bool large(const Tensor<T>& gradient) noexcept {
    return static_cast<std::size_t>(gradient.numel()) * sizeof(T) >= MemoryPool::large;
  }

  /// Adds the gradients of another worker, entry by entry. Throws ValueError when it has a parameter that is
  /// not listed here; then nothing changes.
  void accumulate(const Gradients& other) {
    for (const Entry& theirs : other.entries_) {
      if (find(theirs.parameter->id) != nullptr) continue;
      throw ValueError("gradients", {"parameter '", theirs.parameter->name,
                                     "' of the other gradients is missing in these"});
    }
    for (const Entry& theirs : other.entries_) find(theirs.parameter->id)->add(theirs);
  }

  /// Multiplies every gradient by `factor`.
  void scale(T factor) {
    for (Entry& e : entries_) {
      if (!e.written) continue;
      e.value.mark_changed();
      detail::kernels::axpby<T>(factor, e.value.data(), T(0), e.value.data(), e.value.numel());
    }
  }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::uint64_t, std::size_t> index_;
};

// Outside of the class, as in tape.hpp.

template <class T>
Gradients<T>::Gradients(const std::vector<ParameterHandle<T>>& parameters) {
  for (const auto& p : parameters) add(p);
}

template <class T>
void Gradients<T>::add(const ParameterHandle<T>& parameter) {
  if (find(parameter->id) != nullptr) return;
  const Shape& shape = parameter->value.shape();
  Entry entry{parameter, Tensor<T>::without_storage(shape), false};
  if (!large(entry.value)) entry.value = Tensor<T>(shape);
  if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 1);
  index_.emplace(parameter->id, entries_.size());
  entries_.push_back(std::move(entry));  // has room, so it cannot throw
}

EIGENFORMER_INSTANCES(class Gradients)

}  // namespace eigenformer
