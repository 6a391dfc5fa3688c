#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "eigenformer/autograd/tape/var.hpp"

namespace eigenformer {

namespace detail {

// 64 bits that differ when the bytes do, but for one case in 2^64. Four sums, so that none waits for another.
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

// A tensor that an op's backward is going to read, as it was when the op was recorded.
struct SavedVersion {
  static constexpr std::int32_t output = -1, other = -2;

  std::int32_t node = 0;       // of the op
  std::int32_t input = other;  // which of its inputs the tensor is
  StorageWatch watch;
  const unsigned char* bytes = nullptr;  // what is compared by value
  std::size_t byte_count = 0;
  std::uint64_t sum = 0;

  bool changed() const noexcept {
    if (watch.changed()) return true;
    if (bytes == nullptr) return false;
    const auto memory = watch.storage();
    return memory != nullptr && checksum(bytes, byte_count) != sum;
  }
};

}  // namespace detail

/// The tensors that an op's backward reads beside the gradient of its output: values of inputs, the output,
/// indices. record() notes their versions, and Tape::backward throws ValueError where one was changed in
/// place since.
///
/// Tensors of numbers are known by their version (Tensor::mark_changed), those of integers and flags also by
/// their values. It holds references: make it in the call of record().
class SavedTensors {
 public:
  /// The backward reads no tensor.
  SavedTensors() = default;
  /// The backward reads these Tensors and Vars; undefined ones are left out.
  template <class... X>
  explicit SavedTensors(const X&... tensors) {
    (add(tensors), ...);
  }
  /// What is assumed of an op that does not say: its backward may read any input and the output.
  static SavedTensors inputs_and_output() {
    SavedTensors all;
    all.everything_ = true;
    return all;
  }

  template <class T>
  SavedTensors& add(const Tensor<T>& tensor) {
    if (!tensor.defined()) return *this;
    const Entry entry{&tensor, tensor.data(), version_of<T>};
    if (count_ < few_.size()) {
      few_[count_++] = entry;
    } else {
      more_.push_back(entry);
    }
    return *this;
  }
  template <class T>
  SavedTensors& add(const Var<T>& x) {
    return add(x.value());
  }
  /// add() when the condition holds: a factor, say, is read only where the other one needs a gradient.
  template <class X>
  SavedTensors& add_if(bool condition, const X& x) {
    return condition ? add(x) : *this;
  }

  bool everything() const noexcept { return everything_; }

  /// Calls f(address of the first element, version) for each tensor.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < count_; ++i) f(few_[i].data, few_[i].version(few_[i].tensor));
    for (const Entry& e : more_) f(e.data, e.version(e.tensor));
  }

  /// A tensor as it is now.
  template <class T>
  static detail::SavedVersion version_of(const void* address) {
    const auto& tensor = *static_cast<const Tensor<T>*>(address);
    detail::SavedVersion version;
    version.watch = tensor.watch();
    if constexpr (!std::is_floating_point_v<T>) {
      version.bytes = reinterpret_cast<const unsigned char*>(tensor.data());
      version.byte_count = static_cast<std::size_t>(tensor.numel()) * sizeof(T);
      version.sum = detail::checksum(version.bytes, version.byte_count);
    }
    return version;
  }

 private:
  // The element type is forgotten, so that tensors of different ones are in one list; nothing is noted before
  // record() asks for it.
  struct Entry {
    const void* tensor;
    const void* data;
    detail::SavedVersion (*version)(const void*);
  };

  std::array<Entry, 8> few_{};
  std::size_t count_ = 0;
  std::vector<Entry> more_;
  bool everything_ = false;
};

}  // namespace eigenformer
