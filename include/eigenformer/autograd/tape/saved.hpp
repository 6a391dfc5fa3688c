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

  std::int32_t node = 0;       // of the op
  std::int32_t input = other;  // the index of the input that the tensor is
  StorageWatch watch;
  const unsigned char* bytes = nullptr;  // for a comparison by value
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

/// The tensors that an op's backward reads in addition to the gradient of its output: values of inputs, the
/// output, indices. record() stores their versions, and Tape::backward throws ValueError when one was changed
/// in place afterwards.
///
/// Changes of floating-point tensors are detected by their version (Tensor::mark_changed), those of integers
/// and flags also by their values. It holds references to the tensors: construct it in the call of record().
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

  /// Adds a tensor, which must exist until record() returns; an undefined one is ignored.
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
  /// Adds the value of a Var, which must exist until record() returns.
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

  /// Calls f(address of the first element, version) for each tensor.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < count_; ++i) f(few_[i].data, few_[i].version(few_[i].tensor));
    for (const Entry& e : more_) f(e.data, e.version(e.tensor));
  }

  /// The present version of the Tensor<T> at `address`.
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
  // Without the element type, so that one list has tensors of different types; versions are read when
  // record() calls for_each().
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
